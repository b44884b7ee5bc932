"""The draft tree: tokens and parents; everything else about its shape is derived."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class DraftTree:
    """N nodes; node 0 is the last committed token, parents come before children.

    tokens, parents int64 [N] (-1 for the root); scores, draft_probs, ngram_probs float32 [N];
    matched_lengths, ranks int32 [N].
    """

    tokens: np.ndarray
    parents: np.ndarray
    scores: np.ndarray | None = None
    draft_probs: np.ndarray | None = None
    ngram_probs: np.ndarray | None = None
    matched_lengths: np.ndarray | None = None
    ranks: np.ndarray | None = None

    @property
    def depths(self) -> np.ndarray:
        """Distance of each node from the root, int64 [N]."""
        depths = np.zeros(len(self.tokens), np.int64)
        for node in range(1, len(depths)):
            depths[node] = depths[self.parents[node]] + 1
        return depths
