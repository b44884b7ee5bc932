"""Types of the C++ module; arrays are C-contiguous and of exactly the dtype given."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dart.progress import Progress

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

class NgramStore:
    """A memory-mapped n-gram store."""

    @staticmethod
    def open(path: str, residence: str = "mapped") -> NgramStore: ...
    @property
    def order(self) -> int: ...
    @property
    def is_exact(self) -> bool: ...
    @property
    def num_nodes(self) -> int: ...
    @property
    def num_bytes(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    def probabilities(self, context: Ints, tokens: Ints) -> tuple[Floats, Ints]: ...
    def count(self, ngram: Ints) -> int: ...
    def level_sizes(self) -> list[tuple[int, int, int, int, int, bool]]: ...
    def verify(self) -> None: ...

class ContextStore:
    """Counts of the n-grams of one growing text."""

    def __init__(self, order: int) -> None: ...
    @property
    def order(self) -> int: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def num_nodes(self) -> int: ...
    def append(self, tokens: Ints) -> None: ...
    def match(self, path: Ints, candidates: Ints) -> tuple[Ints, Ints, Ints, Floats]: ...

class NgramBuilder:
    """Counts n-grams of token sequences."""

    def __init__(self, order: int, capacity: int) -> None: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def size(self) -> int: ...
    def add(self, sequence: Ints) -> None: ...
    def add_piece(self, piece: Ints, starts: int) -> None: ...
    def write(self, path: str, *, exact: bool, bits: int, min_counts: list[int]) -> None: ...
    def write_run(self, path: str, *, progress: Progress | None) -> None: ...
    def clear(self) -> None: ...

def combine_runs(
    runs: list[str], order: int, destination: str, *, memory: int, progress: Progress | None
) -> None: ...
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
) -> None: ...
def join_level(
    parts: list[str], level: int, order: int, prefix: str, *, progress: Progress | None
) -> None: ...
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
) -> None: ...
def import_trie(
    source: str,
    destination: str,
    *,
    exact: bool,
    bits: int,
    memory: int,
    progress: Progress | None,
    notice: Callable[[str], None],
) -> None: ...
def time_lookups(
    store: NgramStore, contexts: Ints, candidates: Ints, rounds: int
) -> tuple[Doubles, Doubles, Doubles]: ...
def search_tree(
    topk_tokens: Ints,
    topk_probs: Floats,
    store: NgramStore | None,
    context: Ints,
    *,
    eos_tokens: list[int],
    tree_size: int,
    beam_width: int,
    ngram_weight: float,
    level_weights: Floats,
    logit_weights: Floats,
    acceptance: Floats | None,
    context_store: ContextStore | None,
    context_acceptance: Floats | None,
    min_score: float,
) -> tuple[Longs, Longs, Floats, Floats, Floats, Ints, Ints, Floats, Ints]: ...
