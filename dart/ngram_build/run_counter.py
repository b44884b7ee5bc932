"""Token ids to sorted runs on disk."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dart import native
from dart.progress import Progress

if TYPE_CHECKING:
    from dart import _core
else:
    _core = native.core()

BYTES_PER_TOKEN = 12  # while a run is counted: the token, and its place beside the next one
PIECE_TOKENS = 1 << 20  # longer documents are counted in pieces


class RunCounter:
    """Counts documents; what memory does not hold becomes a run, and so does the rest at the end.

    memory     bytes, for one run at a time.
    progress   called while a run is counted; may raise to stop.
    """

    def __init__(
        self,
        order: int,
        folder: str | os.PathLike[str],
        memory: int,
        progress: Progress | None = None,
    ) -> None:
        self.runs: list[str] = []
        self.num_tokens = 0
        self._order, self._folder, self._progress = order, Path(folder), progress
        self._capacity = min(max(memory // BYTES_PER_TOKEN, 4 * order), 2**32 - 2 * PIECE_TOKENS)
        self._piece = min(PIECE_TOKENS, max(self._capacity // 4, 1))
        self._builder = _core.NgramBuilder(order, self._capacity)
        self._open: NDArray[np.int32] | None = None  # of a document that has not ended

    def add(self, ids: NDArray[np.int32], is_end: bool = True) -> None:
        """Count a document, int32 [n], or a piece of one: further ones follow until `is_end`.

        raises     ValueError for a negative id; CheckpointError if a run cannot be written.
        """
        if self._open is not None:
            ids = np.concatenate([self._open, ids])
        seen = self._order - 1  # tokens after a piece that its last n-grams reach into
        while len(ids) > self._piece + seen:
            self._add(ids[: self._piece + seen], self._piece)
            ids = ids[self._piece :]
        self._open = None if is_end else ids
        if is_end:
            self._add(ids, len(ids))

    def _add(self, piece: NDArray[np.int32], starts: int) -> None:
        if self._builder.size + len(piece) + 1 > self._capacity:
            self.write_run()
        self._builder.add_piece(piece, starts)

    def write_run(self) -> None:
        """Leave what has been counted so far on disk."""
        if self._builder.num_tokens == 0:
            return
        path = str(self._folder / uuid.uuid4().hex)
        self._builder.write_run(path, progress=self._progress)
        self.num_tokens += self._builder.num_tokens
        self._builder.clear()
        self.runs.append(path)
