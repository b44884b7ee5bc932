"""The n-gram store, read from a mapped file with numpy.

Layout, checks and messages are those of csrc/include/dart/ngram_format.h and ngram_store.h: opening
looks at the header only, and every index read from the file is checked when it is used.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from dart.errors import CheckpointError, NgramFormatError
from dart.pure.unavailable import needs_extension

MAGIC = b"DARTNGRM"
ENDIAN_MARK = 0x01020304
VERSION = 1
MAX_ORDER = 8
MAX_LEVEL_NODES = 0xFFFFFFFE
HEADER_BYTES = 576
CHECKSUM_OFFSET = 48

_LEVEL = np.dtype(
    [
        (name, "<u8")
        for name in (
            *("node_count", "tokens_offset", "counts_offset", "children_offset"),
            *("tokens_checksum", "counts_checksum", "children_checksum", "reserved"),
        )
    ]
)
_HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("version", "<u4"),
        ("endian_mark", "<u4"),
        ("order", "<u4"),
        ("reserved", "<u4"),
        ("vocab_size", "<u8"),
        ("root_count", "<i8"),
        ("file_bytes", "<u8"),
        ("header_checksum", "<u8"),
        ("reserved2", "<u8"),
        ("levels", _LEVEL, (MAX_ORDER,)),
    ]
)


@dataclass(frozen=True, slots=True)
class _Level:
    """Arrays of one level, views of the file; `children` is empty in the last one."""

    tokens: NDArray[np.int32]
    counts: NDArray[np.uint32]
    children: NDArray[np.uint32]


class NgramStore:
    """Immutable; may be read by several threads at once."""

    def __init__(self, path: str, data: mmap.mmap | bytes) -> None:
        self._path = path
        if _looks_like_trie(data):
            raise NgramFormatError(
                f"{path}: format is an upstream .trie file, expected an n-gram store file; "
                f"import it first: python -m dart ngram import {path} DESTINATION"
            )
        header = self._read_header(data)
        self._levels = self._map_levels(data, header)
        self.order = int(header["order"])
        self.num_nodes = sum(len(level.tokens) for level in self._levels)
        self.num_bytes = len(data)
        self.vocab_size = int(header["vocab_size"])
        self._root_count = int(header["root_count"])

    @staticmethod
    def open(path: str) -> NgramStore:
        """Map a file; CheckpointError where it cannot be read, NgramFormatError where it is odd."""
        return NgramStore(path, _map_file(path))

    def probabilities(
        self, context: Sequence[int] | NDArray[np.int32], tokens: NDArray[np.int32]
    ) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """As dart.ngram.NgramStore.probabilities."""
        values = np.zeros(len(tokens), np.float32)
        matched = np.zeros(len(tokens), np.int32)
        recent = [int(token) for token in context[-(self.order - 1) :]] if self.order > 1 else []
        for length in range(len(recent), 0, -1):
            node = self._find(recent[-length:])
            if node is None:
                continue
            begin, end = self._child_range(length, node)
            context_count = self._levels[length - 1].counts[node]
            if begin == end or context_count == 0:
                continue
            children = self._levels[length].tokens[begin:end]
            at = np.minimum(np.searchsorted(children, tokens), end - begin - 1)
            counts = self._levels[length].counts[begin + at]
            found = (children[at] == tokens) & (counts > 0) & (matched == 0)
            quotients = counts.astype(np.float32) * (np.float32(1) / np.float32(context_count))
            values[found] = np.minimum(quotients[found], np.float32(1))
            matched[found] = length
        return values, matched

    def count(self, ngram: Sequence[int] | NDArray[np.int32]) -> int:
        """Occurrences of an n-gram; of the empty one, all tokens counted."""
        if len(ngram) == 0:
            return self._root_count
        node = self._find([int(token) for token in ngram]) if len(ngram) <= self.order else None
        return 0 if node is None else int(self._levels[len(ngram) - 1].counts[node])

    def verify(self) -> None:
        """Raise ExtensionError."""
        needs_extension("Verifying a whole n-gram store")

    def _find(self, ngram: Sequence[int]) -> int | None:
        """The n-gram's index in its level, None where it does not occur."""
        begin, end, node = 0, len(self._levels[0].tokens), 0
        for depth, token in enumerate(ngram):
            if depth > 0:
                begin, end = self._child_range(depth, node)
            siblings = self._levels[depth].tokens[begin:end]
            at = int(np.searchsorted(siblings, token))
            if token < 0 or at == len(siblings) or siblings[at] != token:
                return None
            node = begin + at
        return node

    def _child_range(self, depth: int, node: int) -> tuple[int, int]:
        """Half-open range of a node's children in the next level."""
        begin, end = self._levels[depth - 1].children[node : node + 2].tolist()
        limit = len(self._levels[depth].tokens)
        if not begin <= end <= limit:
            self._corrupt(
                f"level {depth} child range of node {node}",
                f"{begin}..{end}",
                f"a rising range within 0..{limit}",
            )
        return begin, end

    def _read_header(self, data: mmap.mmap | bytes) -> np.void:
        if len(data) >= len(MAGIC) and data[: len(MAGIC)] != MAGIC:
            self._corrupt("magic", "not that of an n-gram store", MAGIC.decode())
        if len(data) < HEADER_BYTES:
            self._corrupt(
                "file size", f"{len(data)} bytes", f"at least a header of {HEADER_BYTES} bytes"
            )
        header = np.frombuffer(data, _HEADER, count=1)[0]
        if header["endian_mark"] != ENDIAN_MARK:
            expected = f"{ENDIAN_MARK} (little-endian)"
            self._corrupt("endian mark", header["endian_mark"], expected)
        self._expect("version", header["version"], VERSION)
        if not 1 <= header["order"] <= MAX_ORDER:
            self._corrupt("order", header["order"], f"1..{MAX_ORDER}")
        self._expect("header checksum", header["header_checksum"], _header_checksum(data))
        if header["vocab_size"] > 2**31:
            self._corrupt("vocab_size", header["vocab_size"], "at most 2^31")
        self._check_layout(header)
        self._expect("file size", f"{len(data)} bytes", f"{header['file_bytes']} bytes")
        return header

    def _check_layout(self, header: np.void) -> None:
        """The sections must lie where the node counts put them: there is one layout."""
        at, order = HEADER_BYTES, int(header["order"])
        for depth, record in enumerate(header["levels"], start=1):
            nodes = int(record["node_count"])
            if depth > order:
                is_consistent = not any(record.tolist())
            else:
                if nodes > MAX_LEVEL_NODES:
                    self._corrupt(f"level {depth} node count", nodes, f"at most {MAX_LEVEL_NODES}")
                is_consistent = True
                for section in ("tokens", "counts", "children")[: 3 if depth < order else 2]:
                    is_consistent &= record[f"{section}_offset"] == at
                    at += _padded(4 * (nodes + (section == "children")))
            if not is_consistent:
                self._corrupt(
                    f"level {depth} section offset",
                    "inconsistent",
                    "the offset that follows from the node counts",
                )
        self._expect("file_bytes", header["file_bytes"], at)

    def _map_levels(self, data: mmap.mmap | bytes, header: np.void) -> list[_Level]:
        levels, order = [], int(header["order"])
        for depth, record in enumerate(header["levels"][:order], start=1):
            nodes = int(record["node_count"])
            tokens = np.frombuffer(data, "<i4", nodes, int(record["tokens_offset"]))
            counts = np.frombuffer(data, "<u4", nodes, int(record["counts_offset"]))
            children = np.empty(0, np.uint32)
            if depth < order:
                children = np.frombuffer(data, "<u4", nodes + 1, int(record["children_offset"]))
            levels.append(_Level(tokens, counts, children))
        return levels

    def _expect(self, field: str, found: object, expected: object) -> None:
        if found != expected:
            self._corrupt(field, found, str(expected))

    def _corrupt(self, field: str, found: object, expected: str) -> NoReturn:
        raise NgramFormatError(
            f"{self._path}: {field} is {found}, expected {expected}; "
            "build the file again with `python -m dart ngram build` or `import`"
        )


def _map_file(path: str) -> mmap.mmap | bytes:
    def refuse(problem: str) -> NoReturn:
        raise CheckpointError(
            f"{path}: {problem}, expected an n-gram store file; give the path of a file made by "
            "`python -m dart ngram build` or `import`"
        )

    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        refuse(f"cannot be opened ({error.strerror})")
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            refuse("is a directory")
        if not stat.S_ISREG(mode):
            refuse("is not a regular file")
        if os.fstat(descriptor).st_size == 0:
            return b""  # cannot be mapped
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    except OSError as error:
        refuse(f"cannot be mapped ({error.strerror})")
    finally:
        os.close(descriptor)


def _looks_like_trie(data: mmap.mmap | bytes) -> bool:
    """Upstream's files have no magic: order, node count, then a size that follows from it."""
    if len(data) < 40:
        return False
    order, nodes = np.frombuffer(data, "<u8", 2).tolist()
    return 1 <= order <= 64 and 1 <= nodes <= len(data) // 24 and len(data) == 36 * nodes + 4


def _header_checksum(data: mmap.mmap | bytes) -> int:
    """Checksum of the header with its own field taken as 0."""
    header = bytearray(data[:HEADER_BYTES])
    header[CHECKSUM_OFFSET : CHECKSUM_OFFSET + 8] = bytes(8)
    state = 0x243F6A8885A308D3 ^ HEADER_BYTES
    for word in np.frombuffer(header, "<u8").tolist():
        state = ((state ^ word) * 0x9E3779B97F4A7C15) % 2**64
        state ^= state >> 29
    return state


def _padded(size: int) -> int:
    return (size + 7) // 8 * 8
