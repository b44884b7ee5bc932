"""The DART head against recordings of upstream's, and DART decoding from end to end."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from dart.cache import KVCache
from dart.checkpoint import load_dart_head
from dart.config import GenerationConfig, SamplingConfig, TreeConfig
from dart.dart_head import DartDrafter, DartHead
from dart.decode import generate
from dart.drafter import NoDrafter
from dart.ngram import NgramStore, import_trie
from dart.target import TargetModel
from tests.conformance import check_generation


@pytest.fixture(scope="module")
def head(conformance: Path, recorded_target: TargetModel) -> DartHead:
    """The recorded head."""
    return load_dart_head(conformance / "dart_head", recorded_target)


@pytest.fixture(scope="module")
def store(conformance: Path, tmp_path_factory: pytest.TempPathFactory) -> NgramStore:
    """The recorded order-3 store, imported."""
    return import_trie(
        conformance / "ngram/small.trie",
        tmp_path_factory.mktemp("ngram") / "small.ngram",
        exact=True,
    )


def recording(conformance: Path) -> dict[str, np.ndarray]:
    """All arrays of head_logits.npz by name."""
    with np.load(conformance / "head_logits.npz") as arrays:
        return dict(arrays)


def prompts_in(arrays: dict[str, np.ndarray]) -> list[str]:
    """The prefixes p0, p1, ..."""
    return sorted({name.split(".")[0] for name in arrays})


@torch.inference_mode()
def test_logits_and_cache_equal_upstreams_at_prefill_and_after(
    conformance: Path, recorded_target: TargetModel, head: DartHead
) -> None:
    """A quirk left out (say, the second norm) makes a published head useless."""
    arrays = recording(conformance)
    for prompt in prompts_in(arrays):
        cache = KVCache(1024, [torch.device("cpu")])
        steps = sorted({name.split(".")[1] for name in arrays if name.startswith(f"{prompt}.s")})
        for step in steps:
            case = {
                name.split(".")[2]: value
                for name, value in arrays.items()
                if name.startswith(f"{prompt}.{step}.")
            }
            assert cache.length == case["past_len"]
            hidden = head(
                torch.from_numpy(case["aux_hidden"])[None],
                recorded_target.embed(case["embed_ids"].tolist())[None],
                cache,
            )
            np.testing.assert_allclose(hidden, case["hidden_after_forward"], atol=1e-4)
            np.testing.assert_allclose(head.logits(hidden), case["logits"], atol=1e-4)
            (keys, values), *_ = cache._blocks.values()
            rows = slice(0, cache.length)
            np.testing.assert_allclose(keys[0, 0, :, rows], case["cache_k"], atol=1e-4)
            np.testing.assert_allclose(values[0, 0, :, rows], case["cache_v"], atol=1e-4)


@torch.inference_mode()
def test_aux_hidden_states_are_upstreams(conformance: Path, recorded_target: TargetModel) -> None:
    """The taps are the inputs of layers 2, N//2, N-3; one off and nothing is accepted."""
    arrays = recording(conformance)
    for prompt in prompts_in(arrays):
        ids = arrays[f"{prompt}.prompt_ids"].tolist()
        output = recorded_target.prefill(
            ids, recorded_target.new_cache(512), recorded_target.draft_layers
        )
        np.testing.assert_allclose(
            output.aux_hidden, arrays[f"{prompt}.s0.aux_hidden"], atol=1e-4, rtol=1e-4
        )


def test_generations_equal_upstreams(
    conformance: Path, recorded_target: TargetModel, head: DartHead, store: NgramStore
) -> None:
    """Tokens, first trees and accept lengths of whole generations, step by step."""
    entries = json.loads((conformance / "generate.json").read_text())["entries"]
    assert entries
    for entry in entries:
        drafter = DartDrafter(head, recorded_target, store, TreeConfig())
        check_generation(recorded_target, drafter, entry, "dart")


@pytest.mark.parametrize("size", [0, 1, 16, 60, 128])
@pytest.mark.parametrize(
    "sampling",
    [
        SamplingConfig(),
        SamplingConfig(temperature=0.7, top_p=0.9, top_k=50, seed=1),
        SamplingConfig(temperature=1.0, seed=2),
    ],
    ids=["greedy", "filtered", "sampled"],
)
def test_dart_equals_baseline(
    conformance: Path, recorded_target, head: DartHead, store: NgramStore, sampling, size
) -> None:
    """The promise: the same text, token for token, at any temperature and tree size."""
    entries = json.loads((conformance / "generate.json").read_text())["entries"]
    for entry in entries[:6]:
        config = GenerationConfig(max_new_tokens=32, eos_token_ids=(2,), sampling=sampling)
        texts = []
        for drafter in (
            NoDrafter(),
            DartDrafter(head, recorded_target, store, TreeConfig(size=size)),
            DartDrafter(head, recorded_target, None, TreeConfig(size=size)),
            DartDrafter(head, recorded_target, store, TreeConfig(size=size, context_order=4)),
        ):
            steps = generate(recorded_target, drafter, entry["prompt"], config)
            texts.append([token for step in steps for token in step.tokens])
        assert all(text == texts[0] for text in texts)


def test_the_context_store_holds_the_text(recorded_target, head: DartHead) -> None:
    """A token counted twice or left out would be looked for in the wrong place ever after."""
    config = GenerationConfig(max_new_tokens=32)
    drafter = DartDrafter(head, recorded_target, None, TreeConfig(context_order=3))
    for prompt in ([5, 9, 33, 12], [40, 41]):  # the second text begins anew
        text = list(prompt)
        for step in generate(recorded_target, drafter, prompt, config):
            text += step.tokens
            assert drafter.context_store is not None
            # What ends a text is not drafted behind any more.
            ended = len(step.tokens) if step.finish_reason == "eos" else 0
            assert drafter.context_store.num_tokens == len(text) - ended
