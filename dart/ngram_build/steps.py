"""The steps from documents to a store, as plain functions over files.

Each may run in a thread, in a process or on another machine that sees its files. What it writes
appears under its name when it is whole, so that what is there is done. Knows nothing of what is
inside a document, of order between steps, or of what is left to do.

A *run* is a file of records {order tokens int32, count uint32}, ascending: the windows of the next
`order` tokens from a place in the text, -1 after a document's end. A window may come in several
records; their counts add up. A *part* is the levels of a range of first tokens, three columns each.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dart import native
from dart.errors import ConfigError

if TYPE_CHECKING:
    from dart import _core
else:
    _core = native.core()

MAX_ORDER = 8
MAX_TOKEN = 2**31 - 1
RUN_BYTES_PER_TOKEN = 12  # while a run is counted: the token, and its place beside the next one
ENCODE_TEXTS = 256  # documents handed to the tokenizer at a time ...
ENCODE_CHARACTERS = 1 << 20  # ... unless they have this many characters together

Tokens = NDArray[np.int32]
Encode = Callable[[list[str]], Iterable[Tokens]]
Advance = Callable[[int], None]  # so many bytes of input, or records, more are done; may raise


class Shard(Protocol):
    """A part of the input that is read in one go; picklable."""

    @property
    def key(self) -> str:
        """What it is, for good: another text has another key."""
        ...

    @property
    def num_bytes(self) -> int:
        """About how much there is to read, for shares and progress."""
        ...

    def documents(self) -> Iterator[str]:
        """Its texts, always the same ones in the same order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What became of some documents: paths of runs, and how much is in them."""

    runs: list[str]
    documents: int
    tokens: int


def count_shards(
    shards: Iterable[Shard],
    encode: Encode,
    order: int,
    folder: str | os.PathLike[str],
    memory: int,
    advance: Advance | None = None,
) -> Counted:
    """Count the windows of all documents of some shards into sorted runs.

    encode     texts to the ids of each, int32 [n].
    folder     where the runs are written, under new names.
    memory     bytes for counting; the tokenizer's and one document's own come on top. Where the
               shards have more than memory / 12 tokens there are several runs.
    advance    is told of the bytes of the shards that have been read.
    raises     ConfigError for a negative token; CheckpointError if the folder cannot be written;
               what reading the shards raises.
    """
    raise NotImplementedError


def combine_runs(
    runs: Sequence[str],
    order: int,
    destination: str | os.PathLike[str],
    memory: int,
    advance: Advance | None = None,
) -> None:
    """Make one run of several, where there are too many to merge at a time."""
    raise NotImplementedError


def choose_ranges(runs: Sequence[str], order: int, parts: int) -> list[tuple[int, int]]:
    """Divide the first tokens into at most `parts` ranges with about the same work.

    returns    [begin, end) of each, ascending; together they are [0, 2^31). Never empty.
    """
    raise NotImplementedError


def merge_range(
    runs: Sequence[str],
    order: int,
    token_range: tuple[int, int],
    min_counts: Sequence[int],
    part: str | os.PathLike[str],
    memory: int,
    advance: Advance | None = None,
) -> None:
    """Merge the windows that begin with a token of a range into the levels of a part.

    min_counts  of n-grams of length i + 1 those that occur min_counts[i] times are kept; ascending.
    part        prefix of its files: level n is part + n + .tokens, .counts, .children.
    """
    raise NotImplementedError


def assemble(
    parts: Sequence[str],
    order: int,
    tokens: int,
    destination: str | os.PathLike[str],
    *,
    folder: str | os.PathLike[str],
    exact: bool,
    bits: int,
    memory: int,
    advance: Callable[[int, int, int], None] | None = None,
) -> None:
    """Join parts, ascending by their ranges, and encode them as a store.

    Takes up its own work where it was interrupted; the files of the parts are removed on the way.

    tokens     all that were counted.
    folder     where the joined levels are kept until the store is there.
    advance    is told the level, its nodes encoded so far and all its nodes; may raise.
    """
    raise NotImplementedError
