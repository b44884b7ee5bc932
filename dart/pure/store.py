"""The n-gram store, read from a mapped file with numpy.

Layout, checks and messages are those of csrc/include/dart/ngram_format.h and ngram_store.h: opening
looks at the header only, and every index read from the file is checked when it is used.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dart.errors import CheckpointError, NgramFormatError
from dart.pure.elias_fano import EliasFano, Layout, bits_for, packed_words, unpack
from dart.pure.unavailable import needs_extension

MAGIC = b"DARTNGRM"
ENDIAN_MARK = 0x01020304
VERSION = 2
MAX_ORDER = 8
MAX_LEVEL_NODES = 2**40
MAX_UNIVERSE = 2**56
MAX_CODEBOOK = 2**32
HEADER_BYTES = 704
CHECKSUM_OFFSET = 48

_LEVEL = np.dtype(
    [
        *((name, "<u8") for name in ("node_count", "token_universe", "codebook_size")),
        *((name, "<u4") for name in ("is_remapped", "reserved")),
        *((name, "<u8") for name in ("tokens_offset", "children_offset", "values_offset")),
        *((name, "<u8") for name in ("tokens_checksum", "children_checksum", "values_checksum")),
    ]
)
_HEADER = np.dtype(
    [
        ("magic", "S8"),
        *((name, "<u4") for name in ("version", "endian_mark", "order", "value_kind")),
        ("vocab_size", "<u8"),
        ("root_count", "<i8"),
        *((name, "<u8") for name in ("file_bytes", "header_checksum", "reserved")),
        ("levels", _LEVEL, (MAX_ORDER,)),
    ]
)
_NONE = np.zeros(0, np.int64)

State = list[int | None]  # for each length, from 1, the node of the last tokens


@dataclass(frozen=True, slots=True)
class _LevelLayout:
    """How the sections of a level are made up."""

    tokens: Layout
    children: Layout | None  # none in the last level
    codebook_words: int
    code_bits: int
    value_words: int


class _Level:
    """The sections of one level, views of the file."""

    def __init__(
        self, data: mmap.mmap | bytes, record: np.void, layout: _LevelLayout, is_exact: bool
    ) -> None:
        self.nodes = int(record["node_count"])
        self.is_remapped = bool(record["is_remapped"])
        self.tokens = EliasFano(data, int(record["tokens_offset"]), layout.tokens)
        self.children = None
        if layout.children is not None:
            self.children = EliasFano(data, int(record["children_offset"]), layout.children)
        values = int(record["values_offset"])
        self.codebook_size = int(record["codebook_size"])
        self.codebook = np.frombuffer(
            data, "<u8" if is_exact else "<f4", self.codebook_size, values
        )
        words = layout.value_words - layout.codebook_words
        self._codes = np.frombuffer(data, "<u8", words, values + 8 * layout.codebook_words)
        self._code_bits = layout.code_bits

    def codes(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where in the codebook the values of nodes are, unchecked."""
        return unpack(self._codes, self._code_bits, nodes.astype(np.uint64)).astype(np.int64)

    def find(
        self, begin: int, end: int, wanted: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which of the ascending codes the siblings begin to end - 1 have, and at what places."""
        values = self.tokens.values(max(begin - 1, 0), end)
        if begin > 0:  # children's values begin where those of the siblings before end
            values = values[1:] - (values[:1] + np.uint64(1))
        codes = wanted.astype(np.uint64)
        at = np.minimum(np.searchsorted(values, codes), len(values) - 1)
        found = np.flatnonzero(values[at] == codes)
        return found, at[found]


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
        self.order = int(header["order"])
        self.is_exact = bool(header["value_kind"] == 0)
        self._layouts = [_level_layout(header, depth) for depth in range(1, self.order + 1)]
        self._levels = [
            _Level(data, record, layout, self.is_exact)
            for record, layout in zip(header["levels"], self._layouts, strict=False)
        ]
        self.num_nodes = sum(level.nodes for level in self._levels)
        self.num_bytes = len(data)
        self.vocab_size = int(header["vocab_size"])
        self._root_count = int(header["root_count"])

    @staticmethod
    def open(path: str, residence: str = "mapped") -> NgramStore:
        """Map a file; CheckpointError where it cannot be read, NgramFormatError where it is odd.

        Whatever `residence` says, the system reads what is looked up: numpy is slower than that.
        """
        return NgramStore(path, _map_file(path))

    def level_sizes(self) -> list[tuple[int, int, int, int, int, bool]]:
        """Per level: nodes, bytes of tokens, children and values, bits per value, remapped."""
        return [
            (
                level.nodes,
                8 * layout.tokens.words,
                0 if layout.children is None else 8 * layout.children.words,
                8 * layout.value_words,
                layout.code_bits,
                level.is_remapped,
            )
            for level, layout in zip(self._levels, self._layouts, strict=True)
        ]

    def probabilities(
        self, context: Sequence[int] | NDArray[np.int32], tokens: NDArray[np.int32]
    ) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """As dart.ngram.NgramStore.probabilities."""
        state = self._state_after([int(token) for token in context])
        wanted, places = np.unique(np.maximum(tokens, -1), return_inverse=True)
        values = np.zeros(len(wanted), np.float32)
        matched = np.zeros(len(wanted), np.int32)
        first = int(np.searchsorted(wanted, 0))  # negative ones occur nowhere
        for length, candidates, nodes in self._follow(state, wanted[first:].astype(np.int64)):
            if length == 0 or len(nodes) == 0:
                continue
            found = self._probabilities(state, length, nodes)
            candidates = first + candidates[found > 0]
            values[candidates], matched[candidates] = found[found > 0], length
        return values[places], matched[places]

    def count(self, ngram: Sequence[int] | NDArray[np.int32]) -> int:
        """Occurrences of an n-gram, in an exact store; of the empty one, all tokens counted."""
        if len(ngram) == 0:
            return self._root_count
        if len(ngram) > self.order:
            return 0
        *context, last = (int(token) for token in ngram)
        node = self._ends_in(self._state_after(context), last)[len(context)]
        return 0 if node is None else int(self._values(len(ngram), np.array([node], np.int64))[0])

    def verify(self) -> None:
        """Raise ExtensionError."""
        needs_extension("Verifying a whole n-gram store")

    def _probabilities(
        self, state: State, length: int, children: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Of children of the state's last `length` tokens; 0 where they count as absent."""
        share = np.float32(1)
        if self.is_exact:
            context = np.array([state[length - 1]], np.int64)
            whole = self._values(length, context).astype(np.float32)[0]
            share = np.float32(1) / whole if whole > 0 else np.float32(0)
        values = self._values(length + 1, children).astype(np.float32) * share
        return np.where(values > 0, np.minimum(values, np.float32(1)), np.float32(0))

    def _values(self, depth: int, nodes: NDArray[np.int64]) -> NDArray[Any]:
        """What the codebook has for nodes."""
        level = self._levels[depth - 1]
        codes = level.codes(nodes)
        is_bad = codes >= level.codebook_size
        if is_bad.any():
            first = int(np.argmax(is_bad))
            expected = f"less than {level.codebook_size}"
            self._corrupt(f"level {depth} code of node {nodes[first]}", codes[first], expected)
        return level.codebook[codes]

    def _state_after(self, context: list[int]) -> State:
        state: State = [None] * self.order
        for token in context[max(len(context) - self.order + 1, 0) :]:
            state = self._ends_in(state, token)
        return state

    def _ends_in(self, state: State, token: int) -> State:
        """The n-grams that end in a token after the state's, by length from 1."""
        if token < 0:
            return [None] * self.order
        found = self._follow(state, np.array([token], np.int64))
        return [int(nodes[0]) if len(nodes) else None for _, _, nodes in found]

    def _follow(
        self, state: State, tokens: NDArray[np.int64]
    ) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
        """For every length of context: which of the ascending tokens follow it, and their nodes."""
        candidates = positions = _NONE
        for length, level in enumerate(self._levels):
            if not level.is_remapped:
                candidates, positions = np.arange(len(tokens)), tokens
            begin, node = 0, 0 if length == 0 else state[length - 1]
            found = positions = positions if node is not None else _NONE
            if node is not None and len(positions) > 0:
                begin, end = self._child_range(length, node)
                found, positions = (
                    level.find(begin, end, positions) if begin < end else (_NONE, _NONE)
                )
            candidates = candidates[found]
            yield length, candidates, begin + positions

    def _child_range(self, length: int, node: int) -> tuple[int, int]:
        """Half-open range of the children of a context in the next level."""
        if length == 0:
            return 0, self._levels[0].nodes
        sequence, limit = self._levels[length - 1].children, self._levels[length].nodes
        if sequence is None:
            return 0, 0
        ends = sequence.values(max(node - 1, 0), node + 1).tolist()
        begin, end = ends if node > 0 else (0, *ends)
        if not begin <= end <= limit:
            self._corrupt(
                f"level {length} child range of node {node}",
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
        if header["value_kind"] > 1:
            expected = "0 (exact) or 1 (quantised)"
            self._corrupt("kind of values", header["value_kind"], expected)
        if header["vocab_size"] > 2**31:
            self._corrupt("vocab_size", header["vocab_size"], "at most 2^31")
        self._check_levels(header)
        self._expect("file size", f"{len(data)} bytes", f"{header['file_bytes']} bytes")
        return header

    def _check_levels(self, header: np.void) -> None:
        """Sizes within their limits, and the sections where these put them: in one layout."""
        order = int(header["order"])
        for depth, record in enumerate(header["levels"][:order], start=1):
            nodes = int(record["node_count"])
            has_values = nodes > 0 and (depth > 1 or header["value_kind"] == 0)
            for what, name, least, most in (
                ("node count", "node_count", 0, MAX_LEVEL_NODES),
                ("token universe", "token_universe", nodes, MAX_UNIVERSE if nodes else 0),
                ("codebook size", "codebook_size", int(has_values), has_values * MAX_CODEBOOK),
                ("remapping", "is_remapped", 0, int(depth > 1)),
                ("reserved field", "reserved", 0, 0),
            ):
                if not least <= record[name] <= most:
                    self._corrupt(f"level {depth} {what}", record[name], f"{least}..{most}")
        at, is_consistent = HEADER_BYTES, []
        for depth, record in enumerate(header["levels"], start=1):
            if depth > order:
                is_consistent.append(not any(record.tolist()))
                continue
            layout = _level_layout(header, depth)
            is_there = True
            for section, words in (
                ("tokens", layout.tokens.words),
                ("children", None if layout.children is None else layout.children.words),
                ("values", layout.value_words),
            ):
                is_there &= record[f"{section}_offset"] == (0 if words is None else at)
                at += 8 * (words or 0)
            is_consistent.append(is_there)
        for depth, is_right in enumerate(is_consistent, start=1):
            if not is_right:
                expected = "the offset that follows from the sizes"
                self._corrupt(f"level {depth} section offset", "inconsistent", expected)
        self._expect("file_bytes", header["file_bytes"], at)

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


def _level_layout(header: np.void, depth: int) -> _LevelLayout:
    record = header["levels"][depth - 1]
    nodes, codebook_size = int(record["node_count"]), int(record["codebook_size"])
    children = None
    if depth < header["order"]:
        following = int(header["levels"][depth]["node_count"])
        children = Layout(nodes, following + 1 if nodes else 0, is_searched=False)
    codebook_words = -(-codebook_size * (8 if header["value_kind"] == 0 else 4) // 8)
    code_bits = bits_for(codebook_size)
    return _LevelLayout(
        Layout(nodes, int(record["token_universe"]), is_searched=True),
        children,
        codebook_words,
        code_bits,
        codebook_words + packed_words(nodes, code_bits),
    )
