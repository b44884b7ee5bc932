"""accept(): the deepest path the target agrees with."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dart.tree import DraftTree
from dart.verify import accept
from tests.support import make_tree

#        5
#       / \
#      1   2
#     / \   \
#    3   4   3
#            |
#            6
TREE = make_tree([5, 1, 2, 3, 4, 3, 6], [-1, 0, 0, 1, 1, 2, 5])


@pytest.mark.parametrize(
    ("chosen", "path"),
    [
        ([9, 0, 0, 0, 0, 0, 0], [0]),  # the target wants none of the children
        ([1, 9, 0, 0, 0, 0, 0], [0, 1]),
        ([1, 4, 3, 0, 0, 6, 0], [0, 1, 4]),  # what agrees on the other branch does not count
        ([2, 3, 3, 0, 0, 6, 0], [0, 2, 5, 6]),
        ([2, 0, 9, 0, 0, 6, 0], [0, 2]),  # a right child of a wrong parent stays dead
    ],
)
def test_hand_drawn_tree(chosen, path) -> None:
    """A path that the target did not choose would change the text."""
    assert accept(TREE, np.array(chosen)) == path


def test_root_alone_is_kept() -> None:
    """Plain decoding goes through the same function."""
    assert accept(DraftTree.root_only(7), np.array([3])) == [0]


def test_equals_the_walk_from_the_root() -> None:
    """The mask form must find what a step-by-step walk finds, on any tree."""
    rng = random.Random(0)
    for _ in range(300):
        tokens, parents, edges = [0], [-1], set()
        for _ in range(rng.randrange(30)):
            edge = (rng.randrange(len(tokens)), rng.randrange(4))
            if edge not in edges:
                edges.add(edge)
                parents.append(edge[0])
                tokens.append(edge[1])
        tree = make_tree(tokens, parents)
        chosen = np.array([rng.randrange(4) for _ in tokens])
        walk = [0]
        while True:
            follow = [
                child
                for child in range(1, len(tokens))
                if parents[child] == walk[-1] and tokens[child] == chosen[walk[-1]]
            ]
            if not follow:
                break
            walk.append(follow[0])
        assert accept(tree, chosen) == walk
