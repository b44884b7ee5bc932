"""Upstream-format `.trie` files as large as wanted: `python -m tests.synthetic_trie 5 big.trie`.

A text is drawn, not n-grams: parallel documents of a process of order 2 over Zipf-distributed
tokens. The file holds what upstream's builder would make of it: every n-gram up to length 3 with
its true count, ids in the order of first occurrence, children in no order. So suffixes exist and
frequencies have the shape of a text's. With the same number and seed it is the same file.

`--check STORE` compares a store imported from it with counts of n-grams of the same text, found by
scanning it. 5 GB are 145 million nodes and took 6.8 GB of memory and 20 minutes of a busy machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dart.ngram import NgramStore
from tests.reference.ngram import Counts

ORDER = 3
VOCABULARY = 1 << 17
LENGTH = 1000  # tokens of a document, its end included
NODES_PER_TOKEN = 0.78  # a little less than is found at 5 GB; more in smaller files
PIECE = 1 << 24  # windows counted at a time

Longs = NDArray[np.int64]


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread bits: a bijection of 64 bits (the finaliser of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def draw_text(documents: int, length: int, seed: int) -> NDArray[np.int32]:
    """Documents as rows, int32 [documents, length], each ending with token 0.

    A token follows from the two before it, from the one before it, or from nothing, by a quarter,
    a quarter and a half; what follows is one of few, the first of them mostly.
    """
    random = np.random.default_rng(seed)
    cumulative = np.cumsum(1.0 / np.arange(2.0, VOCABULARY + 1) ** 1.05)
    names = random.permutation(np.arange(1, VOCABULARY, dtype=np.int32))  # of the ranks
    scale = cumulative[-1] / 2.0**64
    text = np.zeros((documents, length), np.int32)
    columns = np.zeros((length, documents), np.int32)
    before = np.zeros((2, documents), np.uint64)
    for step in range(length - 1):
        kind = np.minimum(random.integers(0, 4, documents), 2)
        choice = random.geometric(0.25, documents).astype(np.uint64)
        key = np.where(kind == 0, before[0] + before[1] * np.uint64(VOCABULARY), before[0])
        drawn = mix(key * np.uint64(64) + choice + np.uint64(1 << 60) * kind.astype(np.uint64))
        drawn = np.where(kind == 2, random.integers(0, 2**64, documents, np.uint64), drawn)
        rank = np.searchsorted(cumulative, drawn.astype(np.float64) * scale)
        columns[step] = names[np.minimum(rank, VOCABULARY - 2)]
        before[1] = before[0]
        before[0] = columns[step]
    for start in range(0, documents, 4096):
        text[start : start + 4096] = columns[:, start : start + 4096].T
    return text


def windows(text: NDArray[np.int32], first: int, last: int) -> tuple[Longs, Longs]:
    """Keys and positions of the windows that begin with a token first .. last - 1.

    A key is three tokens, each + 1, in 18 bits; 0 where the document has ended.
    """
    length = text.shape[1]
    flat = text.reshape(-1)
    at = np.flatnonzero((flat >= first) & (flat < last))
    column = at % length
    key = (flat[at].astype(np.int64) + 1) << 36
    for ahead in (1, 2):
        there = column < length - ahead
        following = flat[np.minimum(at + ahead, len(flat) - 1)].astype(np.int64) + 1
        key |= np.where(there, following, 0) << (18 * (2 - ahead))
    return key, at


def ranges(text: NDArray[np.int32]) -> list[tuple[int, int]]:
    """Ranges of first tokens with about PIECE windows each."""
    ends = np.cumsum(np.bincount(text.reshape(-1), minlength=VOCABULARY))
    cuts = np.searchsorted(ends, np.arange(PIECE, ends[-1], PIECE)) + 1
    edges = np.unique(np.concatenate([[0], cuts, [VOCABULARY]]))
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))


def count_piece(key: Longs, at: Longs) -> list[tuple[Longs, Longs, Longs, Longs]]:
    """Per length the n-grams of sorted windows: first position, the parent's, token, count."""
    order = np.argsort(key, kind="stable")
    key, at = key[order], at[order]
    found = []
    starts = parents = np.zeros(0, np.int64)
    for length in range(1, ORDER + 1):
        prefix = key >> (18 * (ORDER - length))
        inside = np.flatnonzero(prefix & 0x3FFFF)  # not behind a document's end
        changes = np.flatnonzero(np.diff(prefix[inside], prepend=-1))
        if len(changes) == 0:
            break
        counts = np.diff(changes, append=len(inside))
        first = np.minimum.reduceat(at[inside], changes)
        begin = inside[changes]
        of = np.searchsorted(starts, begin, "right") - 1
        parent = parents[of] if length > 1 else np.full(len(first), -1)
        found.append((first, parent, (prefix[begin] & 0x3FFFF) - 1, counts))
        starts, parents = begin, first
    return found


def write_trie(text: NDArray[np.int32], path: Path) -> int:
    """Count the text and write the file; its number of nodes."""
    made = np.zeros(text.size, np.uint8)  # nodes whose first occurrence begins there
    depths = []
    with tempfile.TemporaryFile(dir=path.parent) as spool:
        for begin, end in ranges(text):
            for depth, piece in enumerate(count_piece(*windows(text, begin, end)), start=1):
                depths.append(depth)
                np.add.at(made, piece[0], 1)
                for values in piece:
                    np.save(spool, values.astype(np.int32))
        spool.seek(0)
        column = np.arange(text.size, dtype=np.uint32)
        column %= np.uint32(text.shape[1])
        deepest = np.minimum(ORDER, text.shape[1] - column).astype(np.uint8)
        del column
        # The deepest ones are new: depth d has the id of the position's last one, - deepest + d.
        last = np.cumsum(made, dtype=np.uint32)
        nodes = int(last[-1]) + 1
        last -= deepest
        del made, deepest
        token_of, count_of = np.zeros(nodes, np.int32), np.zeros(nodes, np.int32)
        parent_of = np.zeros(nodes, np.uint32)
        count_of[0] = text.size
        for depth in depths:
            first, parent, token, count = (np.load(spool) for _ in range(4))
            ids = last[first] + np.uint32(depth)
            token_of[ids], count_of[ids] = token, count
            if depth > 1:
                parent_of[ids] = last[parent] + np.uint32(depth - 1)
    del last
    write_records(path, token_of, parent_of, count_of)
    return nodes


def write_records(
    path: Path, token: NDArray[np.int32], parent: NDArray[np.uint32], count: NDArray[np.int32]
) -> None:
    """Write nodes in the order of their ids, each with its children in the order of a hash."""
    nodes = len(token)
    # Parent and a scrambled id in one word, 32 bits each: odd multiplication is a bijection.
    scramble, back = 0x9E3779B1, pow(0x9E3779B1, -1, 1 << 32)
    children = np.arange(1, nodes, dtype=np.uint64)
    children *= np.uint64(scramble)
    children &= np.uint64(0xFFFFFFFF)
    for begin in range(0, nodes - 1, PIECE):
        upper = parent[1 + begin : 1 + begin + PIECE].astype(np.uint64) << np.uint64(32)
        children[begin : begin + PIECE] |= upper
    children.sort()
    with path.open("wb") as file:
        file.write(np.array([ORDER, nodes], "<u8").tobytes())
        step = 1 << 20
        at = 0
        for begin in range(0, nodes, step):
            end = min(begin + step, nodes)
            stop = int(np.searchsorted(children, np.uint64(end) << np.uint64(32)))
            words = children[at:stop]
            at = stop
            owner = (words >> np.uint64(32)).astype(np.int64) - begin
            child = ((words & np.uint64(0xFFFFFFFF)) * np.uint64(back)) & np.uint64(0xFFFFFFFF)
            own = np.bincount(owner, minlength=end - begin)
            starts = 6 * np.arange(end - begin) + 3 * (np.cumsum(own) - own)  # in 4-byte words
            out = np.zeros(6 * (end - begin) + 3 * len(words), "<u4")
            out[starts] = token[begin:end].view(np.uint32)
            out[starts + 1] = parent[begin:end]
            out[starts + 3] = count[begin:end].view(np.uint32)
            out[starts + 4] = own
            places = 6 * (owner + 1) + 3 * np.arange(len(words))
            out[places] = token[child.astype(np.int64)].view(np.uint32)
            out[places + 1] = child
            file.write(out.tobytes())


def check(text: NDArray[np.int32], store: NgramStore, samples: int, seed: int) -> None:
    """Compare probabilities of n-grams of the text with what scanning the text counts."""
    flat = text.reshape(-1)
    length = text.shape[1]
    random = np.random.default_rng(seed + 1)
    seen: Counts = {}

    def occurrences(gram: tuple[int, ...]) -> int:
        if gram not in seen:
            at = np.flatnonzero(flat == gram[0])
            for ahead, token in enumerate(gram[1:], start=1):
                at = at[at % length < length - ahead]
                at = at[flat[at + ahead] == token]
            seen[gram] = len(at)
        return seen[gram]

    worst = 0.0
    for row, column in zip(
        random.integers(len(text), size=samples),
        random.integers(length - ORDER, size=samples),
        strict=True,
    ):
        *context, token = gram = tuple(text[row, column : column + ORDER].tolist())
        expected = occurrences(gram) / occurrences(tuple(context))
        probabilities, matched = store.probabilities(context, [token])
        assert matched[0] == ORDER - 1, gram
        worst = max(worst, abs(float(np.log(probabilities[0] / expected))))
        if store.is_exact:
            assert store.counts(gram) == occurrences(gram), gram
    limit = 1e-6 if store.is_exact else 0.1
    print(f"{samples} n-grams of the text: logarithms of probabilities off by at most {worst:.2g}")
    if worst > limit:
        sys.exit(f"expected at most {limit}")


def documents_for(gigabytes: float, length: int = LENGTH) -> int:
    """Documents that make a file of at least that size."""
    return int(gigabytes * 1e9 / 36 / NODES_PER_TOKEN / length) + 1


def main() -> None:
    """Write the file, or check a store made of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("gigabytes", type=float)
    parser.add_argument(
        "path", type=Path, metavar="FILE", help="the .trie, or with --check a store"
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    begin = time.monotonic()
    text = draw_text(documents_for(args.gigabytes), LENGTH, args.seed)
    print(f"{text.size:,} tokens drawn in {time.monotonic() - begin:.0f} s", flush=True)
    if args.check:
        check(text, NgramStore.open(args.path), args.samples, args.seed)
        return
    nodes = write_trie(text, args.path)
    size = args.path.stat().st_size
    print(f"{nodes:,} nodes, {size / 1e9:.2f} GB in {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
