"""The tree search with numpy: every extension of a beam's members, full sorts.

What is searched and how ties are ordered is described in csrc/include/dart/tree_search.h. All
scores are float32 in the compiled search's order of operations, so both give the same tree.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dart.pure.context_store import MAX_OPENED, ContextStore, Match

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float32]

_EPSILON = np.float32(1e-10)
_MAX_WEIGHT = 1e6
_MAX_PROBABILITY = np.float32(1.001)
_MAX_CANDIDATES = _MAX_BEAM_WIDTH = 2**16
_MAX_LEVELS = 2**15 - 1


class Lookup(Protocol):
    """What the search needs of an n-gram store."""

    @property
    def order(self) -> int:
        """Length of the longest n-grams: no more than order - 1 tokens of a context matter."""
        ...

    def probabilities(self, context: Sequence[int], tokens: Ints) -> tuple[Floats, Ints]:
        """Probabilities and matched lengths [n] of n tokens after the context."""
        ...


# One row per extension: all that was ever extended is kept until the tree is cut from it.
_NODE = np.dtype(
    [
        ("token", np.int32),
        ("parent", np.int64),  # row of the parent, -1 for the root
        ("depth", np.int64),
        ("created", np.int64),  # within its depth: place of the parent in the beam, then rank
        ("score", np.float32),
        ("p", np.float32),
        ("q", np.float32),
        ("matched", np.int32),
        ("rank", np.int32),
        ("context_p", np.float32),
        ("context_length", np.int32),
    ]
)


def search_tree(
    topk_tokens: Ints,
    topk_probs: Floats,
    store: Lookup | None,
    context: Ints,
    *,
    eos_tokens: Sequence[int],
    tree_size: int,
    beam_width: int,
    ngram_weight: float,
    level_weights: Floats,
    logit_weights: Floats,
    acceptance: Floats | None,
    context_store: ContextStore | None,
    context_acceptance: Floats | None,
    min_score: float,
) -> tuple[Longs, Longs, Floats, Floats, Floats, Ints, Ints, Floats, Ints]:
    """As dart.search.search_tree, which describes the arguments.

    returns  tokens, parents, scores, draft probabilities, n-gram probabilities, matched lengths,
             ranks, context probabilities and context lengths, each [N]
    raises   ValueError for what is out of range
    """
    levels = len(topk_tokens)
    _check(topk_tokens, context, beam_width, ngram_weight, level_weights, logit_weights)
    _check_acceptance("acceptance", acceptance, levels)
    if context_store is not None and acceptance is not None:
        if context_acceptance is None:
            context_acceptance = np.empty((levels, 0, 3), np.float32)
        _check_acceptance("context_acceptance", context_acceptance, levels)
    beam = np.zeros(1, _NODE)
    beam["parent"] = -1
    rows = np.array([-1])  # of the beam's members
    paths: list[tuple[int, ...]] = [()]
    recent = tuple(context.tolist())
    nodes = np.empty(0, _NODE)
    full = 1  # members that the beam would have if none were left out
    for level in range(levels if tree_size > 0 else 0):
        ranks, tokens, p = _distinct(topk_tokens[level], topk_probs[level], level)
        if len(tokens) == 0:
            break
        extended = np.zeros((len(beam), len(tokens)), _NODE)
        extended["token"], extended["rank"], extended["p"] = tokens, ranks, p
        extended["created"] = np.arange(extended.size).reshape(extended.shape)
        extended["created"] += MAX_OPENED * np.arange(len(beam))[:, None]
        places = np.repeat(np.arange(len(beam)), len(tokens))  # of the parent in the beam
        opened: list[tuple[int, Match]] = []
        has_ngrams = acceptance is not None or (level > 0 and ngram_weight > 0)
        if has_ngrams:
            # Scores never rise along a path: what is worse than the last node of a full tree has
            # no descendant in it. It keeps its place, for the sake of those it keeps out.
            is_hopeful = beam["score"] >= max(_last_score(nodes, tree_size), min_score)
            if store is not None:
                wholes = [recent + path for path in paths]
                for i, found in _look_up(store, wholes, is_hopeful, tokens):
                    extended["q"][i], extended["matched"][i] = found
            if context_store is not None:
                for i in np.flatnonzero(is_hopeful).tolist():
                    for match in context_store.matches(paths[i], tokens.tolist()):
                        _, index, length, probability = match
                        if index < 0:
                            opened.append((i, match))
                        else:
                            extended["context_p"][i, index] = probability
                            extended["context_length"][i, index] = length
        extended = extended.reshape(-1)
        log_p = _log(extended["p"])
        if acceptance is not None:
            if opened:
                more = _opened_nodes(opened, store, [recent + path for path in paths], len(tokens))
                extended = np.concatenate([extended, more])
                places = np.concatenate([places, [i for i, _ in opened]])
                log_p = np.concatenate([log_p, np.full(len(more), _log(p).min())])
            model = None if context_acceptance is None else context_acceptance[level]
            steps = _log_acceptance(acceptance[level], model, log_p, extended)
        else:
            steps = logit_weights[level] * log_p
            if has_ngrams and (store is not None or context_store is not None):
                q = np.maximum(extended["q"], extended["context_p"])
                steps = steps + np.float32(ngram_weight) * _log(q)
            steps = level_weights[level] * steps
        extended["parent"] = rows[places]
        extended["depth"] = level + 1
        extended["score"] = beam["score"][places] + steps

        is_eos = np.isin(extended["token"], list(eos_tokens))
        falling = np.lexsort((extended["created"], -extended["score"]))
        others = full * int((~np.isin(tokens, list(eos_tokens))).sum())
        best = np.concatenate(
            [
                falling[~is_eos[falling]][:beam_width],
                falling[is_eos[falling]][: max(0, beam_width - others)],
            ]
        )
        full = min(full * len(tokens), beam_width)
        paths = [(*paths[places[i]], int(extended["token"][i])) for i in best.tolist()]
        beam, rows = extended[best], len(nodes) + best
        nodes = np.concatenate([nodes, extended])
    return _make_tree(int(context[-1]), nodes, tree_size, min_score)


def _make_tree(
    root: int, nodes: NDArray[np.void], tree_size: int, min_score: float
) -> tuple[Longs, Longs, Floats, Floats, Floats, Ints, Ints, Floats, Ints]:
    """The best rows with the root before them, by depth, then falling score, then creation."""
    score, depth, created = -nodes["score"], nodes["depth"], nodes["created"]
    # A parent scores no less than its child and has less depth, so it is never cut before it.
    chosen = np.lexsort((created, depth, score))[:tree_size]
    chosen = chosen[nodes["score"][chosen] >= min_score]
    chosen = chosen[np.lexsort((created[chosen], score[chosen], depth[chosen]))]
    index_of = np.zeros(len(nodes) + 1, np.int64)  # the last one is the root's, row -1
    index_of[chosen] = np.arange(1, len(chosen) + 1)
    tree = np.zeros(len(chosen) + 1, _NODE)
    tree["token"][0], tree["p"][0] = root, 1
    tree[1:] = nodes[chosen]
    parents = index_of[tree["parent"]]
    parents[0] = -1
    names = ("score", "p", "q", "matched", "rank", "context_p", "context_length")
    columns = (tree[name].copy() for name in names)
    return tree["token"].astype(np.int64), parents, *columns


def _distinct(tokens: Ints, probs: Floats, level: int) -> tuple[Ints, Ints, Floats]:
    """Ranks, tokens and probabilities by rank; of equal tokens the most probable, the first."""
    is_bad = ~((probs >= 0) & (probs <= _MAX_PROBABILITY))  # NaN is neither
    if is_bad.any():
        rank = int(np.argmax(is_bad))
        raise ValueError(
            f"topk_probs[{level}, {rank}] is {probs[rank]:f}, expected a probability in 0..1"
        )
    by_token = np.lexsort((-probs, tokens))
    by_token = by_token[tokens[by_token] >= 0]
    is_first = np.ones(len(by_token), bool)
    is_first[1:] = tokens[by_token[1:]] != tokens[by_token[:-1]]
    ranks = np.sort(by_token[is_first]).astype(np.int32)
    return ranks, tokens[ranks], np.minimum(probs[ranks], np.float32(1))


def _last_score(nodes: NDArray[np.void], tree_size: int) -> float:
    """Score of the worst node in the tree so far, -inf while there is room."""
    if len(nodes) < tree_size:
        return -math.inf
    return -np.partition(-nodes["score"], tree_size - 1)[tree_size - 1]


def _look_up(
    store: Lookup, paths: list[tuple[int, ...]], is_wanted: NDArray[np.bool_], tokens: Ints
) -> Iterator[tuple[int, tuple[Floats, Ints]]]:
    """Index of each wanted path and what the store has of the tokens after it."""
    known: dict[tuple[int, ...], tuple[Floats, Ints]] = {}  # many end in the same context
    for i in np.flatnonzero(is_wanted).tolist():
        tail = paths[i][max(0, len(paths[i]) - store.order + 1) :]
        if tail not in known:
            known[tail] = store.probabilities(tail, tokens)
        yield i, known[tail]


def _float_function(name: str, double: Callable[[float], float]) -> Callable[[float], float]:
    """The C library's float32 function, as the compiled search uses: its ties are ties here.

    Where there is none, the double's, rounded: trees may then differ in exact ties.
    """
    try:
        function = getattr(ctypes.CDLL(None), f"{name}f")
    except (AttributeError, OSError, TypeError):
        return double
    function.restype, function.argtypes = ctypes.c_float, [ctypes.c_float]
    return function


_logf = _float_function("log", math.log)
_expf = _float_function("exp", math.exp)
_log1pf = _float_function("log1p", math.log1p)


def _log(probabilities: Floats) -> Floats:
    """ln(p + epsilon), each value computed once: most n-gram probabilities are 0."""
    values, places = np.unique(probabilities + _EPSILON, return_inverse=True)
    logs = np.array([_logf(value) for value in values.tolist()], np.float32)
    return logs[places].reshape(probabilities.shape)


def _opened_nodes(
    opened: list[tuple[int, Match]],
    store: Lookup | None,
    paths: list[tuple[int, ...]],
    candidates: int,
) -> NDArray[np.void]:
    """Extensions by tokens that are no candidates, each behind those of its parent."""
    nodes = np.zeros(len(opened), _NODE)
    nodes["rank"] = -1
    count = dict.fromkeys(range(len(paths)), candidates)
    for node, (i, (token, _, length, probability)) in zip(nodes, opened, strict=True):
        node["token"], node["context_length"], node["context_p"] = token, length, probability
        node["created"] = i * (candidates + MAX_OPENED) + count[i]
        count[i] += 1
        if store is not None:
            q, matched = store.probabilities(paths[i], np.array([token], np.int32))
            node["q"], node["matched"] = q[0], matched[0]
    return nodes


def _log_acceptance(
    model: Floats, context_model: Floats | None, log_p: Floats, extended: NDArray[np.void]
) -> Floats:
    """ln(sigmoid(z)) of each extension; the models of one level are [matched lengths, 3]."""
    matched, length = extended["matched"], extended["context_length"]
    a, b, c = model[np.minimum(matched, len(model) - 1)].T
    z = a + b * log_p
    z = np.where(matched > 0, z + c * _log(extended["q"]), z)
    if context_model is not None:
        d, e, g = context_model[np.minimum(length, len(context_model) - 1)].T
        z = np.where(length > 0, z + (d + e * _log(extended["context_p"])), z)
        z = np.where((length > 0) & (extended["rank"] < 0), z + g, z)
    values, places = np.unique(z, return_inverse=True)
    logs = np.array([_log_sigmoid(value) for value in values.tolist()], np.float32)
    return logs[places].reshape(z.shape)


def _log_sigmoid(z: float) -> np.float32:
    tail = np.float32(_log1pf(_expf(-abs(z))))
    return -tail if z > 0 else np.float32(z) - tail


def _check(
    tokens: Ints,
    context: Ints,
    beam_width: int,
    ngram_weight: float,
    level_weights: Floats,
    logit_weights: Floats,
) -> None:
    levels, width = tokens.shape
    if len(context) == 0:
        raise ValueError("context is empty, expected at least the token of the root")
    if width > _MAX_CANDIDATES or levels > _MAX_LEVELS:
        raise ValueError("too many candidates or levels, expected at most 65536 and 32767")
    if not 1 <= beam_width <= _MAX_BEAM_WIDTH:
        raise ValueError(f"beam_width is {beam_width}, expected 1..{_MAX_BEAM_WIDTH}")
    _check_weights("ngram_weight", [ngram_weight])
    for name, weights in (("level_weights", level_weights), ("logit_weights", logit_weights)):
        if len(weights) < levels:
            raise ValueError(
                f"{name} has {len(weights)} values, expected one for each of {levels} levels"
            )
        _check_weights(name, weights[:levels].tolist())


def _check_weights(name: str, weights: Sequence[float]) -> None:
    for weight in weights:
        if not 0 <= weight <= _MAX_WEIGHT:  # NaN is neither
            raise ValueError(f"{name} is {weight:f}, expected 0..1e6")


def _check_acceptance(name: str, acceptance: Floats | None, levels: int) -> None:
    if acceptance is None:
        return
    if acceptance.ndim != 3 or acceptance.shape[2] != 3:
        raise ValueError(f"{name} must have shape [levels, matched lengths, 3]")
    if acceptance.shape[1] == 0 or acceptance.shape[0] < levels:
        raise ValueError(
            f"{name} has {acceptance.size} values, expected three for each matched length of "
            f"each of {levels} levels"
        )
    for value in acceptance.ravel().tolist():
        if not abs(value) <= _MAX_WEIGHT:  # NaN is not
            raise ValueError(f"{name} holds {value:f}, expected -1e6..1e6")
