"""The KV cache: preallocated rows, appended by the model, kept or dropped by the decoding loop.

The only file that knows `transformers`' Cache class. Batch size 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers.cache_utils import Cache

from dart.errors import ConfigError


class KVCache(Cache):
    """Keys and values of all layers in one block per device, `capacity` rows each.

    A forward appends its rows behind `length`; they count only once `commit` or `keep` says so, so
    rows of rejected draft nodes are simply overwritten by the next forward.
    """

    def __init__(self, capacity: int, layer_devices: Sequence[torch.device]) -> None:
        # Cache.__init__ builds per-layer objects; this cache has none and overrides all it serves.
        self.layers = []
        self.capacity = capacity
        self.length = 0
        self._devices = list(layer_devices)
        slots: dict[torch.device, int] = {}
        self._slot_of = []
        for device in self._devices:
            self._slot_of.append(slots.get(device, 0))
            slots[device] = slots.get(device, 0) + 1
        self._layers_on = slots
        self._blocks: dict[torch.device, tuple[torch.Tensor, torch.Tensor]] = {}

    def _allocate(self, device: torch.device, keys: torch.Tensor, values: torch.Tensor) -> None:
        count = self._layers_on[device]

        def block(like: torch.Tensor) -> torch.Tensor:
            _, heads, _, size = like.shape
            shape = (count, 1, heads, self.capacity, size)
            return torch.zeros(shape, dtype=like.dtype, device=like.device)

        self._blocks[device] = (block(keys), block(values))

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write rows behind the committed ones and return views of everything up to them.

        key_states, value_states  [1, K, T, d]
        returns                   two views [1, K, length + T, d]
        raises                    ConfigError where the rows do not fit
        """
        device = self._devices[layer_idx]
        if device not in self._blocks:
            self._allocate(device, key_states, value_states)
        keys, values = self._blocks[device]
        slot = self._slot_of[layer_idx]
        begin, end = self.length, self.length + key_states.shape[2]
        if end > self.capacity:
            raise ConfigError(
                f"the KV cache holds {self.capacity} rows; {end} are needed. Make it larger."
            )
        layer_keys, layer_values = keys[slot, :, :, :end], values[slot, :, :, :end]
        layer_keys[:, :, begin:] = key_states
        layer_values[:, :, begin:] = value_states
        return layer_keys, layer_values

    def commit(self, count: int) -> None:
        """Make the next `count` appended rows part of the prefix."""
        self.length += count

    def keep(self, path: Sequence[int]) -> None:
        """Commit only the rows at these offsets behind `length`, moved together; drop the rest.

        path  ascending offsets of the accepted nodes among the rows the last forward appended
        """
        begin, count = self.length, len(path)
        if path[-1] != count - 1:  # else the rows lie where they belong
            for device, blocks in self._blocks.items():
                index = torch.tensor(path, device=device) + begin
                for block in blocks:
                    block[:, :, :, begin : begin + count] = block.index_select(3, index)
        self.length += count

    def truncate(self, length: int) -> None:
        """Forget all rows from `length` on."""
        if not 0 <= length <= self.length:
            raise ConfigError(f"cannot cut a cache of {self.length} rows to {length}.")
        self.length = length

    @property
    def num_bytes(self) -> int:
        """Memory taken by the rows, in bytes."""
        return sum(block.nbytes for blocks in self._blocks.values() for block in blocks)

    # What transformers asks a cache.

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Committed rows."""
        return self.length

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        """Key rows a forward of `query_length` rows sees, and the offset of the first."""
        return self.length + query_length, 0

    def get_max_length(self, layer_idx: int | None = None) -> int:
        """Rows that fit."""
        return self.capacity

    @property
    def is_compileable(self) -> bool:
        """Views of growing length are no static shapes."""
        return False

    get_max_cache_shape = get_max_length  # its name before transformers 5.2x

    @property
    def is_sliding(self) -> list[bool]:
        """No layer slides; models that need it are refused."""
        return [False] * len(self._devices)

    @property
    def is_initialized(self) -> bool:
        """Nothing is left to set up by the model."""
        return True
