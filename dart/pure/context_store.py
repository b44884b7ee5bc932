"""The context store in a dict: counts, matches and opened tokens as the compiled one has them.

source: csrc/include/dart/context_store.h.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]

MAX_ORDER = 8
MAX_OPENED = 4
_OPEN_LENGTH = 2
_OPEN_FOLLOWERS = 32
_MAX_TOKENS = 2**32 - 1

Context = tuple[int, ...]
Match = tuple[int, int, int, np.float32]  # token, index of the candidate or -1, length, probability


class ContextStore:
    """Counts of the n-grams of one growing text."""

    def __init__(self, order: int) -> None:
        if not 1 <= order <= MAX_ORDER:
            raise ValueError(f"order is {order}, expected 1..{MAX_ORDER}")
        self.order = order
        self.num_tokens = 0
        self.num_nodes = 0
        self._end: Context = ()
        self._followers: dict[Context, dict[int, int]] = defaultdict(dict)

    def append(self, tokens: Ints) -> None:
        """Append tokens, int32 [n]."""
        for token in tokens.tolist():
            if token < 0:
                raise ValueError(f"token is {token}, expected 0 or more")
        limit = _MAX_TOKENS // self.order
        if len(tokens) > limit - self.num_tokens:
            raise ValueError(f"the text is too long, expected at most {limit} tokens")
        for token in tokens.tolist():
            for length in range(len(self._end) + 1):
                after = self._followers[self._end[len(self._end) - length :]]
                self.num_nodes += token not in after
                after[token] = after.get(token, 0) + 1
            self._end = self._after((token,))
            self.num_tokens += 1

    def _after(self, path: Context) -> Context:
        """The last tokens of text and path that matter."""
        whole = self._end + path
        return whole[max(0, len(whole) - self.order + 1) :]

    def matches(self, path: Context, candidates: list[int]) -> list[Match]:
        """What has followed the path: candidates (ascending), then opened tokens."""
        context = self._after(path)
        index_of = {token: index for index, token in enumerate(candidates)}
        known: list[Match] = []
        opened: list[Match] = []
        seen: set[int] = set()
        for length in range(len(context), 0, -1):
            after = self._followers.get(context[len(context) - length :])
            if not after:
                continue
            total = np.float32(sum(after.values()) + 1)
            new = sorted(
                (-np.float32(count) / total, token)
                for token, count in after.items()
                if token not in seen
            )
            may_open = length >= _OPEN_LENGTH and len(after) <= _OPEN_FOLLOWERS
            for negative, token in new:
                if token in index_of:
                    known.append((token, index_of[token], length, -negative))
                elif may_open:
                    opened.append((token, -1, length, -negative))
            seen.update(after)
        return sorted(known) + opened[:MAX_OPENED]

    def match(self, path: Ints, candidates: Ints) -> tuple[Ints, Ints, Ints, Floats]:
        """Tokens, indices, lengths and probabilities of what has followed."""
        found = self.matches(tuple(path.tolist()), candidates.tolist())
        tokens, indices, lengths, values = zip(*found, strict=True) if found else ((), (), (), ())
        return (
            np.array(tokens, np.int32),
            np.array(indices, np.int32),
            np.array(lengths, np.int32),
            np.array(values, np.float32),
        )
