"""The loop: every drafter gives the target's own text."""

from __future__ import annotations

from functools import lru_cache

import pytest
import torch

from dart.config import GenerationConfig, SamplingConfig
from dart.decode import Step, generate
from dart.drafter import NoDrafter
from dart.errors import ConfigError, PromptTooLongError
from dart.target import TargetModel
from tests.reference.decode import decode
from tests.support import AdversarialDrafter, ShakyTarget

SETTINGS = [
    SamplingConfig(),
    SamplingConfig(temperature=0.7, top_p=0.9, top_k=50, seed=1),
    SamplingConfig(temperature=1.0, seed=2),
]
PROMPTS = [[5, 9, 33, 12], [1], [40, 41, 42, 43, 44, 45, 46, 47]]


def tokens_of(steps: list[Step]) -> list[int]:
    """The text of a run."""
    return [token for step in steps for token in step.tokens]


@lru_cache
def truth_of(
    target: TargetModel, prompt: tuple[int, ...], config: GenerationConfig
) -> tuple[int, ...]:
    """The reference's text; many tests ask for the same one."""
    return tuple(decode(target, list(prompt), config))


def config_for(sampling: SamplingConfig, **changes) -> GenerationConfig:
    """Forty tokens; token 3 ends the text."""
    return GenerationConfig(
        **{"max_new_tokens": 40, "eos_token_ids": (3,), **changes}, sampling=sampling
    )


@pytest.mark.parametrize("sampling", SETTINGS, ids=["greedy", "filtered", "sampled"])
@pytest.mark.parametrize("prompt", PROMPTS, ids=len)
def test_baseline_equals_the_reference(target: TargetModel, prompt, sampling) -> None:
    """The baseline is the yardstick: it must be right by itself."""
    config = config_for(sampling)
    assert tokens_of(list(generate(target, NoDrafter(), prompt, config))) == decode(
        target, prompt, config
    )


@pytest.mark.parametrize("size", [0, 1, 2, 16, 128])
@pytest.mark.parametrize("sampling", SETTINGS, ids=["greedy", "filtered", "sampled"])
def test_adversarial_trees_do_not_change_the_text(target: TargetModel, sampling, size) -> None:
    """Losslessness may not depend on what a drafter proposes."""
    config = config_for(sampling)
    for seed, prompt in enumerate(PROMPTS):
        truth = list(truth_of(target, tuple(prompt), config))
        for guesses in (truth, []):
            drafter = AdversarialDrafter(target.vocab_size, size, seed, guesses)
            steps = list(generate(target, drafter, prompt, config))
            assert tokens_of(steps) == truth
            assert steps[-1].finish_reason == ("eos" if truth[-1] == 3 else "length")


FILTERS = [
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 0.8, "top_k": 5},
    {"temperature": 1.2, "top_p": 0.6},
    {"temperature": 0.7, "top_p": 0.9, "top_k": 20},
]


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_rounding_does_not_part_the_decoders(qwen3: TargetModel, filters) -> None:
    """A row computed alone and in a tree differs in its last digits, and near ties then flip."""
    error, parted = 0.05, 0
    for seed in range(6):
        sampling = SamplingConfig(seed=seed, **filters)
        config = config_for(sampling, eos_token_ids=(), tie_tolerance=error)
        truth = decode(qwen3, [5, seed], config)
        careless = config_for(sampling, eos_token_ids=(), tie_tolerance=0.0)
        for number, guesses in enumerate(([], truth)):
            drafter = AdversarialDrafter(qwen3.vocab_size, 12 * number, seed, guesses)
            shaky = ShakyTarget(qwen3, error, seed=10 * seed + number)
            assert tokens_of(list(generate(shaky, drafter, [5, seed], config))) == truth
            drafter = AdversarialDrafter(qwen3.vocab_size, 12 * number, seed, guesses)
            shaky = ShakyTarget(qwen3, error, seed=10 * seed + number)
            parted += tokens_of(list(generate(shaky, drafter, [5, seed], careless))) != truth
    assert parted > 0, "this test would not notice if ties were not settled"


def test_good_guesses_are_accepted(qwen3: TargetModel) -> None:
    """A loop that rejects everything is lossless, too."""
    config = config_for(SamplingConfig(), eos_token_ids=())
    truth = decode(qwen3, [5, 9], config)
    drafter = AdversarialDrafter(qwen3.vocab_size, 20, 0, truth, qwen3.draft_layers)
    steps = list(generate(qwen3, drafter, [5, 9], config))
    assert len(steps) < 25
    for step in steps[1:]:
        assert step.tree is not None
        assert step.chosen is not None
        assert step.accept_length == len(step.path) - 1 == len(step.tokens) - 1
        assert step.tree.tokens[step.path[1:]].tolist() == step.tokens[:-1]
        assert step.chosen[step.path[-1]] == step.tokens[-1]
        assert set(step.seconds) == {"verify"}


@pytest.mark.parametrize("limit", range(1, 12))
def test_max_new_tokens_and_max_length_are_exact(qwen3: TargetModel, limit) -> None:
    """Upstream runs past its limits by up to a whole step."""
    config = config_for(SamplingConfig(), eos_token_ids=(), max_new_tokens=limit)
    truth = decode(qwen3, [5, 9, 33], config)
    drafter = AdversarialDrafter(qwen3.vocab_size, 30, 1, decode(qwen3, [5, 9, 33], config_for(
        SamplingConfig(), eos_token_ids=())))  # fmt: skip
    assert tokens_of(list(generate(qwen3, drafter, [5, 9, 33], config))) == truth
    assert len(truth) == limit
    config = config_for(SamplingConfig(), eos_token_ids=(), max_length=3 + limit)
    steps = list(generate(qwen3, drafter, [5, 9, 33], config))
    assert tokens_of(steps) == truth
    assert steps[-1].finish_reason == "length"


def test_the_text_ends_at_the_first_of_any_eos(qwen3: TargetModel) -> None:
    """Nothing may follow EOS, wherever in a path it was accepted."""
    free = config_for(SamplingConfig(), eos_token_ids=())
    truth = decode(qwen3, [5, 9], free)
    for end in range(1, 12):
        config = config_for(SamplingConfig(), eos_token_ids=(truth[end], 63))
        expected = truth[: truth.index(truth[end]) + 1]
        drafter = AdversarialDrafter(qwen3.vocab_size, 25, end, truth)
        steps = list(generate(qwen3, drafter, [5, 9], config))
        assert tokens_of(steps) == expected
        assert steps[-1].finish_reason == "eos"
        for step in steps:
            assert len(step.path[1:]) == step.accept_length <= len(step.tokens)


def test_the_context_is_a_limit_too(qwen3: TargetModel) -> None:
    """Positions beyond the model's context are not meant to be used."""
    prompt = [5] * (qwen3.max_positions - 3)
    config = config_for(SamplingConfig(), eos_token_ids=())
    drafter = AdversarialDrafter(qwen3.vocab_size, 10, 0, [])
    steps = list(generate(qwen3, drafter, prompt, config))
    assert len(tokens_of(steps)) == 3
    assert steps[-1].finish_reason == "length"


def test_prompts_that_cannot_be_decoded_are_refused(qwen3: TargetModel) -> None:
    """Each of these ended in a traceback from deep inside a model."""
    config = config_for(SamplingConfig())
    with pytest.raises(ConfigError, match="empty"):
        next(generate(qwen3, NoDrafter(), [], config))
    with pytest.raises(ConfigError, match="token id 64; the target knows 0 to 63"):
        next(generate(qwen3, NoDrafter(), [1, 64], config))
    with pytest.raises(PromptTooLongError, match="256 tokens and the model's context is 256"):
        next(generate(qwen3, NoDrafter(), [1] * 256, config))
    with pytest.raises(PromptTooLongError, match="max_length is 4"):
        next(generate(qwen3, NoDrafter(), [1] * 4, config_for(SamplingConfig(), max_length=4)))


def test_two_runs_interleaved_do_not_disturb_each_other(qwen3: TargetModel) -> None:
    """The race steps several decoders on one model in turn."""
    config = config_for(SamplingConfig(), eos_token_ids=())
    truth = {start: decode(qwen3, [start], config) for start in (5, 9)}
    runs = {
        start: generate(
            qwen3,
            AdversarialDrafter(64, 12, start, truth[start], qwen3.draft_layers),
            [start],
            config,
        )
        for start in (5, 9)
    }
    seen: dict[int, list[int]] = {5: [], 9: []}
    while runs:
        for start in list(runs):
            step = next(runs[start], None)
            if step is None:
                del runs[start]
            else:
                seen[start] += step.tokens
    assert seen == truth


def test_a_stopped_run_leaves_nothing_behind(qwen3: TargetModel) -> None:
    """A closed tab must free the engine."""
    drafter = AdversarialDrafter(64, 12, 0, [], qwen3.draft_layers)
    run = generate(qwen3, drafter, [5], config_for(SamplingConfig(), eos_token_ids=()))
    next(run)
    next(run)
    run.close()
    assert not any(layer._forward_pre_hooks for layer in qwen3.layers)
    assert not torch.is_inference_mode_enabled()
