"""From a job to the page: at most so many looks a second, and none where nothing changed."""

from __future__ import annotations

import time
from collections.abc import Generator

from app.job import Job, Snapshot

MAX_PAUSE_SECONDS = 0.1  # Gradio can cancel a generator only between two of its yields
JOIN_SECONDS = 5.0


def pump(job: Job, hz: float = 20.0) -> Generator[Snapshot | None]:
    """Snapshots of the job, the first and the last always; None where nothing is new for a while.

    The page has no back-pressure: what comes too fast makes it lag by seconds. Closing the
    generator (stop, a closed tab) stops the job.
    """
    period = 1.0 / hz
    try:
        shown = job.snapshot()
        yield shown
        due = time.monotonic() + period
        while shown.state != "finished":
            early = due - time.monotonic()
            # Before its time only the end is worth a look.
            if early > 0 and not job.wait_end(min(early, MAX_PAUSE_SECONDS)):
                if early > MAX_PAUSE_SECONDS:
                    yield None
                continue
            if job.wait(shown.version, MAX_PAUSE_SECONDS):
                shown = job.snapshot()
                due = time.monotonic() + period
                yield shown
            else:
                yield None
    finally:
        job.stop.set()
        job.join(JOIN_SECONDS)
