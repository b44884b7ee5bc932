"""One text being decoded in a thread of its own.

Decoding never waits for the page: yielding to Gradio from inside the loop costs a quarter of the
steps and spoils the clock. The thread leaves compact records; the page looks at them when it likes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from app.views import DRAFT, TARGET, encode_pieces
from dart.decode import Step
from dart.errors import DartError
from dart.stats import RunStatistics
from dart.text import TextStream

log = logging.getLogger(__name__)

_LOCK_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What the page needs of a Step: its text by source, already encoded for the token pane."""

    tokens: list[int]
    accept_length: int
    encoded: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A job at one moment.

    version  grows with every change
    state    "waiting", "prefill", "decoding" or "finished"
    text     the text so far; encoded  the same for the token pane, growing by appending only
    reason   None until finished; then "eos", "length", "stopped" or "error"
    error    what to tell the visitor, None where nothing went wrong
    wall     seconds since the first token, the decoder's and everything else's
    """

    version: int
    state: str
    text: str
    encoded: str
    statistics: dict[str, Any]
    reason: str | None = None
    error: str | None = None
    wall: float = 0.0


@dataclass
class _Progress:
    state: str = "waiting"
    version: int = 0
    reason: str | None = None
    error: str | None = None
    started: float | None = None  # when the prefill was done
    ended: float | None = None
    text: list[str] = field(default_factory=list)
    records: list[StepRecord] = field(default_factory=list)


class Job:
    """Decodes `steps()` while holding `lock`; starts at once.

    steps      makes the iterator of Steps, on the job's thread
    lock       shared by all jobs of an engine: a model decodes one text at a time
    """

    def __init__(
        self, steps: Callable[[], Iterator[Step]], tokenizer: Any, lock: threading.Lock
    ) -> None:
        self.stop = threading.Event()
        self._steps = steps
        self._text_stream = TextStream(tokenizer)
        self._lock = lock
        self._changed = threading.Condition()
        self._progress = _Progress()
        self._statistics = RunStatistics()
        self._thread = threading.Thread(target=self._run, name="dart-decode", daemon=True)
        self._thread.start()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the thread's end; whether it has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def wait(self, seen: int, timeout: float) -> bool:
        """Wait until there is something newer than version `seen`; whether there is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._progress.version > seen, timeout)

    def wait_end(self, timeout: float) -> bool:
        """Wait for the last change there will be; whether it has come."""
        with self._changed:
            return self._changed.wait_for(lambda: self._progress.state == "finished", timeout)

    def snapshot(self) -> Snapshot:
        """The job as it is now."""
        with self._changed:
            now = self._progress
            until = now.ended if now.ended is not None else time.perf_counter()
            return Snapshot(
                version=now.version,
                state=now.state,
                text="".join(now.text),
                encoded="".join(record.encoded for record in now.records),
                statistics=summary(self._statistics),
                reason=now.reason,
                error=now.error,
                wall=until - now.started if now.started is not None else 0.0,
            )

    def result(self) -> dict[str, Any]:
        """What the API answers; the names are those of `python -m dart generate --json`."""
        with self._changed:
            figures = self._statistics.as_dict()
            text = "".join(self._progress.text)
            return {"text": text, **figures, "finish_reason": self._progress.reason}

    def _run(self) -> None:
        reason, error = "stopped", None
        try:
            if self._take_lock():
                try:
                    reason = self._decode()
                finally:
                    self._lock.release()
        except DartError as problem:
            reason, error = "error", str(problem)
        except Exception as problem:
            # Whatever breaks, the page must hear of it and the next visitor be served.
            log.exception("decoding failed")
            reason = "error"
            error = f"Decoding failed ({type(problem).__name__}); the log has more."
        self._finish(reason, error)

    def _take_lock(self) -> bool:
        while not self.stop.is_set():
            if self._lock.acquire(timeout=_LOCK_POLL_SECONDS):
                return True
        return False

    def _decode(self) -> str:
        self._update(state="prefill")
        reason = None
        with closing(self._steps()) as steps:  # type: ignore[type-var]
            for step in steps:
                self._record(step)
                reason = step.finish_reason
                if self.stop.is_set():
                    break
        return reason or "stopped"

    def _record(self, step: Step) -> None:
        pieces = []
        # Token by token, so that every piece of text has one source.
        for index, token in enumerate(step.tokens):
            source = DRAFT if index < step.accept_length else TARGET
            pieces.append((source, self._text_stream.push([token])))
        with self._changed:
            if self._progress.started is None:
                self._progress.started = time.perf_counter()
            self._statistics.add(step)
            self._append(pieces, step.tokens, step.accept_length)
            self._progress.state = "decoding"
            self._progress.version += 1
            self._changed.notify_all()

    def _append(self, pieces: list[tuple[str, str]], tokens: list[int], accept_length: int) -> None:
        self._progress.text.extend(text for _, text in pieces)
        self._progress.records.append(StepRecord(tokens, accept_length, encode_pieces(pieces)))

    def _finish(self, reason: str, error: str | None) -> None:
        rest = self._text_stream.flush()
        with self._changed:
            if rest:
                self._append([(TARGET, rest)], [], 0)
            self._progress.ended = time.perf_counter()
        self._update(state="finished", reason=reason, error=error)

    def _update(self, **changes: Any) -> None:
        with self._changed:
            for name, value in changes.items():
                setattr(self._progress, name, value)
            self._progress.version += 1
            self._changed.notify_all()


def summary(statistics: RunStatistics) -> dict[str, Any]:
    """The numbers of a run as plain values that do not change any more."""
    return {
        "tokens": len(statistics.tokens),
        "steps": statistics.forwards,
        "tau": statistics.tau,
        "tokens_per_second": statistics.tokens_per_second,
        "histogram": statistics.histogram,
        "seconds": dict(statistics.seconds),
    }
