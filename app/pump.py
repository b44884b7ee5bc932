"""From a race to the page: at most so many looks a second, and none where nothing changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import TypeVar

from app.race import Race

MAX_PAUSE_SECONDS = 0.1  # Gradio can cancel a generator only between two of its yields
JOIN_SECONDS = 5.0

View = TypeVar("View")


def pump(race: Race, look: Callable[[], View], hz: float = 20.0) -> Generator[View | None]:
    """Views of the race, the first and the last always; None where nothing is new for a while.

    The page has no back-pressure: what comes too fast makes it lag by seconds. Closing the
    generator (stop, a closed tab) stops the race.
    """
    period = 1.0 / hz
    try:
        while True:
            seen, is_last = race.version, race.state == "finished"
            yield look()
            if is_last:
                return
            due = time.monotonic() + period
            # Before its time only the end is worth a look.
            while (early := due - time.monotonic()) > 0:
                if race.wait_end(min(early, MAX_PAUSE_SECONDS)):
                    break
                if early > MAX_PAUSE_SECONDS:
                    yield None
            while not race.wait(seen, MAX_PAUSE_SECONDS):
                yield None
    finally:
        race.stop.set()
        race.join(JOIN_SECONDS)
