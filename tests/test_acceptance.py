"""The acceptance model: its file, its fit, and what the drafter does with it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from dart.acceptance import FILE, AcceptanceModel
from dart.checkpoint import load_dart_head
from dart.config import TreeConfig
from dart.dart_head import DartDrafter, DartHead
from dart.drafter import StageClock
from dart.errors import CheckpointError
from dart.model.dart_model import DartModel
from dart.ngram import NgramStore, import_trie
from dart.target import TargetModel
from dart.train.calibrate import fit, observe, reliability


@pytest.fixture(scope="module")
def head(conformance: Path, recorded_target: TargetModel) -> DartHead:
    """The recorded head."""
    return load_dart_head(conformance / "dart_head", recorded_target)


@pytest.fixture(scope="module")
def store(conformance: Path, tmp_path_factory: pytest.TempPathFactory) -> NgramStore:
    """The recorded order-3 store."""
    return import_trie(
        conformance / "ngram/small.trie",
        tmp_path_factory.mktemp("ngram") / "small.ngram",
        exact=True,
    )


def draft(target: TargetModel, drafter: DartDrafter, ids: list[int]):
    """The tree behind a text, as the first step of a generation drafts it."""
    with torch.inference_mode():
        aux = target.prefill(ids[:-1], target.new_cache(len(ids)), drafter.aux_layers).aux_hidden
        drafter.start(ids[:-1], ids[-1], aux, len(ids) + 64)
        return drafter.propose(64, StageClock())


def test_a_file_says_what_was_saved(tmp_path: Path) -> None:
    """Coefficients cut or reordered on the way would score at random."""
    model = AcceptanceModel(np.random.default_rng(0).normal(size=(8, 4, 3)).astype(np.float32))
    model.save(tmp_path)
    loaded = AcceptanceModel.load(tmp_path)
    assert loaded is not None
    np.testing.assert_allclose(loaded.coefficients, model.coefficients, rtol=1e-5)
    assert AcceptanceModel.load(tmp_path / "elsewhere") is None


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"coefficients": [[1, 2, 3]]}', '{"coefficients": [[[1, 2, NaN]]]}',
     '{"coefficients": [[[1, 2, "x"]]]}', '{"coefficients": [[[1, 2], [1, 2, 3]]]}'],
)  # fmt: skip
def test_a_damaged_file_is_one_clear_error(tmp_path: Path, text: str) -> None:
    """A traceback from json or numpy helps nobody."""
    (tmp_path / FILE).write_text(text)
    with pytest.raises(CheckpointError, match=FILE):
        AcceptanceModel.load(tmp_path)


def test_scores_are_log_probabilities_and_cut_the_tree(recorded_target, head, store) -> None:
    """Nodes that are not worth their place must be gone, and only those."""
    levels = head.config.draft_length + 1
    values = np.zeros((levels, store.order, 3), np.float32)
    values[..., 1] = 1.0  # sigmoid(ln p) = p / (1 + p)
    ids = [5, 9, 33, 12, 40]

    def tree_with(least: float):
        config = TreeConfig(size=30, min_probability=least)
        model = AcceptanceModel(values)
        return draft(recorded_target, DartDrafter(head, recorded_target, store, config, model), ids)

    tree, cut = tree_with(0.0), tree_with(0.03)
    assert tree.scores is not None
    assert tree.draft_probs is not None
    first = np.flatnonzero(tree.depths == 1)
    p = tree.draft_probs[first]
    np.testing.assert_allclose(np.exp(tree.scores[first]), p / (1 + p), rtol=1e-4)
    worth = np.exp(tree.scores) >= 0.03
    assert 1 < worth.sum() < 31
    assert cut.tokens.tolist() == tree.tokens[worth].tolist()


def test_a_model_made_for_another_store_or_head_is_left_out(recorded_target, head, store) -> None:
    """Coefficients by matched length mean nothing for a store of another order."""
    levels = head.config.draft_length + 1
    values = np.zeros((levels, store.order, 3), np.float32)

    def drafter_with(coefficients: np.ndarray, a_store=store) -> DartDrafter:
        acceptance = AcceptanceModel(coefficients)
        model = DartModel(recorded_target, None, head, a_store, acceptance=acceptance)
        drafter = model.new_drafter("dart")
        assert isinstance(drafter, DartDrafter)
        return drafter

    fitting = drafter_with(values)
    assert fitting.config.min_probability > 0
    tree = draft(recorded_target, fitting, [5, 9, 33])
    assert tree.scores is not None
    assert tree.scores[1] == pytest.approx(math.log(0.5))
    for other in (
        drafter_with(values[:, :-1]),
        drafter_with(values[:-1]),
        drafter_with(values, None),
    ):
        assert other.config.min_probability == 0
        plain = DartDrafter(head, recorded_target, other.store, other.config)
        trees = [draft(recorded_target, each, [5, 9, 33]) for each in (other, plain)]
        assert trees[0].tokens.tolist() == trees[1].tokens.tolist()


@torch.inference_mode()
def test_observed_candidates_are_those_that_the_drafter_sees(recorded_target, head, store) -> None:
    """A model fitted one token off would be worse than none."""
    ids = [int(token) for token in np.random.default_rng(1).integers(3, 250, 30)]
    start, top_k = 12, 10
    rows = observe(recorded_target, head, store, [(ids, start)], top_k=top_k)
    levels = head.config.draft_length + 1
    config = TreeConfig(size=1024, beam_width=1024, top_k=top_k)
    drafter = DartDrafter(head, recorded_target, store, config)
    at = 0
    for anchor in range(start - 1, len(ids) - 2):
        tree = draft(recorded_target, drafter, ids[: anchor + 2])
        assert tree.draft_probs is not None
        known = min(levels, len(ids) - anchor - 2)
        first = np.sort(tree.draft_probs[tree.depths == 1])
        some = rows[at : at + top_k]
        np.testing.assert_allclose(np.sort(np.exp(some[:, 2])), first, rtol=1e-3, atol=1e-6)
        accepted = tree.tokens[tree.depths == 1] == ids[anchor + 2]
        assert some[:, 4].sum() == accepted.sum()
        for level in range(known):
            some = rows[at : at + top_k]
            assert (some[:, 0] == level).all()
            assert some[:, 4].sum() <= 1
            assert ((some[:, 1] > 0) == (np.exp(some[:, 3]) > 1e-9)).all()
            at += top_k
    assert at == len(rows)


def test_fit_finds_the_law_that_made_the_data() -> None:
    """An optimiser that stops early leaves probabilities that are none."""
    random = np.random.default_rng(0)
    count = 60_000
    true = np.array([[[0.5, 1.2, 0.0], [1.0, 0.6, 0.8]], [[-1.0, 0.9, 0.0], [2.0, 0.7, 1.5]]])
    level, length = random.integers(0, 2, (2, count))
    log_p, log_q = np.log(random.random((2, count)) + 1e-10)
    a, b, c = np.moveaxis(true[level, length], -1, 0)
    z = a + b * log_p + np.where(length > 0, c * log_q, 0)
    accepted = random.random(count) < 1 / (1 + np.exp(-z))
    log_q = np.where(length > 0, log_q, math.log(1e-10))
    rows = np.stack([level, length, log_p, log_q, accepted], axis=1).astype(np.float32)
    model = fit(rows, levels=3, order=3)
    np.testing.assert_allclose(model.coefficients[:2, :2], true, atol=0.12)
    # What was never seen falls back to the head's own odds.
    assert model.coefficients[2].tolist() == [[0, 1, 0]] * 3
    for each in reliability(model, rows, (0.0, 0.1, 0.3, 0.6, 1.01)):
        assert each["observed"] == pytest.approx(each["predicted"], abs=0.02)
