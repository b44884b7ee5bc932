"""Fit the acceptance model of a DART head and an n-gram store.

The truth is the target's own text: behind every position of it, level by level, the head's
candidates after the true tokens so far, and whether the next true token is among them. That is
P(accepted | parent accepted), which is what the search adds up. The texts must not be among those
that the store has counted.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dart.acceptance import AcceptanceModel
from dart.dart_head import DartHead
from dart.ngram import NgramStore
from dart.target import TargetModel
from dart.train.dart import predictions

_EPSILON = 1e-10
BINS = (0.0, 0.01, 0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 0.95, 1.01)  # of predicted probability
_ANCHORS = 64  # positions drafted behind in one forward


@torch.inference_mode()
def observe(
    target: TargetModel,
    head: DartHead,
    store: NgramStore,
    documents: Iterable[tuple[list[int], int]],
    *,
    top_k: int,
) -> NDArray[np.float32]:
    """Candidates and their fate: rows (level, matched length, ln p, ln q, accepted) [R, 5].

    documents  ids of prompt and answer, and the length of the prompt
    """
    rows = [
        row
        for ids, start in documents
        for row in _observe_one(target, head, store, ids, start, top_k)
    ]
    return np.concatenate(rows)


def _observe_one(
    target: TargetModel, head: DartHead, store: NgramStore, ids: list[int], start: int, top_k: int
) -> Iterator[NDArray[np.float32]]:
    aux = target.prefill(ids, target.new_cache(len(ids)), target.draft_layers).aux_hidden[None]
    embeddings = target.embed([*ids[1:], ids[-1]])[None]
    positions = torch.arange(len(ids))[None]
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
            for level in range(min(logits.shape[1], len(ids) - anchor - 2)):
                here = anchor + 2 + level
                q, matched = store.probabilities(ids[:here], tokens[row, level])
                yield np.stack(
                    [
                        np.full(len(q), level),
                        matched,
                        log_p[row, level],
                        np.log(q + _EPSILON),
                        tokens[row, level] == ids[here],
                    ],
                    axis=1,
                ).astype(np.float32)


def fit(observed: NDArray[np.float32], *, levels: int, order: int) -> AcceptanceModel:
    """A logistic regression per level and matched length, each drawn towards its level's own."""
    coefficients = np.zeros((levels, order, 3), np.float32)
    for level in range(levels):
        of_level = observed[observed[:, 0] == level]
        prior = np.array([0.0, 1.0, 0.0])
        for length in range(order):
            some = of_level[of_level[:, 1] == length]
            features = np.stack([np.ones(len(some)), some[:, 2], some[:, 3]], axis=1)
            if length == 0:
                features[:, 2] = 0.0
            coefficients[level, length] = _logistic(features, some[:, 4], prior)
    return AcceptanceModel(coefficients)


def _logistic(
    features: NDArray[Any], labels: NDArray[Any], prior: NDArray[Any], pull: float = 2.0
) -> NDArray[Any]:
    """Newton's method on the log-likelihood with a Gaussian prior of precision `pull`."""
    weights = prior.copy()
    for _ in range(50):
        z = np.clip(features @ weights, -30, 30)
        share = 1 / (1 + np.exp(-z))
        gradient = features.T @ (labels - share) - pull * (weights - prior)
        curvature = (features * (share * (1 - share))[:, None]).T @ features + pull * np.eye(3)
        change = np.linalg.solve(curvature, gradient)
        weights = weights + change * min(1.0, 2.0 / (np.abs(change).max() + 1e-12))
        if np.abs(change).max() < 1e-7:
            break
    return weights


def reliability(
    model: AcceptanceModel, observed: NDArray[np.float32], edges: Sequence[float]
) -> list[dict[str, float]]:
    """Predicted and observed acceptance by bin of predicted probability."""
    level, length = observed[:, 0].astype(int), observed[:, 1].astype(int)
    a, b, c = np.moveaxis(model.coefficients[level, length], -1, 0)
    z = a + b * observed[:, 2] + np.where(length > 0, c * observed[:, 3], 0)
    predicted = 1 / (1 + np.exp(-np.clip(z, -30, 30)))
    bins = []
    for low, high in itertools.pairwise(edges):
        inside = (predicted >= low) & (predicted < high)
        if inside.any():
            bins.append(
                {
                    "candidates": int(inside.sum()),
                    "predicted": round(float(predicted[inside].mean()), 4),
                    "observed": round(float(observed[inside, 4].mean()), 4),
                }
            )
    return bins
