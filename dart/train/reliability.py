"""How true probabilities of acceptance are: the fitted ones, and what stood there before.

Before: the head's probability, and upstream's score of a node less its parent's, which is the
logarithm of something that is at most 1. Neither was made to be a probability of acceptance; the
tree is chosen as if it were one.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dart.acceptance import AcceptanceModel
from dart.search import default_weights
from dart.train.calibrate import Observations, predicted

BINS = (0.0, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97, 1.01)
NGRAM_WEIGHT = 0.5  # upstream's
_LEAST = 1e-6  # a certainty that proves wrong costs ln of this, not infinity

Probabilities = NDArray[np.float64]


def head_probability(observed: Observations) -> Probabilities:
    """The head's own probability, among its best candidates."""
    return np.exp(observed["log_p"].astype(np.float64))


def upstream_probability(observed: Observations, sources: str) -> Probabilities:
    """What upstream's weights make of the head's and the n-grams' probability."""
    level = observed["level"]
    level_weights, logit_weights = default_weights(int(level.max(initial=0)) + 1)
    step = logit_weights[level] * observed["log_p"].astype(np.float64)
    log_q = {
        "static": observed["log_q"],
        "context": observed["log_context"],
        "both": np.maximum(observed["log_q"], observed["log_context"]),
        "none": np.zeros(len(observed), np.float32),
    }[sources]
    return np.exp(level_weights[level] * (step + NGRAM_WEIGHT * log_q * (level > 0)))


def figures(models: Mapping[str, AcceptanceModel], observed: Observations) -> dict[str, Any]:
    """By n-gram sources, each score read as a probability: how true it is.

    Only the head's candidates are compared, which every score can draft; what the context store
    opens beside them is in "opened", with the fitted score.
    """
    of_head = observed[~observed["is_opened"]]
    opened = observed[observed["is_opened"]]
    result: dict[str, Any] = {}
    for sources, model in models.items():
        scores = {
            "head": head_probability(of_head),
            "upstream": upstream_probability(of_head, sources),
            "fitted": predicted(model, of_head),
        }
        result[sources] = {name: _judge(share, of_head) for name, share in scores.items()}
        if model.context is not None:
            result[sources]["opened"] = {"bins": bins(predicted(model, opened), opened)}
    return result


def _judge(share: Probabilities, observed: Observations) -> dict[str, Any]:
    return {
        "log_loss": round(log_loss(share, observed), 4),
        "error": round(calibration_error(share, observed), 4),
        "top_error": round(top_error(share, observed), 4),
        "bins": bins(share, observed),
    }


def log_loss(share: Probabilities, observed: Observations) -> float:
    """Nats that the fates of a position's candidates cost, in the mean over the positions."""
    share = np.clip(share, _LEAST, 1 - _LEAST)
    lost = np.where(observed["is_accepted"], -np.log(share), -np.log1p(-share))
    return float(lost.sum() / max(1, len(np.unique(observed["position"]))))


def calibration_error(share: Probabilities, observed: Observations) -> float:
    """Gaps of the diagram added up: accepted tokens a position that some bin expects wrongly.

    The expected calibration error (Guo et al., arXiv 1706.04599) of all candidates, times their
    number a position, so that the many hopeless ones do not make every score look true.
    """
    return _gaps(bins(share, observed)) / max(1, len(np.unique(observed["position"])))


def top_error(share: Probabilities, observed: Observations) -> float:
    """Expected calibration error of each position's most probable candidate alone."""
    order = np.lexsort((-share, observed["position"]))
    first = np.unique(observed["position"][order], return_index=True)[1]
    best = order[first]
    return _gaps(bins(share[best], observed[best])) / max(1, len(best))


def _gaps(rows: Sequence[Mapping[str, float]]) -> float:
    return sum(row["candidates"] * abs(row["predicted"] - row["observed"]) for row in rows)


def bins(
    share: Probabilities, observed: Observations, edges: Sequence[float] = BINS
) -> list[dict[str, float]]:
    """Predicted and observed acceptance by bin of predicted probability, empty ones left out."""
    rows = []
    for low, high in itertools.pairwise(edges):
        inside = (share >= low) & (share < high)
        if inside.any():
            rows.append(
                {
                    "candidates": int(inside.sum()),
                    "predicted": round(float(share[inside].mean()), 4),
                    "observed": round(float(observed["is_accepted"][inside].mean()), 4),
                }
            )
    return rows
