"""What a store is to hold and what building it may take."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from dart.errors import ConfigError

MAX_ORDER = 8
MIN_BITS, MAX_BITS = 2, 8  # of a quantised probability
MIN_MEMORY = 64 << 20
DEFAULT_MEMORY = 4 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """All that decides about a store's bytes, given the text.

    min_counts  n-grams of length i + 1 that occur less than min_counts[i] times are left out; the
                last one holds for all longer ones
    exact       keep the counts; else probabilities, rounded to `bits`
    """

    order: int
    min_counts: tuple[int, ...] = (1,)
    exact: bool = False
    bits: int = 8

    def __post_init__(self) -> None:
        if not 1 <= self.order <= MAX_ORDER:
            raise ConfigError(f"order is {self.order}, expected 1 to {MAX_ORDER}")
        check_bits(self.bits)
        counts = self.min_counts
        shown = " ".join(map(str, counts))
        if not 1 <= len(counts) <= self.order:
            raise ConfigError(
                f"there are {len(counts)} minimal counts ({shown}), expected 1 to {self.order}: "
                "one for each length of n-grams, the last one for all longer ones"
            )
        if not counts[0] >= 1 or list(counts) != sorted(counts) or counts[-1] >= 2**63:
            raise ConfigError(
                f"the minimal counts are {shown}, expected 1 or more, none below the one before: "
                "what an n-gram begins and ends with must be kept with it"
            )

    def level_min_counts(self) -> list[int]:
        """One for each length from 1 to `order`."""
        missing = self.order - len(self.min_counts)
        return [*self.min_counts, *[self.min_counts[-1]] * missing]


def check_bits(bits: int) -> None:
    """Raise ConfigError unless probabilities can be rounded to so many bits."""
    if not MIN_BITS <= bits <= MAX_BITS:
        raise ConfigError(f"bits is {bits}, expected {MIN_BITS} to {MAX_BITS}")


def check_memory(memory: int) -> None:
    """Raise ConfigError if nothing can be built in so few bytes."""
    if memory < MIN_MEMORY:
        raise ConfigError(f"memory is {memory} bytes, expected {MIN_MEMORY} (64M) or more")


def check_workers(workers: int) -> None:
    """Raise ConfigError unless it is a number of threads."""
    if not 1 <= workers <= 1024:
        raise ConfigError(f"workers is {workers}, expected 1 to 1024")


def available_cores() -> int:
    """Cores this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1


def to_min_counts(counts: int | Sequence[int]) -> tuple[int, ...]:
    """One number or several as StoreConfig takes them."""
    return (counts,) if isinstance(counts, int) else tuple(counts)
