"""Sampler: the law it draws from, its filters, and its noise."""

from __future__ import annotations

import math

import pytest
import torch

from dart.config import SamplingConfig
from dart.errors import ConfigError
from dart.sampling import Sampler, gumbel_noise


def law(logits: list[float], config: SamplingConfig, draws: int = 20_000) -> list[float]:
    """Observed frequencies over many positions."""
    rows = torch.tensor([logits]).expand(draws, -1)
    chosen = Sampler(config).draw(rows, list(range(draws))).tokens
    return (torch.bincount(chosen, minlength=len(logits)) / draws).tolist()


def slow_law(logits: list[float], config: SamplingConfig) -> list[float]:
    """The filtered distribution, token by token: temperature, then top-p, then top-k."""
    weights = [math.exp(logit / config.temperature) for logit in logits]
    total = sum(weights)
    order = sorted(range(len(logits)), key=lambda i: -weights[i])
    kept, mass = [], 0.0
    for i in order:
        if config.top_p < 1 and mass >= config.top_p and kept:
            break
        kept.append(i)
        mass += weights[i] / total
    if config.top_k:
        kept = kept[: config.top_k]
    total = sum(weights[i] for i in kept)
    return [weights[i] / total if i in kept else 0.0 for i in range(len(logits))]


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 1.0},
        {"temperature": 0.5},
        {"temperature": 1.0, "top_k": 3},
        {"temperature": 1.0, "top_p": 0.7},
        {"temperature": 0.8, "top_p": 0.9, "top_k": 2},
        {"temperature": 1.0, "top_p": 1e-4},
    ],
)
def test_law_is_the_filtered_softmax(settings) -> None:
    """Keyed noise that favours some tokens would sample from another distribution."""
    logits = [1.0, 0.3, 2.0, -1.0, 0.0, 1.9]
    config = SamplingConfig(**settings, seed=5)
    for seen, expected in zip(law(logits, config), slow_law(logits, config), strict=True):
        assert seen == pytest.approx(expected, abs=0.015)
        assert (seen == 0) == (expected == 0)


def test_the_same_seed_and_position_give_the_same_token_whatever_the_batch() -> None:
    """A tree row and a plain row at one position must draw alike: that is losslessness."""
    torch.manual_seed(0)
    logits = torch.randn(12, 3000)
    positions = [40, 41, 41, 42, 42, 42, 43, 44, 45, 46, 47, 48]
    for top_p, top_k in ((1.0, 0), (0.9, 0), (1.0, 50), (1.0, 2000), (0.5, 7)):
        sampler = Sampler(SamplingConfig(temperature=0.9, seed=3, top_p=top_p, top_k=top_k))
        together = sampler.draw(logits, positions).tokens.tolist()
        alone = [
            int(sampler.draw(logits[i : i + 1], positions[i : i + 1]).tokens)
            for i in range(len(logits))
        ]
        assert together == alone


def test_noise_is_gumbel_and_differs_by_seed_position_and_token() -> None:
    """Repeated or skewed noise shows as loops or as a wrong law."""
    tokens = torch.arange(20_000)
    noise = gumbel_noise(1, [0, 1], tokens)
    assert noise.mean() == pytest.approx(0.5772, abs=0.02)
    assert noise.var() == pytest.approx(math.pi**2 / 6, abs=0.05)
    assert torch.isfinite(noise).all()
    assert abs(torch.corrcoef(noise)[0, 1]) < 0.02
    other = gumbel_noise(2, [0], tokens)
    assert abs(torch.corrcoef(torch.cat([noise[:1], other]))[0, 1]) < 0.02
    shifted = torch.stack([noise[0, :-1], noise[0, 1:]])
    assert abs(torch.corrcoef(shifted)[0, 1]) < 0.02


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"seed": -1}, "seed"),
    ],
)
def test_settings_out_of_range_are_named(settings, word) -> None:
    """A silent clamp would sample from something the user did not ask for."""
    with pytest.raises(ConfigError, match=word):
        SamplingConfig(**settings)
