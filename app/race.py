"""Several decoders on one prompt and one thread; the chat's answer is a race of one.

Decoding never waits for the page: yielding to Gradio from inside the loop costs a quarter of the
steps and spoils the clocks. The thread leaves references to Steps; who shows them makes text of
them elsewhere, when it likes.

A device that runs two decoders at once spoils both clocks. Here one step runs at a time, and it is
always that of the decoder that has used the least time so far: at every moment all have used the
same, up to one step.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from dart.errors import DartError

if TYPE_CHECKING:
    from dart.decode import Step

log = logging.getLogger(__name__)

Mode = Literal["race", "back_to_back"]
MODES: tuple[Mode, ...] = ("race", "back_to_back")
Steps: TypeAlias = "Callable[[], Generator[Step, None, None]]"

_LOCK_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Record:
    """A step of one decoder, or the end of its text.

    wall    seconds since the race began
    busy    seconds on the decoder's own clock so far, the prefill's included
    step    None at the end
    reason  None while the text goes on; then "eos", "length", "stopped" or "error"
    error   what to tell the visitor where the reason is "error"
    """

    decoder: str
    wall: float
    busy: float
    step: Step | None = None
    reason: str | None = None
    error: str | None = None


class _Lane:
    """One decoder's place in the race."""

    def __init__(self, name: str, make: Steps) -> None:
        self.name = name
        self.busy = 0.0
        self._make = make
        self._steps: Generator[Step, None, None] | None = None

    def advance(self) -> Step | None:
        """The next step, None where there is none."""
        if self._steps is None:
            self._steps = self._make()
        step = next(self._steps, None)
        if step is not None:
            self.busy += sum(step.seconds.values())
        return step

    def close(self) -> None:
        """Free what the decoder holds."""
        if self._steps is not None:
            self._steps.close()


class Race:
    """Decodes with every lane while holding `lock`; starts at once.

    lanes  by decoder, in pane order: makes the Steps, on the race's thread
    lock   shared by all races of an engine: a model serves one at a time
    mode   "race": the least busy decoder steps next; "back_to_back": one after another

    An error ends the decoder it comes from, and the others go on. `stop` is looked at between two
    steps. `records` only grows, and may be read at any time.
    """

    def __init__(
        self, lanes: Mapping[str, Steps], lock: threading.Lock, mode: Mode = "race"
    ) -> None:
        self.stop = threading.Event()
        self.records: list[Record] = []
        self._lanes = [_Lane(name, make) for name, make in lanes.items()]
        self._lock = lock
        self._mode = mode
        self._began: float | None = None
        self._finished = threading.Event()
        self._news = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dart-decode", daemon=True)
        self._thread.start()

    @property
    def state(self) -> Literal["waiting", "running", "finished"]:
        """Waiting for its turn, running, or over; what comes after "finished" is nothing."""
        if self._finished.is_set():
            return "finished"
        return "waiting" if self._began is None else "running"

    @property
    def version(self) -> int:
        """Grows with every change."""
        return len(self.records) + (self._began is not None) + self._finished.is_set()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the thread's end; whether it has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def wait(self, seen: int, timeout: float) -> bool:
        """Wait until there is something newer than version `seen`; whether there is.

        For one thread at a time.
        """
        self._news.clear()
        if self.version == seen:
            self._news.wait(timeout)
        return self.version > seen

    def wait_end(self, timeout: float) -> bool:
        """Wait for the last change there will be; whether it has come. Steps wake nobody here."""
        return self._finished.wait(timeout)

    def _run(self) -> None:
        try:
            if self._take_lock():
                try:
                    self._decode()
                finally:
                    self._lock.release()
            for lane in self._lanes:
                self._end(lane, "stopped")
        finally:
            self._finished.set()
            self._tell()

    def _take_lock(self) -> bool:
        while not self.stop.is_set():
            if self._lock.acquire(timeout=_LOCK_POLL_SECONDS):
                return True
        return False

    def _decode(self) -> None:
        self._began = time.perf_counter()
        self._tell()
        lanes = self._lanes
        while lanes and not self.stop.is_set():
            lane = lanes[0] if self._mode == "back_to_back" else min(lanes, key=_busy)
            if not self._advance(lane):
                lanes.remove(lane)
        for lane in lanes:
            try:
                lane.close()
            except Exception:
                log.exception("closing %s failed", lane.name)

    def _advance(self, lane: _Lane) -> bool:
        """One step of a lane; whether its text goes on."""
        reason, error = None, None
        try:
            step = lane.advance()
            if step is not None:
                self._add(Record(lane.name, self._elapsed(), lane.busy, step))
            reason = "stopped" if step is None else step.finish_reason
            if reason is not None:
                lane.close()
        except DartError as problem:
            reason, error = "error", str(problem)
        except Exception as problem:
            # Whatever breaks, the page must hear of it and the others be served.
            log.exception("decoding with %s failed", lane.name)
            reason = "error"
            error = f"Decoding failed ({type(problem).__name__}); the log has more."
        if reason is not None:
            self._end(lane, reason, error)
        return reason is None

    def _end(self, lane: _Lane, reason: str, error: str | None = None) -> None:
        self._add(Record(lane.name, self._elapsed(), lane.busy, None, reason, error))

    def _elapsed(self) -> float:
        return 0.0 if self._began is None else time.perf_counter() - self._began

    def _add(self, record: Record) -> None:
        self.records.append(record)
        self._tell()

    def _tell(self) -> None:
        # Asked first: setting an event takes a lock, and this is done at every step.
        if not self._news.is_set():
            self._news.set()


def _busy(lane: _Lane) -> float:
    return lane.busy
