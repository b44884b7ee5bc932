"""The n-gram store: typed face of the core's store, builder and importer.

Knows paths, array conversions and nothing of what is inside a file; counting, lookups and every
check of a file are in csrc/. The file layout is in csrc/README.md.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dart import native
from dart.config import NGRAM_RESIDENCE
from dart.errors import ConfigError, DartError
from dart.ngram_build.config import (
    DEFAULT_MEMORY,
    MAX_ORDER,
    StoreConfig,
    available_cores,
    check_bits,
    check_memory,
    to_min_counts,
)
from dart.progress import Progress

if TYPE_CHECKING:
    from dart import _core
else:
    _core = native.core()

logger = logging.getLogger(__name__)

Tokens = Sequence[int] | NDArray[np.integer[Any]]

UNKNOWN_TOKEN = -1  # occurs in no store: stands for ids that do not fit into 32 bits


def to_token_array(tokens: ArrayLike, name: str) -> NDArray[np.int32]:
    """Convert ids to the C++ side's int32 [n] or [L, k]; ids beyond 32 bits become unknown.

    raises     ConfigError if the values are not integers.
    """
    array = np.asarray(tokens)
    if array.dtype == np.int32:
        return np.ascontiguousarray(array)
    if array.size == 0:
        return np.zeros(array.shape, np.int32)
    if array.dtype.kind not in "iu":
        raise ConfigError(f"{name} has values of type {array.dtype}, expected integer token ids")
    if array.dtype.itemsize >= 4:
        array = np.where((array >= 0) & (array < 2**31), array, UNKNOWN_TOKEN)
    return np.ascontiguousarray(array, dtype=np.int32)


@dataclass(frozen=True, slots=True)
class LevelSizes:
    """What the n-grams of one length take in the file: `tokens`, `children`, `values` in bytes."""

    nodes: int
    tokens: int
    children: int
    values: int
    value_bits: int  # per node; the codebook they point into comes on top
    is_remapped: bool  # tokens are numbered among those that follow the context's suffix


class NgramStore:
    """Probabilities of the next token after the longest known context; immutable, thread-safe.

    The file is memory-mapped: opening reads the header only, processes share the pages, and a
    pickled store carries its path, not its contents.
    """

    __slots__ = ("_path", "_residence", "core")

    def __init__(self, core: _core.NgramStore, path: str, residence: str = "mapped") -> None:
        self.core = core  # handed to the search
        self._path = path
        self._residence = residence

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, residence: str = "mapped") -> NgramStore:
        """Map a store file made by `build` or `import_trie`; none of the ways waits for the disk.

        residence  "mapped": the system reads the pages that are looked up, when they are, and no
                   others, for files much larger than what is asked of them; "preloaded": a thread
                   reads the file ahead, from its start, at most half as much as the machine has
                   memory; "locked": likewise, all of it, and it stays, which the system may forbid.
        raises     CheckpointError if there is no such file, it is a folder, or it may not be
                   locked; NgramFormatError if its header is damaged, of another version, or it is
                   an upstream .trie file; ConfigError for another word.
        """
        if residence not in NGRAM_RESIDENCE:
            raise ConfigError(
                f"residence is {residence!r}, expected one of {', '.join(NGRAM_RESIDENCE)}"
            )
        path = os.fspath(path)
        return cls(_core.NgramStore.open(path, residence), path, residence)

    @property
    def path(self) -> str:
        """The path it was opened from."""
        return self._path

    @property
    def order(self) -> int:
        """Length of the longest n-grams: order - 1 tokens of context and one candidate."""
        return self.core.order

    @property
    def is_exact(self) -> bool:
        """Whether it keeps counts; else it has probabilities rounded to a codebook per level."""
        return self.core.is_exact

    @property
    def num_nodes(self) -> int:
        """Distinct n-grams of every length from 1 to `order`."""
        return self.core.num_nodes

    @property
    def num_bytes(self) -> int:
        """Size of the file."""
        return self.core.num_bytes

    @property
    def vocab_size(self) -> int:
        """Largest token id + 1; 0 if the store is empty."""
        return self.core.vocab_size

    def probabilities(
        self, context: Tokens, tokens: Tokens
    ) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """Look candidates up after the longest context that was followed by them.

        context    preceding ids, the most recent last; any length, unknown ids and -1 allowed.
        tokens     n candidates; unknown and repeated ids allowed.
        returns    probability float32 [n] and the number of context tokens it is based on
                   int32 [n]; 0 and 0 where nothing matched.
        raises     NgramFormatError if a part of the file that is read proves damaged.
        source     float32(count) * (1 / float32(context count)), no smoothing, as in fvliang/DART;
                   a quantised store has the codebook's value nearest to it.
        """
        recent = to_token_array(context[-MAX_ORDER:], "context")
        return self.core.probabilities(recent, to_token_array(tokens, "tokens"))

    def counts(self, ngram: Tokens) -> int:
        """Occurrences of an n-gram, 0 if there are none; of the empty one, all tokens counted.

        raises     ConfigError if the store is quantised: it does not know.
        """
        if len(ngram) > 0 and not self.is_exact:
            raise ConfigError(
                f"{self._path} holds rounded probabilities, expected counts; build or import it "
                "with exact=True (--exact) to count n-grams"
            )
        return self.core.count(to_token_array(ngram, "ngram"))

    def level_sizes(self) -> list[LevelSizes]:
        """The file's make-up, from the header alone; entry n - 1 is of the n-grams of length n."""
        return [LevelSizes(*sizes) for sizes in self.core.level_sizes()]

    def verify(self) -> None:
        """Read the whole file and check every checksum and invariant.

        raises     NgramFormatError that names the first damage found; ExtensionError without
                   the C++ extension.
        """
        self.core.verify()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._path, self._residence)

    def __repr__(self) -> str:
        return f"NgramStore({self._path!r}, order={self.order}, num_nodes={self.num_nodes})"


def _reopen(path: str, residence: str) -> NgramStore:
    return NgramStore.open(path, residence=residence)


def import_trie(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    exact: bool = False,
    bits: int = 8,
    memory: int = DEFAULT_MEMORY,
    progress: Progress | None = None,
) -> NgramStore:
    """Convert an upstream `.trie` file, of any size, and open the result.

    destination  appears whole, when the source has been checked completely, or not at all.
    exact        keep the counts, so that probabilities are upstream's to the bit.
    bits         else: of each rounded probability, 2 to 8.
    memory       bytes that the import may add to the process's resident memory; a file that needs
                 more is taken apart in the folder `destination`.import, which takes about as much
                 room as the source. Stopped or killed, a second call goes on with what is there.
    progress     told how far it is.
    raises       CheckpointError (no such file, destination not writable, disk too small, another
                 process imports to the same place), NgramFormatError, ConfigError, ExtensionError,
                 and whatever `progress` raises.
    source       .trie layout as published with fvliang/DART.
    """
    check_bits(bits)
    check_memory(memory)
    _core.import_trie(
        os.fspath(source),
        os.fspath(destination),
        exact=exact,
        bits=bits,
        memory=memory,
        progress=progress,
        notice=logger.warning,
    )
    return NgramStore.open(destination)


def build(
    sequences: Iterable[Tokens],
    order: int,
    destination: str | os.PathLike[str],
    *,
    exact: bool = False,
    bits: int = 8,
    min_counts: int | Sequence[int] = 1,
    memory: int = DEFAULT_MEMORY,
) -> NgramStore:
    """Count every n-gram of length 1 to `order`, write a store and open it.

    sequences    ids per document, 0 or more each; no n-gram crosses from one to the next. Read
                 once. While memory suffices (12 + 40 * order bytes a token) no other file than
                 the destination is written, then some 4 * order bytes a token beside it.
    order        1 to 8.
    destination  written to a temporary file beside it and renamed.
    exact        keep the counts; else probabilities, rounded.
    bits         of each rounded probability, 2 to 8.
    min_counts   n-grams of length i + 1 that occur less than min_counts[i] times are left out
                 (one number: of any length). Probabilities are still of all occurrences.
    memory       bytes, besides those of a sequence; at least 64 MiB.
    raises       ConfigError for an order, a token, bits, counts or memory out of range;
                 CheckpointError if something cannot be written; ExtensionError without the C++
                 extension.
    source       windows at the end of a document are shorter and count too, as in fvliang/DART.
    """
    # Here: who only reads stores need not load what builds them.
    from dart.ngram_build.build import build_from_sequences
    from dart.ngram_build.local_engine import LocalEngine

    config = StoreConfig(order=order, min_counts=to_min_counts(min_counts), exact=exact, bits=bits)
    check_memory(memory)
    engine = LocalEngine(memory=memory, workers=available_cores(), tell=lambda *_: None)
    arrays = (to_token_array(sequence, "a sequence") for sequence in sequences)
    try:
        build_from_sequences(arrays, config, destination, engine)
    except DartError:
        raise
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return NgramStore.open(destination)
