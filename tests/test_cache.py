"""KVCache: appended rows count only when kept."""

from __future__ import annotations

import pytest
import torch

from dart.cache import KVCache
from dart.errors import ConfigError

CPU = torch.device("cpu")


def rows(*values: float) -> torch.Tensor:
    """Keys [1, 2, T, 3] whose entries tell the row."""
    return torch.tensor(values)[None, None, :, None].expand(1, 2, -1, 3).contiguous()


def test_keep_moves_the_accepted_rows_together_in_every_layer() -> None:
    """A row left behind makes every later token attend to a rejected one."""
    cache = KVCache(16, [CPU, CPU])
    for layer in range(2):
        cache.update(rows(0, 1), rows(10, 11), layer)
    cache.commit(2)
    for layer in range(2):
        cache.update(rows(2, 3, 4, 5), rows(12, 13, 14, 15), layer)
    cache.keep([0, 2, 3])
    assert cache.length == 5
    for layer in range(2):
        keys, values = cache.update(rows(9), rows(19), layer)
        assert keys[0, 1, :, 0].tolist() == [0, 1, 2, 4, 5, 9]
        assert values[0, 0, :, 2].tolist() == [10, 11, 12, 14, 15, 19]


def test_rows_of_a_forward_that_was_not_kept_are_overwritten() -> None:
    """The draft head's mask rows must be gone at the next step."""
    cache = KVCache(8, [CPU])
    cache.update(rows(1, 2, 3), rows(1, 2, 3), 0)
    cache.commit(1)
    keys, _ = cache.update(rows(7), rows(7), 0)
    assert keys[0, 0, :, 0].tolist() == [1, 7]


def test_too_many_rows_are_refused_with_both_numbers() -> None:
    """Upstream's cache overflows near max_length; ours says what did not fit."""
    cache = KVCache(3, [CPU])
    with pytest.raises(ConfigError, match="3 rows; 4"):
        cache.update(rows(1, 2, 3, 4), rows(1, 2, 3, 4), 0)


def test_truncate_forgets_and_refuses_to_invent() -> None:
    """Cutting to more rows than there are would bring stale ones back."""
    cache = KVCache(4, [CPU])
    cache.update(rows(1, 2, 3), rows(1, 2, 3), 0)
    cache.commit(3)
    cache.truncate(1)
    assert cache.get_seq_length() == 1
    with pytest.raises(ConfigError, match="1 rows to 2"):
        cache.truncate(2)
