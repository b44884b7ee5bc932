"""From a race to the page: at most so many looks a second, and none where nothing changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import TypeVar

from app.race import Race

MAX_PAUSE_SECONDS = 0.1  # Gradio can cancel a generator only between two of its yields
MAX_REST_SECONDS = 1.0  # after which a closed tab is noticed at the latest
JOIN_SECONDS = 5.0
# At every update Gradio's page writes the whole value out as JSON, several times, however little
# was added: 35 to 140 ms a million characters, in Chromium on two busy cores.
MAX_CHARACTERS_A_SECOND = 4e6

View = TypeVar("View")


def pump(
    race: Race,
    look: Callable[[], View],
    hz: float = 20.0,
    size: Callable[[View], int] = lambda _: 0,
) -> Generator[View | None]:
    """Views of the race, the first and the last always; None where nothing is new for a while.

    The page has no back-pressure: what comes too fast makes it lag by seconds. Closing the
    generator (stop, a closed tab) stops the race.

    hz    views a second at most
    size  characters of a view that may grow large; the larger, the fewer views a second
    """
    period = 1.0 / hz
    try:
        while True:
            seen, is_last = race.version, race.state == "finished"
            view = look()
            yield view
            if is_last:
                return
            # No None meanwhile: behind one, Gradio sends the whole value instead of what was added.
            # Stop is not held up by that: it ends the race, and so the rest.
            rest = min(size(view) / MAX_CHARACTERS_A_SECOND, MAX_REST_SECONDS) - period
            if rest > 0:
                race.wait_end(rest)
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
