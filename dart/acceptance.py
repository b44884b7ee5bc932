"""The acceptance model: how probable it is that the target accepts a drafted token.

Fitted for one head and one n-gram store (dart/train/calibrate.py), kept beside the head's weights.
With it a node's score is the log of the probability that its whole path is accepted, so the best
tree of n nodes is that of the n best scores, and a node that is not worth its place is known.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dart.errors import CheckpointError

FILE = "acceptance.json"


@dataclass(frozen=True, eq=False)
class AcceptanceModel:
    """Coefficients float32 [L, M, 3] of a logistic model per level and matched length.

    The target accepts a candidate behind an accepted parent with probability
    sigmoid(a + b ln(p + 1e-10) + c ln(q + 1e-10)): p is the head's, q the store's after a context
    of the matched length 0 .. M - 1; at length 0 there is no q and c means nothing.
    """

    coefficients: NDArray[np.float32]

    @classmethod
    def load(cls, folder: Path) -> AcceptanceModel | None:
        """The model in a head's folder, None where there is none.

        raises  CheckpointError naming the file and what it should hold
        """
        path = folder / FILE
        if not path.is_file():
            return None
        try:
            values = np.array(json.loads(path.read_text("utf-8"))["coefficients"], np.float32)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise CheckpointError(f"{path} is no acceptance model: {error}") from error
        if values.ndim != 3 or values.shape[2] != 3 or not (np.abs(values) <= 1e6).all():
            raise CheckpointError(
                f"{path} holds coefficients {list(values.shape)}; expected finite numbers "
                "[levels, matched lengths, 3]."
            )
        return cls(values)

    def save(self, folder: Path) -> None:
        """Write it to a head's folder."""
        rows = [[[float(f"{x:.6g}") for x in row] for row in level] for level in self.coefficients]
        lines = ",\n  ".join(json.dumps(level) for level in rows)
        (folder / FILE).write_text(f'{{"coefficients": [\n  {lines}\n]}}\n', encoding="utf-8")

    def fits(self, levels: int, order: int) -> bool:
        """Whether it was made for so many levels, and a store of this order."""
        return self.coefficients.shape[0] >= levels and self.coefficients.shape[1] == order
