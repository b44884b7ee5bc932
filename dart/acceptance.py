"""The acceptance model: how probable it is that the target accepts a drafted token.

Fitted for one head and one n-gram store (dart/train/calibrate.py), kept beside the head's weights,
one model for each choice of n-gram sources. With it a node's score is the log of the probability
that its whole path is accepted, so the best tree of n nodes is that of the n best scores, and a
node that is not worth its place is known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dart.config import NGRAM_SOURCES
from dart.errors import CheckpointError
from dart.ngram import MAX_ORDER

FILE = "acceptance.json"
VERSION = 2  # of the file; 1 read probabilities where this one reads odds
ODDS_SCALE = 1e-3  # odds of 1000 and more are 1


@dataclass(frozen=True, eq=False)
class AcceptanceModel:
    """Coefficients of a logistic model per level and matched length.

    The target accepts a candidate behind an accepted parent with probability
    sigmoid(a + b ln(o + 1e-10) + c ln(q + 1e-10) + d + e ln(q' + 1e-10) + g): o are the odds of
    the head's probability (`scaled_odds`), q is the store's after a context of the matched length
    0 .. M - 1, q' the context store's after one of 0 .. N - 1. At length 0 there is no such term;
    g is for tokens not among the candidates. Odds, because a + b ln(p) ends at a: however sure the
    head is, such a model could not be.

    coefficients  float32 [L, M, 3]: a, b, c; M is 1 where the store is not read
    context       float32 [L, N, 3]: d, e, g; None where the context store is not read
    """

    coefficients: NDArray[np.float32]
    context: NDArray[np.float32] | None = None

    def fits(self, levels: int, order: int) -> bool:
        """Whether it was made for so many levels, and a store of this order (1: no store)."""
        return self.coefficients.shape[0] >= levels and self.coefficients.shape[1] == order

    @property
    def context_order(self) -> int:
        """Order of the context store it was made for, 0 for none."""
        return 0 if self.context is None else self.context.shape[1]


def scaled_odds(probabilities: NDArray[np.float32]) -> NDArray[np.float32]:
    """What the model reads of the head's probabilities: their odds by ODDS_SCALE, in 0..1."""
    scale = np.float32(ODDS_SCALE)
    p = np.minimum(probabilities, np.float32(1))
    return scale * p / (np.float32(1) - p + scale)


def load_acceptance(folder: Path) -> dict[str, AcceptanceModel]:
    """The models in a head's folder by n-gram sources; none where there is no file.

    raises  CheckpointError naming the file and what it should hold
    """
    path = folder / FILE
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["version"] != VERSION:
            raise ValueError(f"its version is {content['version']!r}, expected {VERSION}")
        known = {name: values for name, values in content.items() if name in NGRAM_SOURCES}
        return {name: _model(values, name in ("context", "both")) for name, values in known.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(
            f"{path} is no acceptance model: {error}. Fit it again (python -m dart train "
            "calibrate), or remove it: upstream's weights are used then."
        ) from error


def _model(values: Mapping[str, Any], has_context: bool) -> AcceptanceModel:
    coefficients = _coefficients(values["coefficients"])
    if not has_context:
        return AcceptanceModel(coefficients)
    context = _coefficients(values["context"])
    if len(context) != len(coefficients):
        raise ValueError("its two parts have different numbers of levels")
    return AcceptanceModel(coefficients, context)


def _coefficients(values: Any) -> NDArray[np.float32]:
    array = np.array(values, np.float32)
    is_shaped = array.ndim == 3 and array.shape[0] > 0 and array.shape[2] == 3
    if not is_shaped or not 1 <= array.shape[1] <= MAX_ORDER or not (np.abs(array) < 1e6).all():
        raise ValueError(
            f"it holds {list(array.shape)}, expected finite numbers [levels, matched lengths, 3] "
            f"with 1 to {MAX_ORDER} matched lengths"
        )
    return array


def save_acceptance(folder: Path, models: Mapping[str, AcceptanceModel]) -> None:
    """Write the models by n-gram sources to a head's folder."""
    content: dict[str, Any] = {"version": VERSION}
    content |= {
        name: {
            "coefficients": _rounded(model.coefficients),
            **({} if model.context is None else {"context": _rounded(model.context)}),
        }
        for name, model in models.items()
    }
    (folder / FILE).write_text(json.dumps(content) + "\n", encoding="utf-8")


def _rounded(values: NDArray[np.float32]) -> list[list[list[float]]]:
    return [[[float(f"{x:.5g}") for x in row] for row in level] for level in values]
