"""Where files are kept that can be made again, and who may make them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_LOCK_POLL_SECONDS = 0.2


def cache_folder() -> Path:
    """DART_CACHE, else ~/.cache/dart; it need not exist."""
    return Path(os.environ.get("DART_CACHE") or Path("~/.cache/dart").expanduser())


@contextmanager
def only_one(
    path: Path, *, seconds: float = float("inf"), on_wait: Callable[[], None] | None = None
) -> Iterator[None]:
    """Hold a lock file; it is free again when its holder is gone, however it went.

    A system without such locks (Windows) lets everybody in: files made under it must appear whole.

    on_wait  called once if another process holds it
    raises   TimeoutError where that one has held it for so many seconds; OSError
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    with path.open("w") as file:
        deadline = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise TimeoutError(f"{path} is held by another process") from error
            if on_wait is not None:
                on_wait()
                on_wait = None
            time.sleep(_LOCK_POLL_SECONDS)
        yield
