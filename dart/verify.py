"""Verification: which drafted nodes agree with what the target chose.

There is no rejection loop. The target's own token is drawn at every node; a node lives if it and
all its ancestors equal the token drawn at their parent. Every committed token is therefore the
target's own draw, whatever the drafter proposed (DESIGN section 2).
"""

from __future__ import annotations

import numpy as np

from dart.tree import DraftTree


def accept(tree: DraftTree, chosen: np.ndarray) -> list[int]:
    """The deepest path that agrees with the target.

    chosen   int64 [N]; the target's own token after each node
    returns  node ids from the root (always present) to the last accepted node; the bonus token is
             `chosen` at that node
    """
    if len(tree) == 1:
        return [0]
    is_wrong = tree.tokens != chosen[tree.parents]
    is_wrong[0] = False  # the root is committed already; its parent index -1 means nothing
    alive = ~(tree.mask & is_wrong).any(axis=1)
    # Siblings are distinct, so the living nodes form one path, and parents come first in it.
    return np.flatnonzero(alive).tolist()
