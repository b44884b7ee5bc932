"""Several decoders side by side in this process, in one thread.

A device that runs two decoders at once spoils both clocks. Here one step runs at a time, and it is
always that of the decoder that has used the least time so far: at every moment all have used the
same, up to one step.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from app.race import Batches, Record, unexpected
from dart.errors import DartError

if TYPE_CHECKING:
    from dart.decode import Step

log = logging.getLogger(__name__)

Mode = Literal["race", "back_to_back"]
MODES: tuple[Mode, ...] = ("race", "back_to_back")
Steps: TypeAlias = "Callable[[], Generator[Step, None, None]]"


class _Lane:
    """One decoder's place in the race."""

    def __init__(self, name: str, make: Steps) -> None:
        self.name = name
        self.busy = 0.0
        self.is_over = False
        self._make = make
        self._steps: Generator[Step, None, None] | None = None

    def advance(self, began: float) -> list[Record]:
        """Make one step; its record, the end's, or both."""
        records: list[Record] = []
        reason, error = None, None
        try:
            if self._steps is None:
                self._steps = self._make()
            step = next(self._steps, None)
            if step is not None:
                self.busy += sum(step.seconds.values())
                records.append(Record(self.name, time.perf_counter() - began, self.busy, step))
            reason = "stopped" if step is None else step.finish_reason
            if reason is not None:
                self.close()
        except DartError as problem:
            reason, error = "error", str(problem)
        except Exception as problem:
            # Whatever breaks, the page must hear of it and the others be served.
            log.exception("decoding with %s failed", self.name)
            reason, error = "error", unexpected(problem)
        if reason is not None:
            self.is_over = True
            wall = time.perf_counter() - began
            records.append(Record(self.name, wall, self.busy, None, reason, error))
        return records

    def close(self) -> None:
        """Free what the decoder holds."""
        if self._steps is not None:
            self._steps.close()


def decode(lanes: Mapping[str, Steps], mode: Mode = "race") -> Batches:
    """Decode with every lane; the batches of a Race, one for each step.

    lanes  by decoder, in pane order: makes the Steps
    mode   "race": the least busy decoder steps next; "back_to_back": one after another

    An error ends the decoder it comes from, and the others go on.
    """
    running = [_Lane(name, make) for name, make in lanes.items()]
    try:
        began = time.perf_counter()
        yield ()
        while running:
            lane = running[0] if mode == "back_to_back" else min(running, key=_busy)
            records = lane.advance(began)
            if lane.is_over:
                running.remove(lane)
            yield records
    finally:
        for lane in running:
            try:
                lane.close()
            except Exception:
                log.exception("closing %s failed", lane.name)


def _busy(lane: _Lane) -> float:
    return lane.busy
