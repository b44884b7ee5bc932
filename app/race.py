"""A race: what several decoders made of one prompt; the chat's answer is a race of one.

Decoding never waits for the page: yielding to Gradio from inside the loop costs a quarter of the
steps and spoils the clocks. A thread collects references to Steps; who shows them makes text of
them elsewhere, when it likes. Where they come from is not known here: lanes.py decodes in this
process, zero_gpu.py in another one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from dart.errors import DartError

if TYPE_CHECKING:
    from dart.decode import Step

log = logging.getLogger(__name__)

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


Batches: TypeAlias = Generator[Sequence[Record], None, None]


class Race:
    """Collects records while holding `lock`; starts at once.

    decoders  in pane order
    batches   their records, as they come. The first batch, which may be empty, says that decoding
              has begun; closing them ends it. Both happen on the race's thread
    lock      shared by all races of an engine: a model serves one at a time

    `stop` is looked at after each batch. However the batches end, every decoder has a last record
    with a reason. `records` only grows, and may be read at any time.
    """

    def __init__(self, decoders: Sequence[str], batches: Batches, lock: threading.Lock) -> None:
        self.stop = threading.Event()
        self.records: list[Record] = []
        self._decoders = tuple(decoders)
        self._lock = lock
        self._has_begun = False
        self._finished = threading.Event()
        self._news = threading.Event()
        # The batches are the thread's alone: what they hold is freed when it ends.
        self._thread = threading.Thread(
            target=self._run, args=(batches,), name="dart-decode", daemon=True
        )
        self._thread.start()

    @property
    def state(self) -> Literal["waiting", "running", "finished"]:
        """Waiting for its turn, running, or over; what comes after "finished" is nothing."""
        if self._finished.is_set():
            return "finished"
        return "running" if self._has_begun else "waiting"

    @property
    def version(self) -> int:
        """Grows with every change."""
        return len(self.records) + self._has_begun + self._finished.is_set()

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

    def _run(self, batches: Batches) -> None:
        reason, error = "stopped", None
        try:
            if self._take_lock():
                try:
                    self._collect(batches)
                finally:
                    self._lock.release()
        except DartError as problem:
            reason, error = "error", str(problem)
        except Exception as problem:
            log.exception("decoding failed")
            reason, error = "error", unexpected(problem)
        finally:
            self._end_all(reason, error)
            self._finished.set()
            self._tell()

    def _take_lock(self) -> bool:
        while not self.stop.is_set():
            if self._lock.acquire(timeout=_LOCK_POLL_SECONDS):
                return True
        return False

    def _collect(self, batches: Batches) -> None:
        with closing(batches):
            for batch in batches:
                if batch or not self._has_begun:
                    self._has_begun = True
                    self.records.extend(batch)
                    self._tell()
                if self.stop.is_set():
                    return

    def _end_all(self, reason: str, error: str | None) -> None:
        """Add an end for every decoder that has none."""
        latest = {record.decoder: record for record in self.records}
        wall = self.records[-1].wall if self.records else 0.0
        for name in self._decoders:
            last = latest.get(name)
            if last is None or last.reason is None:
                busy = 0.0 if last is None else last.busy
                self.records.append(Record(name, wall, busy, None, reason, error))

    def _tell(self) -> None:
        # Asked first: setting an event takes a lock, and this is done at every step.
        if not self._news.is_set():
            self._news.set()


def unexpected(problem: Exception) -> str:
    """What to tell the visitor of an error that is none of ours."""
    return f"Decoding failed ({type(problem).__name__}); the log has more."
