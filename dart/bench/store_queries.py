"""Searches that a draft head would ask for, made from a text without a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dart.errors import ConfigError
from dart.ngram import MAX_ORDER

_OCCURRENCES = 256  # of a token in the text that are looked at


@dataclass(frozen=True, slots=True)
class Query:
    """What one search is given."""

    context: NDArray[np.int32]  # [MAX_ORDER - 1], the most recent last
    tokens: NDArray[np.int32]  # [levels, candidates], by falling probability
    probabilities: NDArray[np.float32]  # likewise


def make_queries(
    ids: Sequence[int] | NDArray[np.int32], count: int, *, levels: int, candidates: int, seed: int
) -> list[Query]:
    """As many queries, at random places of a text.

    The candidates of a level are the token that comes there in the text and those that come most
    often as far behind other occurrences of the context's last token. Their probabilities are those
    frequencies; the true token's is raised by 0.8 ** (level + 1), about as much as a head knows.

    ids     of the text; what is asked for must be a small part of it
    raises  ConfigError where the text is too short, or has not so many distinct tokens
    """
    text = np.asarray(ids, np.int32)
    known, frequencies = np.unique(text, return_counts=True)
    places = len(text) - levels - MAX_ORDER
    if places < count or len(known) < candidates:
        raise ConfigError(
            f"the text has {len(text)} tokens, {len(known)} of them distinct; expected at least "
            f"{count + levels + MAX_ORDER} and {candidates}: give a longer one, or ask for fewer "
            "searches, levels or candidates"
        )
    common = known[np.argsort(-frequencies, kind="stable")][:candidates]
    order = np.argsort(text[:-levels], kind="stable")
    sorted_text = text[:-levels][order]
    random = np.random.default_rng(seed)
    ends = MAX_ORDER + random.choice(places, size=count, replace=False)
    queries = []
    for end in ends:
        last = text[end - 1]
        first, behind = np.searchsorted(sorted_text, [last, last + 1])
        chosen = np.linspace(first, behind - 1, min(behind - first, _OCCURRENCES)).astype(np.int64)
        after = order[chosen] + 1
        rows = [
            _row(text[after + level], int(text[end + level]), 0.8 ** (level + 1), common)
            for level in range(levels)
        ]
        queries.append(
            Query(
                text[end - MAX_ORDER + 1 : end].copy(),
                np.stack([tokens for tokens, _ in rows]),
                np.stack([probabilities for _, probabilities in rows]),
            )
        )
    return queries


def _row(
    seen: NDArray[np.int32], true: int, confidence: float, common: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """One level: as many tokens as `common` has, which fill up what was not seen."""
    tokens, counts = np.unique(np.concatenate([seen, common]), return_counts=True)
    weights = (1 - confidence) * counts / counts.sum()
    at = np.searchsorted(tokens, true)
    if at == len(tokens) or tokens[at] != true:
        tokens, weights = np.insert(tokens, at, true), np.insert(weights, at, 0.0)
    weights[at] += confidence
    best = np.argsort(-weights, kind="stable")[: len(common)]
    chosen = weights[best]
    return tokens[best].astype(np.int32), (chosen / chosen.sum()).astype(np.float32)
