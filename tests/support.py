"""Drafters that try to break losslessness, and hand-made trees."""

from __future__ import annotations

import random

import numpy as np
import torch

from dart.cache import KVCache
from dart.drafter import StageClock
from dart.target import TargetModel, TargetOutput
from dart.tree import DraftTree


def make_tree(tokens: list[int], parents: list[int]) -> DraftTree:
    """A tree from lists, checked."""
    tree = DraftTree(np.array(tokens, np.int64), np.array(parents, np.int64))
    tree.validate()
    return tree


class AdversarialDrafter:
    """Draws random trees; some hold the right continuation, some hold it cut, shifted or wrong.

    truth  the text the target will produce, from which good guesses are taken; may be empty
    size   drafted nodes of every tree
    """

    def __init__(
        self, vocab_size: int, size: int, seed: int, truth: list[int], aux_layers=()
    ) -> None:
        self.vocab_size, self.size, self.truth = vocab_size, size, truth
        self.random = random.Random(seed)
        self.aux_layers = aux_layers
        self.max_tree_size = size + 1

    def start(
        self, prompt_ids: list[int], token: int, aux_hidden: torch.Tensor, capacity: int
    ) -> None:
        """Begin a text."""
        self.text = [token]

    def propose(self, max_depth: int, clock: StageClock) -> DraftTree:
        """A random tree around a piece of the truth."""
        tokens, parents, depths = [self.text[-1]], [-1], [0]
        children: set[tuple[int, int]] = set()
        guess = self.truth[len(self.text) :][: self.random.randint(0, 8)]
        if guess and self.random.random() < 0.3:
            guess[self.random.randrange(len(guess))] = self.random.randrange(self.vocab_size)
        tip = 0
        while len(tokens) <= self.size:
            if guess and self.random.random() < 0.5:
                parent, token = tip, guess.pop(0)
                tip = len(tokens)
            else:
                parent = self.random.randrange(len(tokens))
                token = self.random.randrange(self.vocab_size)
            if depths[parent] >= max_depth or (parent, token) in children:
                if len(children) >= self.vocab_size or max_depth == 0:
                    break
                tip = 0 if tip == len(tokens) else tip
                guess = []
                continue
            children.add((parent, token))
            tokens.append(token)
            parents.append(parent)
            depths.append(depths[parent] + 1)
        return make_tree(tokens, parents)

    def observe(self, tokens: list[int], aux_hidden: torch.Tensor) -> None:
        """Follow the text."""
        assert len(aux_hidden) == len(tokens)
        self.text.extend(tokens)


class ShakyTarget(TargetModel):
    """A target whose tree forwards are off by a rounding error that is never twice the same.

    error  how far the difference of two logits of a row may be off, as a share of the best one
    """

    def __init__(self, target: TargetModel, error: float, seed: int) -> None:
        super().__init__(target.model)
        self.error = error
        self.noise = torch.Generator().manual_seed(seed)

    def forward_tree(self, tree: DraftTree, cache: KVCache, aux_layers=()) -> TargetOutput:
        """The true logits, each off by up to half of `error` times the best one."""
        output = super().forward_tree(tree, cache, aux_layers)
        peaks = output.logits.amax(dim=-1, keepdim=True).abs().clamp(min=1.0)
        shift = torch.rand(output.logits.shape, generator=self.noise) - 0.5
        return TargetOutput(output.logits + 0.98 * self.error * peaks * shift, output.aux_hidden)
