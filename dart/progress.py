"""How far a long job is, told on a stream: one line that is drawn over on a terminal, else lines.

Knows nothing of the job: it is called with a stage, what is done and what there is to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

# Told now and then (stage, done, total), both in the same unit, whichever; may raise to stop.
Progress = Callable[[str, float, float], None]
# Likewise, with a word about what was done last.
DetailedProgress = Callable[[str, float, float, str], None]

_REDRAW_SECONDS = 0.2  # on a terminal
_LINE_SECONDS = 10.0  # elsewhere, and whenever the stage changes after a second
_WIDTH = 78


class ProgressLine:
    """A Progress that writes `[ 42%] stage, 1:23 left`, then a detail where one is told.

    Leave its `with` block, or call `close`, to end the line. What a resumed job had done before
    does not count for its speed. A job that is over within a second leaves no trace but on a
    terminal.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._is_terminal = stream.isatty()
        self._first: tuple[float, float] | None = None  # when the job began, and how far it was
        self._last_time = float("-inf")
        self._last_stage = ""
        self._is_open = False  # the line on the terminal

    def __call__(self, stage: str, done: float, total: float, detail: str = "") -> None:
        """Tell it, unless that was done a moment ago."""
        now = self._clock()
        if self._first is None:
            self._first = (now, done)
        waited = now - max(self._last_time, self._first[0])
        if self._is_terminal:
            is_due = now - self._last_time >= _REDRAW_SECONDS
        else:
            is_due = waited >= (_LINE_SECONDS if stage == self._last_stage else 1.0)
        if not is_due:
            return
        self._last_time, self._last_stage = now, stage
        share = min(done / total, 1.0) if total > 0 else 1.0
        line = f"[{100 * share:3.0f}%] {stage}{self._left(now, done, total)}"
        line += f"; {detail}" if detail else ""
        if self._is_terminal:
            self._stream.write(f"\r{line[:_WIDTH]:<{_WIDTH}}")
            self._is_open = True
        else:
            self._stream.write(line + "\n")
        self._stream.flush()

    def _left(self, now: float, done: float, total: float) -> str:
        assert self._first is not None
        start, before = self._first
        if now - start < 1.0 or done <= before:
            return ""
        left = round((now - start) / (done - before) * max(total - done, 0.0))
        hours, minutes, seconds = left // 3600, left // 60 % 60, left % 60
        clock = f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
        return f", {clock} left"

    def close(self) -> None:
        """End the line, so that what follows begins a new one."""
        if self._is_open:
            self._stream.write("\n")
            self._stream.flush()
            self._is_open = False

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
