"""The tree search as plain lists and full sorts, with every extension kept to the end."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

# The C library's float32 logarithm, which the C++ side uses: ties there must be ties here.
_logf = ctypes.CDLL(None).logf
_logf.restype, _logf.argtypes = ctypes.c_float, [ctypes.c_float]

Lookup = Callable[[list[int], int], tuple[np.float32, int]]


@dataclass(frozen=True)
class Node:
    path: tuple[int, ...]
    score: np.float32
    p: np.float32
    q: np.float32
    matched: int
    rank: int
    created: int  # within its level


def log(probability: np.float32) -> np.float32:
    return np.float32(_logf(np.float32(probability) + np.float32(1e-10)))


def search(
    topk_tokens: np.ndarray,
    topk_probs: np.ndarray,
    lookup: Lookup | None,
    context: Sequence[int],
    *,
    eos_tokens: Sequence[int],
    tree_size: int,
    beam_width: int,
    ngram_weight: float,
    level_weights: Sequence[float],
    logit_weights: Sequence[float],
) -> list[Node]:
    """The chosen nodes without the root: by depth, then falling score, then creation."""
    weight = np.float32(ngram_weight)
    root = Node((), np.float32(0), np.float32(1), np.float32(0), 0, 0, 0)
    beam, pool = [root], []
    for level in range(len(topk_tokens)):
        kept = distinct_candidates(topk_tokens[level], topk_probs[level])
        extended: list[Node] = []
        for parent in beam:
            for rank, token, p in kept:
                step = np.float32(logit_weights[level]) * log(p)
                q, matched = np.float32(0), 0
                if level > 0 and lookup is not None and weight > 0:
                    q, matched = lookup([*context, *parent.path], token)
                    step = step + weight * log(q)
                score = parent.score + np.float32(level_weights[level]) * step
                path = (*parent.path, token)
                extended.append(Node(path, score, p, q, matched, rank, len(extended)))
        pool += extended
        extended.sort(key=lambda n: (n.path[-1] in eos_tokens, -n.score, n.created))
        beam = extended[:beam_width]
    pool.sort(key=lambda n: (-n.score, len(n.path), n.created))
    return sorted(pool[:tree_size], key=lambda n: (len(n.path), -n.score, n.created))


def distinct_candidates(tokens: Any, probs: Any) -> list[tuple[int, int, np.float32]]:
    """(rank, token, p) by rank; of equal tokens the most probable, the first if equal."""
    best: dict[int, tuple[int, np.float32]] = {}
    for rank, (token, p) in enumerate(zip(tokens, probs, strict=True)):
        token, p = int(token), np.float32(p)
        if token >= 0 and (token not in best or p > best[token][1]):
            best[token] = (rank, p)
    return sorted((rank, token, p) for token, (rank, p) in best.items())
