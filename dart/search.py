"""The n-gram-guided tree search: typed face of the core's search.

Knows the default weights and array conversions; the search itself, its tie order and its error
checks are described in csrc/include/dart/tree_search.h.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dart import native
from dart.context_store import ContextStore
from dart.errors import ConfigError, DartError
from dart.ngram import MAX_ORDER, NgramStore, Tokens, to_token_array
from dart.tree import DraftTree

if TYPE_CHECKING:
    from dart import _core
else:
    _core = native.core()

LEVEL_DECAY = 0.7  # W_l = (l + 1) ** -0.7, upstream default
LOGIT_DECAY = 0.9  # G_l = 0.9 ** l, upstream default


@lru_cache(maxsize=64)
def default_weights(levels: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Weights W and G of each level, float32 [levels]; computed in double as upstream does."""
    level = np.arange(levels, dtype=np.float64)
    weights = (
        ((level + 1) ** -LEVEL_DECAY).astype(np.float32),
        (LOGIT_DECAY**level).astype(np.float32),
    )
    for array in weights:
        array.setflags(write=False)  # shared by every caller
    return weights


def search_tree(
    topk_tokens: ArrayLike,
    topk_probs: ArrayLike,
    store: NgramStore | None,
    context: Tokens,
    *,
    eos_token: int | Sequence[int] | None,
    tree_size: int,
    beam_width: int = 20,
    ngram_weight: float = 0.5,
    level_weights: ArrayLike | None = None,
    logit_weights: ArrayLike | None = None,
    acceptance: ArrayLike | None = None,
    context_store: ContextStore | None = None,
    context_acceptance: ArrayLike | None = None,
    min_probability: float = 0.0,
) -> DraftTree:
    """Choose the `tree_size` best continuations among all sequences of candidates.

    score(child) = score(parent) + W_l * (G_l * ln(p + 1e-10) + ngram_weight * ln(q + 1e-10)),
    p from the head and q from the store, without the q term at level 0 and without a store.

    topk_tokens    target-vocabulary ids [L, k]; a negative id marks a place without candidate.
    topk_probs     their probabilities [L, k]; cast to float32.
    store          n-gram store, or None to search without.
    context        ids up to and including the last committed token, which becomes the root.
    eos_token      one id, several, or None; their nodes are extended only when nothing else is.
    tree_size      drafted nodes, without the root.
    level_weights, logit_weights   W and G, at least L values each; upstream's by default.
    acceptance     coefficients [L, matched lengths, 3] of an acceptance model, used in place of the
                   weights: a score is then the log of the probability that the target accepts the
                   path, by sigmoid(a + b ln(p + 1e-10) + c ln(q + 1e-10)) a level, where a, b, c
                   are those of the matched length (no c at 0) and q counts at level 0, too.
    context_store  counts of the text that `context` is the end of. Without `acceptance` q is the
                   larger of the two stores' probabilities.
    context_acceptance  coefficients [L, matched lengths, 3] of its matches, needed with
                   `acceptance`: a match of length n adds d + e ln(q' + 1e-10) of that n to the
                   argument of the sigmoid. Tokens that are no candidates, but that the context
                   store opens, become nodes, too, with the third one added.
    min_probability  nodes whose exp(score) is lower are left out, so that a tree may have less than
                   `tree_size` nodes; a probability with `acceptance` only.
    returns        tree with scores, draft_probs, ngram_probs (0 where not looked up),
                   matched_lengths, ranks (column in topk_tokens, -1 of an opened node),
                   context_probs and context_lengths; root first, then by depth, within a depth by
                   falling score. Always closed under parents.
    raises         ConfigError for shapes, probabilities or parameters out of range;
                   NgramFormatError if a part of the store that is read proves damaged.
    source         arXiv 2601.19278 and fvliang/DART; the order of exact ties is ours.
    """
    probs = np.ascontiguousarray(topk_probs, dtype=np.float32)
    tokens = to_token_array(topk_tokens, "topk_tokens")
    if tokens.ndim != 2 or tokens.shape != probs.shape:
        raise ConfigError(
            f"topk_tokens has shape {tokens.shape} and topk_probs {probs.shape}, "
            "expected the same two dimensions [levels, candidates]"
        )
    if tree_size < 0:
        raise ConfigError(f"tree_size is {tree_size}, expected 0 or more")
    if beam_width < 1:
        raise ConfigError(f"beam_width is {beam_width}, expected 1 or more")
    if not 0 <= min_probability <= 1:
        raise ConfigError(f"min_probability is {min_probability}, expected 0 to 1")
    if level_weights is None or logit_weights is None:
        default_level, default_logit = default_weights(tokens.shape[0])
        level_weights = default_level if level_weights is None else level_weights
        logit_weights = default_logit if logit_weights is None else logit_weights
    try:
        result = _core.search_tree(
            tokens,
            probs,
            None if store is None else store.core,
            to_token_array(context[-MAX_ORDER:], "context"),
            eos_tokens=_token_list(eos_token),
            tree_size=tree_size,
            beam_width=beam_width,
            ngram_weight=ngram_weight,
            level_weights=np.ascontiguousarray(level_weights, dtype=np.float32),
            logit_weights=np.ascontiguousarray(logit_weights, dtype=np.float32),
            acceptance=_coefficients(acceptance),
            context_store=None if context_store is None else context_store.core,
            context_acceptance=_coefficients(context_acceptance),
            min_score=math.log(min_probability) if min_probability > 0 else -math.inf,
        )
    except DartError:
        raise
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return DraftTree(*result)


def _coefficients(values: ArrayLike | None) -> NDArray[np.float32] | None:
    return None if values is None else np.ascontiguousarray(values, dtype=np.float32)


def _token_list(tokens: int | Sequence[int] | None) -> list[int]:
    if tokens is None:
        return []
    return [int(tokens)] if isinstance(tokens, int | np.integer) else list(tokens)
