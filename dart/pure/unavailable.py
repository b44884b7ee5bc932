"""What only the compiled core can do, as one error."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from dart.errors import ExtensionError
from dart.progress import Progress


def needs_extension(what: str) -> NoReturn:
    """Raise ExtensionError: `what` (the start of a sentence) cannot be done here."""
    raise ExtensionError(
        f"{what} needs the C++ extension, which is not here; expected it in the package, or "
        "pybind11 and a C++20 compiler to make it with. Install a compiler (Debian and Ubuntu: "
        "apt install g++) and start again, or do this on another machine."
    )


class NgramBuilder:
    """Stands in the place of the compiled builder and refuses."""

    def __init__(self, order: int, capacity: int) -> None:
        needs_extension("Building an n-gram store")


def combine_runs(
    runs: list[str], order: int, destination: str, *, memory: int, progress: Progress | None
) -> None:
    """Raise ExtensionError."""
    needs_extension("Building an n-gram store")


def merge_runs(
    runs: list[str],
    order: int,
    begin: int,
    end: int,
    min_counts: list[int],
    prefix: str,
    *,
    memory: int,
    progress: Progress | None,
) -> None:
    """Raise ExtensionError."""
    needs_extension("Building an n-gram store")


def join_level(
    parts: list[str], level: int, order: int, prefix: str, *, progress: Progress | None
) -> None:
    """Raise ExtensionError."""
    needs_extension("Building an n-gram store")


def encode_levels(
    prefix: str,
    order: int,
    num_tokens: int,
    destination: str,
    *,
    exact: bool,
    bits: int,
    memory: int,
    progress: Progress | None,
) -> None:
    """Raise ExtensionError."""
    needs_extension("Building an n-gram store")


def import_trie(
    source: str,
    destination: str,
    *,
    exact: bool,
    bits: int,
    memory: int,
    progress: Progress | None,
    notice: Callable[[str], None],
) -> None:
    """Raise ExtensionError."""
    needs_extension("Importing a .trie file")


def time_lookups(store: object, contexts: object, candidates: object, rounds: int) -> NoReturn:
    """Raise ExtensionError."""
    needs_extension("Timing lookups")
