"""The draft tree: tokens and parents; all else is derived from the two.

Knows nothing about models, devices or scores' meaning.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np


@dataclass(frozen=True)
class DraftTree:
    """A tree of drafted tokens, in an order that puts parents before their children.

    tokens           int64 [N]; node 0 is the root: the last committed token
    parents          int64 [N]; -1 for the root, else smaller than the node's own index
    scores           float32 [N] or None; the search's cumulative score, 0 at the root
    draft_probs      float32 [N] or None; the head's probability among the level's candidates
    ngram_probs      float32 [N] or None; the n-gram store's probability, 0 where none was found
    matched_lengths  int32 [N] or None; how many context tokens that n-gram matched
    ranks            int32 [N] or None; place among the level's candidates, best first; -1 of a node
                     that the context store alone proposed
    context_probs    float32 [N] or None; the context store's probability, 0 where it has no match
    context_lengths  int32 [N] or None; how many context tokens that match is based on

    Siblings are distinct: two children of one node never hold the same token.
    """

    tokens: np.ndarray
    parents: np.ndarray
    scores: np.ndarray | None = None
    draft_probs: np.ndarray | None = None
    ngram_probs: np.ndarray | None = None
    matched_lengths: np.ndarray | None = None
    ranks: np.ndarray | None = None
    context_probs: np.ndarray | None = None
    context_lengths: np.ndarray | None = None

    @classmethod
    def root_only(cls, token: int) -> DraftTree:
        """The tree of plain decoding: nothing is drafted."""
        return cls(np.array([token], np.int64), np.array([-1], np.int64))

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: the fields; the rest is derived from them again."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def mask(self) -> np.ndarray:
        """Bool [N, N]; row i marks node i and all its ancestors (the tree attention mask)."""
        mask = np.eye(len(self), dtype=bool)
        parents = self.parents
        for node in range(1, len(self)):
            mask[node] |= mask[parents[node]]
        return mask

    @cached_property
    def depths(self) -> np.ndarray:
        """Int64 [N]; 0 at the root."""
        return self.mask.sum(axis=1) - 1

    @cached_property
    def leaves(self) -> np.ndarray:
        """Int64; the nodes without children, ascending."""
        has_child = np.zeros(len(self), dtype=bool)
        has_child[self.parents[1:]] = True
        return np.flatnonzero(~has_child)

    def path_to(self, node: int) -> list[int]:
        """Node ids from the root to `node`, both included."""
        return np.flatnonzero(self.mask[node]).tolist()

    @property
    def retrieve_indices(self) -> np.ndarray:
        """Int64 [leaves, depth + 1], -1 after a leaf; leaves in order of their token paths."""
        paths = sorted(
            (self.path_to(leaf) for leaf in self.leaves),
            key=lambda path: self.tokens[path].tolist(),
        )
        rows = np.full((len(paths), int(self.depths.max()) + 1), -1, np.int64)
        for row, path in zip(rows, paths, strict=True):
            row[: len(path)] = path
        return rows

    def validate(self) -> None:
        """Raise ValueError where the class's invariants do not hold (for tests and adversaries)."""
        if len(self.tokens) != len(self.parents) or len(self) == 0:
            raise ValueError(f"{len(self.tokens)} tokens but {len(self.parents)} parents")
        if self.parents[0] != -1:
            raise ValueError(f"node 0 must be the root; its parent is {self.parents[0]}")
        order = np.arange(1, len(self))
        if ((self.parents[1:] < 0) | (self.parents[1:] >= order)).any():
            raise ValueError("every parent must come before its child")
        edges = set(zip(self.parents.tolist(), self.tokens.tolist(), strict=True))
        if len(edges) != len(self):
            raise ValueError("two children of one node hold the same token")
