"""Fit the acceptance models of a DART head and its n-grams.

The truth is the target's own text: behind every position of it, level by level, the head's
candidates after the true tokens so far, and what the context store would open beside them, and
whether the next true token is among them. That is P(accepted | parent accepted), which is what the
search adds up. The texts must not be among those that the store has counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dart.acceptance import ODDS_SCALE, AcceptanceModel, scaled_odds
from dart.context_store import ContextStore
from dart.dart_head import DartHead
from dart.ngram import NgramStore
from dart.target import TargetModel
from dart.train.dart import predictions

_EPSILON = 1e-10
_ANCHORS = 64  # positions drafted behind in one forward

OBSERVATION = np.dtype(
    [
        ("position", np.int32),  # number of the place in a text, and of the level drafted there
        ("level", np.int32),
        ("matched", np.int32),  # length of context that the store matched, 0 for none
        ("log_p", np.float32),  # of an opened token: that of the least probable candidate
        ("log_q", np.float32),
        ("context_length", np.int32),  # that the context store matched, 0 for none
        ("log_context", np.float32),
        ("is_opened", np.bool_),  # no candidate of the head, only the context store's
        ("is_accepted", np.bool_),
    ]
)
Observations = NDArray[np.void]


@torch.inference_mode()
def observe(
    target: TargetModel,
    head: DartHead,
    store: NgramStore,
    documents: Iterable[tuple[list[int], int]],
    *,
    top_k: int,
    context_order: int,
) -> Observations:
    """Candidates, what is known of them, and their fate.

    documents  ids of prompt and answer, and the length of the prompt
    """
    seen = [
        some
        for ids, start in documents
        for some in _observe_one(target, head, store, ids, start, top_k, context_order)
    ]
    for position, some in enumerate(seen):
        some["position"] = position
    return np.concatenate(seen)


def _observe_one(
    target: TargetModel,
    head: DartHead,
    store: NgramStore,
    ids: list[int],
    start: int,
    top_k: int,
    context_order: int,
) -> Iterator[Observations]:
    aux = target.prefill(ids, target.new_cache(len(ids)), target.draft_layers).aux_hidden[None]
    embeddings = target.embed([*ids[1:], ids[-1]])[None]
    positions = torch.arange(len(ids))[None]
    context = ContextStore(context_order)
    context.append(ids[: start + 1])
    # Row i predicts token i + 2, so the first answer token drafted is the second one.
    anchors = torch.arange(start - 1, max(start - 1, len(ids) - 2))
    for some in anchors.split(_ANCHORS):
        logits = predictions(
            head, aux, embeddings, positions, torch.zeros_like(positions), some[None]
        )[0]  # [A, P + 1, Vd]
        best, draft_ids = logits.topk(min(top_k, logits.shape[-1]), dim=-1)
        log_p = (best.softmax(-1) + _EPSILON).log().numpy()
        tokens = head.draft_to_target[draft_ids].numpy()
        for row, anchor in enumerate(some.tolist()):
            known = anchor + 2  # tokens of the text when this is drafted
            context.append(ids[context.num_tokens : known])
            for level in range(min(logits.shape[1], len(ids) - known)):
                here = known + level
                seen = _observe_level(
                    store, context, ids, known, here, tokens[row, level], log_p[row, level]
                )
                seen["level"] = level
                yield seen


def _observe_level(
    store: NgramStore,
    context: ContextStore,
    ids: list[int],
    known: int,
    here: int,
    tokens: NDArray[np.int64],
    log_p: NDArray[np.float32],
) -> Observations:
    """What is known of the tokens that may stand at `here`, when `known` tokens are written."""
    order = np.argsort(tokens)
    matches = list(context.match(ids[known:here], tokens[order]))
    opened = [match for match in matches if match.index < 0]
    tokens = np.concatenate([tokens[order], [match.token for match in opened]]).astype(np.int64)
    seen = np.zeros(len(tokens), OBSERVATION)
    seen["log_p"][: len(order)] = log_p[order]
    seen["log_p"][len(order) :] = log_p.min()
    seen["is_opened"][len(order) :] = True
    q, seen["matched"] = store.probabilities(ids[:here], tokens)
    seen["log_q"] = np.log(q + _EPSILON)
    seen["log_context"] = np.log(_EPSILON)
    for place, match in enumerate(matches):
        at = match.index if match.index >= 0 else len(order) + place - (len(matches) - len(opened))
        seen["context_length"][at] = match.length
        seen["log_context"][at] = np.log(match.probability + _EPSILON)
    seen["is_accepted"] = tokens == ids[here]
    return seen


def fit(
    observed: Observations,
    *,
    levels: int,
    order: int,
    context_order: int,
    weights: NDArray[np.float64] | None = None,
) -> dict[str, AcceptanceModel]:
    """The models for all choices of n-gram sources.

    order, context_order  of the two stores
    weights               of the observations [R], about 1 in the mean; None: they are 1
    """
    if weights is None:
        weights = np.ones(len(observed))
    return {
        name: _fit_one(observed, weights, levels, has_store * order, has_context * context_order)
        for name, has_store, has_context in (
            ("static", True, False),
            ("context", False, True),
            ("both", True, True),
            ("none", False, False),
        )
    }


def _fit_one(
    observed: Observations,
    weights: NDArray[np.float64],
    levels: int,
    order: int,
    context_order: int,
) -> AcceptanceModel:
    """A logistic regression per level, drawn towards the head's own odds."""
    lengths = max(1, order)
    coefficients = np.zeros((levels, lengths, 3), np.float32)
    context = np.zeros((levels, context_order, 3), np.float32)
    prior = np.zeros(3 * lengths + 2 * max(0, context_order - 1) + (context_order > 0))
    prior[0 : 3 * lengths : 3] = -np.log(ODDS_SCALE)
    prior[1 : 3 * lengths : 3] = 1.0
    for level in range(levels):
        here = observed["level"] == level
        if context_order == 0:
            here &= ~observed["is_opened"]
        some = observed[here]
        features = _features(some, order, context_order)
        found = _logistic(features, some["is_accepted"], weights[here], prior)
        coefficients[level] = found[: 3 * lengths].reshape(lengths, 3)
        if context_order > 0:
            context[level, 1:, :2] = found[3 * lengths : -1].reshape(-1, 2)
            context[level, 1:, 2] = found[-1]
    return AcceptanceModel(coefficients, context if context_order > 0 else None)


def _features(some: Observations, order: int, context_order: int) -> NDArray[np.float64]:
    """What the coefficients are multiplied with, in their order: [R, F]."""
    matched = np.minimum(some["matched"], max(0, order - 1))
    log_odds = _log_odds(some)
    columns: list[NDArray[Any]] = []
    for length in range(max(1, order)):
        here = matched == length
        columns += [here, here * log_odds, here * some["log_q"] * (length > 0)]
    for length in range(1, context_order):
        here = some["context_length"] == length
        columns += [here, here * some["log_context"]]
    if context_order > 0:
        columns.append(some["is_opened"])
    return np.stack(columns, axis=1).astype(np.float64)


def _log_odds(some: Observations) -> NDArray[np.float32]:
    """Of the head's probabilities, as the search reads them."""
    return np.log(scaled_odds(np.exp(some["log_p"])) + np.float32(_EPSILON))


def _logistic(
    features: NDArray[Any],
    labels: NDArray[Any],
    weights: NDArray[Any],
    prior: NDArray[Any],
    pull: float = 2.0,
) -> NDArray[Any]:
    """Newton's method on the log-likelihood with a Gaussian prior of precision `pull`."""
    found = prior.copy()
    for _ in range(50):
        z = np.clip(features @ found, -30, 30)
        share = 1 / (1 + np.exp(-z))
        gradient = features.T @ (weights * (labels - share)) - pull * (found - prior)
        curvature = (features * (weights * share * (1 - share))[:, None]).T @ features
        curvature += pull * np.eye(len(prior))
        change = np.linalg.solve(curvature, gradient)
        found = found + change * min(1.0, 2.0 / (np.abs(change).max() + 1e-12))
        if np.abs(change).max() < 1e-7:
            break
    return found


def predicted(model: AcceptanceModel, observed: Observations) -> NDArray[np.float64]:
    """The model's probabilities for what was observed, as the search computes them."""
    level = observed["level"]
    lengths = model.coefficients.shape[1]
    matched = np.minimum(observed["matched"], lengths - 1)
    a, b, c = np.moveaxis(model.coefficients[level, matched].astype(np.float64), -1, 0)
    z = a + b * _log_odds(observed) + np.where(matched > 0, c * observed["log_q"], 0)
    if model.context is not None:
        length = np.minimum(observed["context_length"], model.context.shape[1] - 1)
        d, e, g = np.moveaxis(model.context[level, length].astype(np.float64), -1, 0)
        z += np.where(length > 0, d + e * observed["log_context"], 0) + g * observed["is_opened"]
    return 1 / (1 + np.exp(-np.clip(z, -30, 30)))
