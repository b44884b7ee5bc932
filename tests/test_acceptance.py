"""The acceptance model: its file, its fit, and what the drafter does with it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from dart.acceptance import (
    FILE,
    ODDS_SCALE,
    AcceptanceModel,
    load_acceptance,
    save_acceptance,
    scaled_odds,
)
from dart.checkpoint import load_dart_head
from dart.config import TreeConfig
from dart.dart_head import DartDrafter, DartHead
from dart.drafter import StageClock
from dart.errors import CheckpointError
from dart.model.dart_model import DartModel
from dart.ngram import NgramStore, import_trie
from dart.target import TargetModel
from dart.train.calibrate import OBSERVATION, fit, observe, predicted
from dart.train.reliability import (
    bins,
    calibration_error,
    figures,
    head_probability,
    log_loss,
    top_error,
    upstream_probability,
)
from dart.train.reliability_plot import svg


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
    random = np.random.default_rng(0)
    static = random.normal(size=(8, 4, 3)).astype(np.float32)
    context = random.normal(size=(8, 5, 3)).astype(np.float32)
    models = {"static": AcceptanceModel(static), "both": AcceptanceModel(static[:, ::-1], context)}
    save_acceptance(tmp_path, models)
    loaded = load_acceptance(tmp_path)
    assert set(loaded) == {"static", "both"}
    np.testing.assert_allclose(loaded["static"].coefficients, static, rtol=1e-4)
    assert loaded["static"].context is None
    assert loaded["static"].context_order == 0
    np.testing.assert_allclose(loaded["both"].coefficients, static[:, ::-1], rtol=1e-4)
    assert loaded["both"].context is not None
    np.testing.assert_allclose(loaded["both"].context, context, rtol=1e-4)
    assert loaded["both"].context_order == 5
    assert load_acceptance(tmp_path / "elsewhere") == {}


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"static": {}}', '{"version": 1}', '{"static": {"coefficients": [[1, 2, 3]]}}',
     '{"static": {"coefficients": [[[1, 2, NaN]]]}}',
     '{"static": {"coefficients": [[[1, 2, "x"]]]}}',
     '{"static": {"coefficients": [[[1, 2], [1, 2, 3]]]}}',
     '{"both": {"coefficients": [[[1, 2, 3]]], "context": [[[1, 2, 3]], [[1, 2, 3]]]}}',
     '{"both": {"coefficients": [[[1, 2, 3]]]}}',
     '{"context": {"coefficients": [[[1, 2, 3]]], "context": [[[1, 2, 3], [1, 2, 3], [1, 2, 3], '
     '[1, 2, 3], [1, 2, 3], [1, 2, 3], [1, 2, 3], [1, 2, 3], [1, 2, 3]]]}}'],
)  # fmt: skip
def test_a_damaged_file_is_one_clear_error(tmp_path: Path, text: str) -> None:
    """A traceback from json or numpy helps nobody."""
    (tmp_path / FILE).write_text(text.replace("{", '{"version": 2, ', 1))
    with pytest.raises(CheckpointError, match=FILE):
        load_acceptance(tmp_path)


def test_scores_are_log_probabilities_and_cut_the_tree(recorded_target, head, store) -> None:
    """Nodes that are not worth their place must be gone, and only those."""
    levels = head.config.draft_length + 1
    values = np.zeros((levels, store.order, 3), np.float32)
    values[..., 0] = -math.log(ODDS_SCALE)
    values[..., 1] = 1.0  # the head's own odds
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
    np.testing.assert_allclose(np.exp(tree.scores[first]), p, rtol=0.01)
    worth = np.exp(tree.scores) >= 0.03
    assert 1 < worth.sum() < 31
    assert cut.tokens.tolist() == tree.tokens[worth].tolist()


def test_a_model_made_for_another_store_or_head_is_left_out(recorded_target, head, store) -> None:
    """Coefficients by matched length mean nothing for a store of another order."""
    levels = head.config.draft_length + 1
    values = np.zeros((levels, store.order, 3), np.float32)

    def drafter_with(coefficients: np.ndarray, a_store=store) -> DartDrafter:
        acceptance = {"static": AcceptanceModel(coefficients)}
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
    ids = np.random.default_rng(1).integers(3, 250, 20).tolist()
    ids = [*ids, *ids[5:15], *ids[7:17]]  # so that the text repeats itself
    start, top_k, order = 12, 10, 4
    rows = observe(recorded_target, head, store, [(ids, start)], top_k=top_k, context_order=order)
    levels = head.config.draft_length + 1
    zeros = AcceptanceModel(
        np.zeros((levels, store.order, 3), np.float32), np.zeros((levels, order, 3), np.float32)
    )
    config = TreeConfig(size=1024, beam_width=1024, top_k=top_k, context_order=order)
    drafter = DartDrafter(head, recorded_target, store, config, zeros)
    groups = iter(np.split(rows, np.flatnonzero(np.diff(rows["level"])) + 1))
    opened = seconds = 0
    for anchor in range(start - 1, len(ids) - 2):
        tree = draft(recorded_target, drafter, ids[: anchor + 2])
        assert tree.draft_probs is not None
        assert tree.ranks is not None
        assert tree.ngram_probs is not None
        assert tree.context_probs is not None
        node: int | None = 0
        for level in range(min(levels, len(ids) - anchor - 2)):
            some = next(groups)
            assert (some["level"] == level).all()
            assert some["is_accepted"].sum() <= 1
            if node is None or level > 1:  # the tree is not whole any more
                continue
            children = np.flatnonzero(tree.parents == node)
            of_head = tree.ranks[children] >= 0
            assert (~of_head).sum() == some["is_opened"].sum()
            opened, seconds = opened + (~of_head).sum(), seconds + level
            for seen, drafted in (
                (some["log_p"][~some["is_opened"]], tree.draft_probs[children][of_head]),
                (some["log_q"], tree.ngram_probs[children]),
                (some["log_context"], tree.context_probs[children]),
            ):
                np.testing.assert_allclose(
                    np.sort(np.exp(seen)), np.sort(drafted), rtol=1e-3, atol=1e-6
                )
            right = children[tree.tokens[children] == ids[anchor + 2 + level]]
            assert some["is_accepted"].sum() == len(right)
            node = int(right[0]) if len(right) else None
    assert next(groups, None) is None
    assert opened > 5
    assert seconds > 3


@pytest.mark.parametrize("sources", ["static", "context", "both", "none"])
def test_fit_finds_the_law_that_made_the_data(sources: str) -> None:
    """An optimiser that stops early leaves probabilities that are none."""
    random = np.random.default_rng(0)
    count, has_store, has_context = 60_000, sources in "static both", sources in "context both"
    rows = np.zeros(count, OBSERVATION)
    true = np.array([[[7.0, 1.2, 0.0], [5.0, 0.6, 0.8]], [[6.0, 0.9, 0.0], [6.5, 0.7, 1.5]]])
    terms = np.array([[0.8, 0.5, -1.0], [-0.6, 1.1, 1.0]])[:, None]
    rows["level"] = random.integers(0, 2, count)
    rows["matched"], rows["context_length"] = random.integers(0, 2, (2, count))
    for name in ("log_p", "log_q", "log_context"):
        rows[name] = np.log(random.random(count) + 1e-10)
    rows["is_opened"] = (rows["context_length"] > 0) & (random.random(count) < 0.3)
    a, b, c = np.moveaxis(true[rows["level"], has_store * rows["matched"]], -1, 0)
    z = a + b * np.log(scaled_odds(np.exp(rows["log_p"])) + 1e-10) + c * rows["log_q"]
    if has_context:
        d, e, g = np.moveaxis(terms[rows["level"], 0], -1, 0)
        z += (rows["context_length"] > 0) * (d + e * rows["log_context"]) + g * rows["is_opened"]
    rows["is_accepted"] = random.random(count) < 1 / (1 + np.exp(-z))
    model = fit(rows, levels=3, order=2, context_order=2)[sources]
    expected = true if has_store else true[:, :1]
    np.testing.assert_allclose(model.coefficients[:2], expected, atol=0.2)
    # What was never seen falls back to the head's own odds.
    unseen = [[pytest.approx(-math.log(ODDS_SCALE)), 1, 0]] * expected.shape[1]
    assert model.coefficients[2].tolist() == unseen
    assert (model.context is not None) == has_context
    if model.context is not None:
        np.testing.assert_allclose(model.context[:2, 1], terms[:, 0], atol=0.15)
    for each in bins(predicted(model, rows), rows, (0.0, 0.1, 0.3, 0.6, 1.01)):
        assert each["observed"] == pytest.approx(each["predicted"], abs=0.02)


def test_observations_count_by_their_weight() -> None:
    """A kind of text with long answers would drown the others."""
    rows = np.zeros(4000, OBSERVATION)
    rows["log_p"] = -1.0
    rows["is_accepted"][:1000] = True  # half of the first 2000, none of the others
    weights = np.repeat([2.0, 0.0], 2000)
    model = fit(rows, levels=1, order=1, context_order=1, weights=weights)["none"]
    assert predicted(model, rows[:1])[0] == pytest.approx(0.5, abs=0.01)
    model = fit(rows, levels=1, order=1, context_order=1)["none"]
    assert predicted(model, rows[:1])[0] == pytest.approx(0.25, abs=0.01)


def seen(*rows: tuple[int, float, bool]) -> np.ndarray:
    """Candidates of level 0 by position: the head's probability, and whether it was accepted."""
    made = np.zeros(len(rows), OBSERVATION)
    for each, (position, p, is_accepted) in zip(made, rows, strict=True):
        each["position"], each["is_accepted"], each["log_p"] = position, is_accepted, math.log(p)
    return made


def test_figures_are_those_worked_out_by_hand() -> None:
    """A calibration error over the many hopeless candidates would be 0 for any score."""
    rows = seen((0, 0.85, True), (0, 0.05, False), (1, 0.15, True), (1, 0.85, False))
    share = head_probability(rows)
    np.testing.assert_allclose(share, [0.85, 0.05, 0.15, 0.85], rtol=1e-5)
    wanted = -(math.log(0.85) + math.log(0.95) + math.log(0.15) + math.log(0.15)) / 2
    assert log_loss(share, rows) == pytest.approx(wanted, rel=1e-4)
    # The best of both positions are one bin: 0.85 predicted, one of two accepted.
    assert top_error(share, rows) == pytest.approx(0.35, abs=1e-3)
    # Those two, 0.85 of the one at 0.15 and 0.05 of the last one, by two positions.
    gaps = 2 * 0.35 + 0.85 + 0.05
    assert calibration_error(share, rows) == pytest.approx(gaps / 2, abs=1e-3)
    assert bins(share, rows)[-1] == {"candidates": 2, "predicted": 0.85, "observed": 0.5}
    assert math.isfinite(log_loss(np.array([0.0, 1.0, 0.0, 1.0]), rows))


@pytest.mark.parametrize("sources", ["static", "context", "both", "none"])
def test_upstreams_score_is_read_as_the_search_adds_it_up(
    recorded_target, head, store, sources: str
) -> None:
    """The "before" of the comparison must be what is really in use without a model."""
    ids = np.random.default_rng(1).integers(3, 250, 20).tolist() * 2
    order = 4 if sources in ("context", "both") else 0
    drafter = DartDrafter(
        head,
        recorded_target,
        store if sources in ("static", "both") else None,
        TreeConfig(size=200, context_order=order),
    )
    tree = draft(recorded_target, drafter, ids)
    assert tree.scores is not None
    nodes = np.arange(1, len(tree))
    rows = np.zeros(len(nodes), OBSERVATION)
    rows["level"] = tree.depths[nodes] - 1
    for field, values in (
        ("log_p", tree.draft_probs), ("log_q", tree.ngram_probs),
        ("log_context", tree.context_probs),
    ):  # fmt: skip
        assert values is not None
        rows[field] = np.log(values[nodes] + 1e-10)
    step = tree.scores[nodes] - tree.scores[tree.parents[nodes]]
    given = np.log(upstream_probability(rows, sources))
    if sources == "both":  # there the tree tells the larger one as the store's
        given = np.maximum(given, np.log(upstream_probability(rows, "static")))
    np.testing.assert_allclose(given, step, rtol=1e-3, atol=1e-4)


def test_the_picture_shows_every_score_of_every_choice() -> None:
    """A picture that drops a curve, or is no XML, is only seen by who opens it."""
    from xml.etree import ElementTree

    zeros = np.zeros((1, 1, 3), np.float32)
    models = {
        "none": AcceptanceModel(zeros),
        "context": AcceptanceModel(zeros, np.zeros((1, 2, 3), np.float32)),
    }
    rows = seen((0, 0.85, True), (0, 0.05, False), (1, 0.15, True), (1, 0.85, False))
    rows["is_opened"][3] = True
    made = figures(models, rows)
    assert made["none"]["fitted"]["bins"] == [
        {"candidates": 3, "predicted": 0.5, "observed": pytest.approx(2 / 3, abs=1e-4)}
    ]
    assert made["context"]["opened"]["bins"][0]["candidates"] == 1
    assert "opened" not in made["none"]
    drawn = ElementTree.fromstring(svg(made))
    lines = drawn.findall(".//{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 6
    assert all(line.get("points") for line in lines)
