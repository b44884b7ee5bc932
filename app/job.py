"""One text as the chat and the API see it: a race of one, looked at as text."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from app.pieces import DRAFT, NGRAM, PieceStream
from app.race import Batches, Race
from app.views import encode_pieces
from dart.stats import RunStatistics


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A job at one moment.

    state    "waiting", "prefill", "decoding" or "finished"
    text     the text so far; encoded  the same for the token pane, growing by appending only
    reason   None until finished; then "eos", "length", "stopped" or "error"
    error    what to tell the visitor, None where nothing went wrong
    wall     seconds from the first token to the last, the decoder's and everything else's
    """

    state: str
    text: str
    encoded: str
    statistics: dict[str, Any]
    reason: str | None = None
    error: str | None = None
    wall: float = 0.0


class Job(Race):
    """Decodes one text with one decoder; what comes of it is turned into text by who looks."""

    def __init__(
        self, decoder: str, batches: Batches, tokenizer: Any, lock: threading.Lock
    ) -> None:
        self._pieces = PieceStream(tokenizer)
        self._guard = threading.Lock()  # the page's generator and its last event may both look
        self._seen = 0
        self._text: list[str] = []
        self._encoded: list[str] = []
        self._statistics = RunStatistics()
        self._wall = 0.0
        self._end_of_text: tuple[str, str | None] | None = None
        super().__init__([decoder], batches, lock)

    def snapshot(self) -> Snapshot:
        """The job as it is now."""
        with self._guard:
            state = self.state  # before the records: a job that is over has all of them
            self._catch_up()
            if state == "running":
                state = "decoding" if self._statistics.tokens else "prefill"
            reason, error = self._end_of_text or (None, None)
            return Snapshot(
                state=state,
                text="".join(self._text),
                encoded="".join(self._encoded),
                statistics=summary(self._statistics),
                reason=reason if state == "finished" else None,
                error=error,
                wall=self._wall,
            )

    def result(self) -> dict[str, Any]:
        """What the API answers; the names are those of `python -m dart generate --json`."""
        last = self.snapshot()
        return {"text": last.text, **self._statistics.as_dict(), "finish_reason": last.reason}

    def _catch_up(self) -> None:
        new = self.records[self._seen :]
        self._seen += len(new)
        for record in new:
            if record.step is None:
                self._end_of_text = (record.reason or "stopped", record.error)
                continue
            pieces = self._pieces.push(record.step)
            self._text.extend(piece.text for piece in pieces)
            # The chat's two marks: drafted or not.
            marks = [(DRAFT if p.source == NGRAM else p.source, p.text) for p in pieces]
            self._encoded.append(encode_pieces(marks))
            self._statistics.add(record.step)
            self._wall = record.wall - self.records[0].wall


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
