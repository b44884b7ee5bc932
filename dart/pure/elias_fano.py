"""Packed integers and Elias-Fano sequences, read with numpy.

Their layout is described in csrc/include/dart/bit_packed.h and elias_fano.h. Damaged bytes give
wrong values, the same as there, never more.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

HINT_SPACING = 128


def bits_for(count: int) -> int:
    """Bits that the values 0 to count - 1 need."""
    return max(count - 1, 0).bit_length()


def packed_words(count: int, width: int) -> int:
    """64-bit words that `count` values take."""
    bits = count * width
    return (bits + 63) // 64 + 1 if bits else 0


def unpack(
    words: NDArray[np.uint64], width: int, indices: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """The packed values at some places."""
    if width == 0 or len(indices) == 0:
        return np.zeros(len(indices), np.uint64)
    bits = indices * np.uint64(width)
    at, shift = (bits // 64).astype(np.int64), bits % 64
    # A shift by 64 is 0 here only in two steps.
    high = words[at + 1] << (np.uint64(63) - shift) << np.uint64(1)
    return (words[at] >> shift | high) & np.uint64(2**width - 1)


def unpack_one(words: NDArray[np.uint64], width: int, index: int) -> int:
    """The packed value at one place."""
    if width == 0:
        return 0
    at, shift = divmod(index * width, 64)
    return ((int(words[at + 1]) << 64 | int(words[at])) >> shift) & (2**width - 1)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the parts of a sequence of `count` values below `universe` lie, in words."""

    count: int
    universe: int
    is_searched: bool
    low_width: int = field(init=False, default=0)
    high_bits: int = field(init=False, default=0)
    one_hints: int = field(init=False, default=0)
    low: int = field(init=False, default=0)
    words: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if self.count == 0:
            return
        low_width = max(self.universe // self.count, 1).bit_length() - 1
        buckets = ((self.universe - 1) >> low_width) + 1
        high_bits = self.count + buckets
        one_hints = (high_bits + 63) // 64
        low = one_hints + _hint_words(self.count, high_bits)
        low += _hint_words(buckets, high_bits) if self.is_searched else 0
        words = low + packed_words(self.count, low_width)
        for name, value in (
            *(("low_width", low_width), ("high_bits", high_bits), ("one_hints", one_hints)),
            *(("low", low), ("words", words)),
        ):
            object.__setattr__(self, name, value)


def _hint_words(count: int, high_bits: int) -> int:
    return packed_words(-(-count // HINT_SPACING), bits_for(high_bits))


class EliasFano:
    """An ascending sequence of integers."""

    def __init__(self, data: mmap.mmap | bytes, offset: int, layout: Layout) -> None:
        self._layout = layout
        words = np.frombuffer(data, "<u8", layout.words, offset)
        self._bits = words[: layout.one_hints]
        self._hints, self._low = words[layout.one_hints : layout.low], words[layout.low :]

    def values(self, begin: int, end: int) -> NDArray[np.uint64]:
        """The values begin to end - 1."""
        if begin >= end:
            return np.zeros(0, np.uint64)
        indices = np.arange(begin, end, dtype=np.uint64)
        low_width = self._layout.low_width
        high = self._places(begin, end) - indices << np.uint64(low_width)
        return high | unpack(self._low, low_width, indices)

    def _places(self, begin: int, end: int) -> NDArray[np.uint64]:
        """Where the ones number begin to end - 1 lie; those that are missing, at the end."""
        places = np.full(end - begin, 64 * len(self._bits), np.uint64)
        high_bits = self._layout.high_bits
        first = unpack_one(self._hints, bits_for(high_bits), begin // HINT_SPACING)
        if first >= high_bits:
            return places
        skipped = begin % HINT_SPACING
        at, found, chunk = first // 64, 0, 8
        while at < len(self._bits) and found < len(places):
            bits = np.unpackbits(self._bits[at : at + chunk].view(np.uint8), bitorder="little")
            ones = np.flatnonzero(bits) + 64 * at
            ones = ones[ones >= first]
            wanted = ones[skipped : skipped + len(places) - found]
            skipped = max(skipped - len(ones), 0)
            places[found : found + len(wanted)] = wanted
            found += len(wanted)
            at, chunk = at + chunk, 2 * chunk
        return places
