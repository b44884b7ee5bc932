"""DraftTree: what is derived from tokens and parents."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dart.tree import DraftTree
from tests.support import make_tree


@st.composite
def trees(draw: st.DrawFn) -> DraftTree:
    """Any valid tree of up to 40 nodes."""
    tokens, parents = [draw(st.integers(0, 9))], [-1]
    for _ in range(draw(st.integers(0, 39))):
        parent, token = draw(st.integers(0, len(tokens) - 1)), draw(st.integers(0, 9))
        if (parent, token) not in set(zip(parents, tokens, strict=True)):
            tokens.append(token)
            parents.append(parent)
    return make_tree(tokens, parents)


@given(trees())
def test_mask_and_depth_follow_the_parents(tree: DraftTree) -> None:
    """A node that sees a stranger, or misses an ancestor, makes decoding wrong."""
    for node in range(len(tree)):
        ancestors, walk = [], node
        while walk != -1:
            ancestors.append(walk)
            walk = int(tree.parents[walk])
        assert np.flatnonzero(tree.mask[node]).tolist() == sorted(ancestors)
        assert tree.depths[node] == len(ancestors) - 1
        assert tree.path_to(node) == sorted(ancestors)


@given(trees())
def test_retrieve_indices_hold_every_root_to_leaf_path_once(tree: DraftTree) -> None:
    """An export that loses or repeats a leaf cannot be compared with upstream's."""
    rows = [[int(i) for i in row if i >= 0] for row in tree.retrieve_indices]
    assert {row[-1] for row in rows} == set(tree.leaves.tolist())
    assert len(rows) == len(tree.leaves)
    for row in rows:
        assert row == tree.path_to(row[-1])
    token_paths = [tree.tokens[row].tolist() for row in rows]
    assert token_paths == sorted(token_paths)


@pytest.mark.parametrize(
    ("tokens", "parents", "complaint"),
    [
        ([1, 2], [-1], "parents"),
        ([], [], "parents"),
        ([1, 2], [0, 0], "root"),
        ([1, 2, 3], [-1, 2, 0], "before its child"),
        ([1, 2, 2], [-1, 0, 0], "same token"),
    ],
)
def test_validate_names_what_is_wrong(tokens, parents, complaint) -> None:
    """A broken tree must be found where it is made, not by wrong text later."""
    tree = DraftTree(np.array(tokens, np.int64), np.array(parents, np.int64))
    with pytest.raises(ValueError, match=complaint):
        tree.validate()
