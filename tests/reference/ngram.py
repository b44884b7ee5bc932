"""n-gram counts in a dict, and upstream's .trie dump read and written record by record."""

import struct
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

Counts = dict[tuple[int, ...], int]


def count_ngrams(sequences: Iterable[Sequence[int]], order: int) -> Counts:
    """Count every n-gram of length 1 to order; the empty one counts all tokens."""
    counts: Counter[tuple[int, ...]] = Counter()
    for sequence in sequences:
        ids = [int(token) for token in sequence]
        for start in range(len(ids)):
            window = tuple(ids[start : start + order])
            for length in range(len(window) + 1):
                counts[window[:length]] += 1
    return dict(counts)


def probability(
    counts: Counts, order: int, context: Sequence[int], token: int
) -> tuple[np.float32, int]:
    """Probability after the longest context followed by the token, and that context's length."""
    context = [int(t) for t in context]
    for length in range(min(order - 1, len(context)), 0, -1):
        tail = tuple(context[-length:])
        whole, part = counts.get(tail, 0), counts.get((*tail, int(token)), 0)
        if whole > 0 and part > 0:
            reciprocal = np.float32(1) / np.float32(whole)
            return min(np.float32(part) * reciprocal, np.float32(1)), length
    return np.float32(0), 0


def read_trie(data: bytes) -> tuple[int, Counts]:
    """Order and counts of a well-formed .trie dump."""
    order, node_count = struct.unpack_from("<QQ", data)
    at = 16
    records = []
    for _ in range(node_count):
        _, _, count, child_count = struct.unpack_from("<iQiQ", data, at)
        at += 24
        children = [struct.unpack_from("<iQ", data, at + 12 * i) for i in range(child_count)]
        at += 12 * child_count
        records.append((count, children))
    counts: Counts = {}
    todo: list[tuple[tuple[int, ...], int]] = [((), 0)]
    while todo:
        ngram, node = todo.pop()
        counts[ngram] = records[node][0]
        todo += [((*ngram, token), child) for token, child in records[node][1]]
    return order, counts


def write_trie(order: int, counts: Counts) -> bytes:
    """A .trie dump; every prefix of an n-gram must be in counts too."""
    ids = {ngram: i for i, ngram in enumerate(sorted(counts, key=lambda n: (len(n), n)))}
    data = struct.pack("<QQ", order, len(ids))
    for ngram in ids:
        children = [n for n in ids if n and n[:-1] == ngram]
        token = ngram[-1] if ngram else 0
        parent = ids[ngram[:-1]] if ngram else 0
        data += struct.pack("<iQiQ", token, parent, counts[ngram], len(children))
        for child in reversed(children):  # no order may be relied on
            data += struct.pack("<iQ", child[-1], ids[child])
    return data
