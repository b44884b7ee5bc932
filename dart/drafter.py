"""What the decoding loop asks of a drafter, and the drafter that drafts nothing: the baseline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import torch

from dart.tree import DraftTree


class StageClock:
    """Seconds by stage, each lap charged to the stage that has just ended."""

    def __init__(self, synchronize: Callable[[], None] | None = None) -> None:
        self._synchronize = synchronize  # waits for a device that works asynchronously
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """Charge the time since the last lap to `stage`."""
        if self._synchronize is not None:
            self._synchronize()
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now


class DraftingTarget(Protocol):
    """What a drafter may know of the target model."""

    @property
    def draft_layers(self) -> tuple[int, ...]:
        """Layers whose inputs are the aux hidden states, low to high."""
        ...

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Tokens that end a text."""
        ...

    def embed(self, tokens: list[int] | torch.Tensor) -> torch.Tensor:
        """The target's embeddings [T, H] of T tokens."""
        ...


class Drafter(Protocol):
    """Proposes a draft tree a step. State belongs to one text; `start` begins the next one."""

    aux_layers: tuple[int, ...]  # layers whose inputs the drafter wants; empty: none
    max_tree_size: int  # nodes of the largest tree, root included

    def start(
        self, prompt_ids: list[int], token: int, aux_hidden: torch.Tensor, capacity: int
    ) -> None:
        """Begin a text.

        prompt_ids  T ids; token  the target's first own token, root of the first tree
        aux_hidden  [T, A*D] of the prompt's tokens
        capacity    tokens the whole text may reach
        """
        ...

    def propose(self, max_depth: int, clock: StageClock) -> DraftTree:
        """A tree whose root is the last token of the text, of at most `max_depth` levels."""
        ...

    def observe(self, tokens: list[int], aux_hidden: torch.Tensor) -> None:
        """The step's new tokens, bonus token last; aux states [len(tokens), A*D] of the tokens
        before each of them (root and accepted nodes)."""
        ...


class NoDrafter:
    """Plain autoregressive decoding: the tree is its root."""

    aux_layers: tuple[int, ...] = ()
    max_tree_size = 1

    def start(
        self, prompt_ids: list[int], token: int, aux_hidden: torch.Tensor, capacity: int
    ) -> None:
        """Remember the root."""
        self._token = token

    def propose(self, max_depth: int, clock: StageClock) -> DraftTree:
        """The root alone."""
        return DraftTree.root_only(self._token)

    def observe(self, tokens: list[int], aux_hidden: torch.Tensor) -> None:
        """Remember the root."""
        self._token = tokens[-1]
