"""The race page: what a visitor asked for, how far it has come, and what each button does to it.

Plain functions and generators over a Visit; race_tab.py gives them to Gradio.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, cast

from app.engine import Engine
from app.lanes import MODES, Mode
from app.pump import pump
from app.settings import DECODER_LABELS, RANGES, Settings, check_prompt
from app.trace import LiveTrace, header
from dart.errors import ConfigError, DartError

MAX_HZ = 10.0  # of the page: more would be paid by the decoders, through the interpreter's lock
WAITING = "Waiting for a turn: the model serves one visitor at a time."

_run_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Request:
    """A race as it was asked for, checked; `settings.decoder` means nothing here."""

    prompt: str
    decoders: tuple[str, ...]
    mode: Mode
    settings: Settings

    @classmethod
    def checked(cls, prompt: Any, decoders: Any, mode: Any, settings: Settings) -> Request:
        """From raw values; ConfigError names the one that cannot be run."""
        text = check_prompt(prompt)
        known = tuple(DECODER_LABELS)
        if not isinstance(decoders, Sequence) or isinstance(decoders, str) or not decoders:
            raise ConfigError("Choose at least one decoder to run.")
        unknown = [name for name in decoders if name not in known]
        if unknown:
            raise ConfigError(f"decoder is {unknown[0]!r}; expected some of {', '.join(known)}.")
        if mode not in MODES:
            raise ConfigError(f"mode is {mode!r}; expected {' or '.join(MODES)}.")
        # The trace holds every tree, and a browser must hold the trace.
        least, most = RANGES["max_tokens"]
        if not least <= settings.max_tokens <= most:
            raise ConfigError(
                f"max tokens is {settings.max_tokens}; a race takes {least} to {most}."
            )
        in_pane_order = tuple(name for name in known if name in decoders)
        return cls(text, in_pane_order, cast(Mode, mode), settings)


class Visit:
    """One visitor's race, kept on the server and changed in place by the handlers."""

    # No dataclass: Gradio would put the fields of one into the page.
    def __init__(self) -> None:
        self.number = 0
        self.request: Request | None = None
        self.trace: LiveTrace | None = None
        self.is_busy = False  # from the click until the race is settled
        self.note = ""

    def view(self) -> dict[str, Any]:
        """Value of the race's part of the page."""
        # The state before the lines: a race that is over has all of them.
        if self.trace is not None:
            state = self.trace.race.state
        elif self.is_busy:
            state = "waiting"
        else:
            state = "finished" if self.number else "idle"
        lines = self.trace.lines() if self.trace is not None else ""
        note = WAITING if state == "waiting" else self.note
        return {"run": self.number, "state": state, "lines": lines, "note": note}


class RaceHandlers:
    """What the page's events do. All raise DartError, whose message is for the visitor."""

    def __init__(self, engine: Engine, hz: float = MAX_HZ) -> None:
        self._engine = engine
        self._hz = min(hz, MAX_HZ)

    def prepare(self, visit: Visit, request: Request) -> None:
        """Take the place of the race before; the new one waits for its turn.

        Panes that nothing can run are left out with a word, as long as others remain: a page that
        has just opened offers them all.
        """
        if visit.is_busy:
            raise ConfigError("A race is on: stop it first, or wait.")
        able = self._engine.loaded.model.decoders  # raises while there is no model
        missing = [DECODER_LABELS[name] for name in request.decoders if name not in able]
        running = tuple(name for name in request.decoders if name in able)
        visit.number = next(_run_numbers)
        visit.request = replace(request, decoders=running or request.decoders)
        visit.trace, visit.is_busy = None, True
        visit.note = f"Left out, for want of a draft head: {', '.join(missing)}." if missing else ""

    def run(self, visit: Visit) -> Generator[dict[str, Any] | None]:
        """Run what was prepared; yields when there is something new to show, None else."""
        if visit.request is None:
            raise ConfigError("There is nothing to run.")
        trace = visit.trace = start(self._engine, visit.request)
        with closing(pump(trace.race, visit.view, self._hz, _size)) as views:
            yield from views
        raise_if_all_failed(trace)

    def halt(self, visit: Visit) -> None:
        """Let the race end after the step it is at; settle brings the rest in order."""
        if visit.trace is not None:
            visit.trace.race.stop.set()

    def settle(self, visit: Visit) -> bool:
        """Bring the race to its end, however it ended; whether there was one to end."""
        if not visit.is_busy:
            return False
        if visit.trace is not None:
            visit.trace.race.stop.set()
            visit.trace.race.join(5.0)
        visit.is_busy = False
        if visit.trace is None:
            visit.note = "The race was stopped before it began."
        return True


def _size(view: dict[str, Any]) -> int:
    return len(view["lines"])


def start(engine: Engine, request: Request) -> LiveTrace:
    """Begin a race and its trace."""
    loaded = engine.loaded
    message = {"role": "user", "content": request.prompt}
    ids, _ = engine.prompt_ids([message], request.settings.max_tokens)
    race = engine.start_race(ids, request.decoders, request.mode, request.settings)
    head = header(
        loaded, request.prompt, len(ids), request.decoders, request.mode, request.settings
    )
    return LiveTrace(race, head, loaded.model.tokenizer, engine.token_texts)


def raise_if_all_failed(trace: LiveTrace) -> None:
    """DartError with the first reason, where no decoder came to anything.

    One decoder's error stands in its pane; what all of them refuse is the request itself.
    """
    records = trace.race.records
    if records and all(record.step is None and record.error for record in records):
        raise DartError(records[0].error)
