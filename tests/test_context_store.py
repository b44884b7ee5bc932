"""The context store: what it counts and matches, against counting by hand."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dart import pure
from dart.context_store import ContextMatch, ContextStore
from dart.errors import ConfigError

TOKENS = st.integers(0, 6)


def counted(
    text: list[int], order: int, path: list[int], candidates: list[int]
) -> tuple[list[ContextMatch], list[ContextMatch]]:
    """Matches of the candidates and of all other tokens, by looking through the text."""
    end = (text + path)[-(order - 1) :] if order > 1 else []
    best: dict[int, ContextMatch] = {}
    for length in range(1, len(end) + 1):
        context = end[-length:]
        followers = Counter(
            text[i + length] for i in range(len(text) - length) if text[i : i + length] == context
        )
        for token, count in followers.items():
            index = candidates.index(token) if token in candidates else -1
            share = float(np.float32(count) / np.float32(followers.total() + 1))
            best[token] = ContextMatch(token, index, length, share)
    known = [best[token] for token in candidates if token in best]
    others = [match for match in best.values() if match.index < 0]
    return known, others


@settings(max_examples=300, deadline=None)
@given(
    text=st.lists(TOKENS, max_size=40),
    path=st.lists(TOKENS, max_size=4),
    candidates=st.sets(TOKENS).map(sorted),
    order=st.integers(1, 8),
    cut=st.integers(0, 40),
)
def test_matches_are_those_of_the_text(text, path, candidates, order, cut) -> None:
    """A count that drifts as the text grows would draft worse and worse, and nobody would see."""
    store, plain = ContextStore(order), pure.ContextStore(order)
    for part in (text[:cut], text[cut:]):
        store.append(part)
        plain.append(np.array(part, np.int32))
    found = list(store.match(path, candidates))
    known, others = counted(text, order, path, candidates)
    opened = found[len(known) :]
    assert found[: len(known)] == known
    longest_first = sorted(others, key=lambda m: (-m.length, -m.probability, m.token))
    assert opened == [match for match in longest_first if match.length > 1][:4]
    columns = plain.match(np.array(path, np.int32), np.array(candidates, np.int32))
    rows = zip(*(column.tolist() for column in columns), strict=True)
    assert [ContextMatch(*row) for row in rows] == found
    grams = {tuple(text[i:j]) for i in range(len(text)) for j in range(i + 1, i + 1 + order)}
    grams = {gram for gram in grams if gram}
    assert store.num_nodes == plain.num_nodes == len(grams)
    assert store.num_tokens == plain.num_tokens == len(text)


def test_a_context_that_anything_follows_opens_nothing() -> None:
    """A draft tree full of what once came after a comma would be a waste."""
    for followers, opens in ((32, 4), (33, 0)):
        store, plain = ContextStore(3), pure.ContextStore(3)
        text = [token for i in range(followers) for token in (100, 101, i)] + [100, 101]
        store.append(text)
        plain.append(np.array(text, np.int32))
        assert len(list(store.match([], []))) == opens
        assert len(plain.matches((), [])) == opens
        assert len(list(store.match([], list(range(10))))) == 10 + opens


def test_a_long_text_is_counted_whole() -> None:
    """The table grows many times over; a node lost on the way is a hit lost for good."""
    text = np.random.default_rng(0).integers(0, 50, 20_000).tolist()
    store = ContextStore(4)
    for begin in range(0, len(text), 999):
        store.append(text[begin : begin + 999])
    pairs = Counter(pairwise(text))
    after = Counter(text[:-1])
    for first in range(50):
        for match in store.match([-1, first], list(range(50))):
            expected = pairs[first, match.token] / (after[first] + 1)
            assert match.length == 1
            assert match.probability == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("order", [0, 9, -1])
def test_an_order_out_of_range_is_refused(order: int) -> None:
    """A table of order 0 would answer nothing, silently."""
    with pytest.raises(ConfigError, match=f"order is {order}, expected 1..8"):
        ContextStore(order)
    with pytest.raises(ValueError, match=f"order is {order}, expected 1..8"):
        pure.ContextStore(order)


def test_a_bad_token_leaves_the_text_as_it_was() -> None:
    """Half of an appended step would shift everything behind it."""
    for store in (ContextStore(3), pure.ContextStore(3)):
        tokens = np.array([1, 2, -1], np.int32)
        with pytest.raises((ConfigError, ValueError), match="token is -1"):
            store.append(tokens)
        assert store.num_tokens == 0
        assert store.num_nodes == 0
