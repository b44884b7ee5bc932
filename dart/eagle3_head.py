"""The EAGLE3 head: one layer that drafts token after token on its own outputs, and its drafter.

Source: arXiv 2503.01840; exact behaviour of the published checkpoints and of upstream's tree growth
as in CHECKPOINT_FORMATS section 4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from dart.cache import KVCache
from dart.config import Eagle3TreeConfig, HeadConfig
from dart.draft_head import DraftHead
from dart.drafter import DraftingTarget, StageClock
from dart.layers import Rows, rotary_tables
from dart.tree import DraftTree


class Eagle3Head(DraftHead):
    """Predicts one token behind every row from a feature and a token.

    Row i pairs a feature of token i with the embedding of token i + 1 and predicts token i + 2. Of
    known tokens the feature is made of the target's aux states; of drafted ones it is the head's
    own output one row before.

    embed_tokens  the head's own embedding, where it was not trained with the target's
    """

    embed_tokens: nn.Embedding | None

    def __init__(self, config: HeadConfig) -> None:
        super().__init__(config)
        self.embed_tokens = None

    def own_embedding(self) -> None:
        """Make room for an embedding other than the target's."""
        self.embed_tokens = nn.Embedding(self.config.vocab_size, self.config.hidden_size)
        self.num_parameters += self.embed_tokens.weight.numel()

    def features(self, aux_hidden: torch.Tensor) -> torch.Tensor:
        """Aux hidden states [.., 3Ht] -> features [.., H]."""
        return self.fc(aux_hidden)

    def forward(
        self,
        features: torch.Tensor,
        embeddings: torch.Tensor,
        rotary: tuple[torch.Tensor, torch.Tensor],
        bias: torch.Tensor | None,
        cache: Rows | None = None,
        keep_from: int = 0,
    ) -> torch.Tensor:
        """Run the layer behind the rows in `cache`; its new rows are not committed here.

        features, embeddings  [B, T, H]
        rotary                cosines and sines of the T rows, as Attention.forward takes them
        bias                  [.., T - keep_from, past + T]; as in Attention.forward
        keep_from             rows before this one serve as keys alone
        returns               [B, T - keep_from, H]: features of the next rows; not normed, which
                              `logits` does
        """
        pairs = self.midlayer.pair(features, embeddings)
        return self.midlayer(pairs, features, *rotary, bias, cache, keep_from)


@dataclass(frozen=True, slots=True)
class _Level:
    """One level of the growth: each of `w` nodes extended by `k` tokens.

    places     int64 [w]; where the extended nodes lie among the w * k of the level before; for the
               first level, which extends the root, one place that means nothing
    tokens     int64 [w, k]; target ids, most probable first
    log_probs  float32 [w, k]; of each token behind its parent
    scores     float32 [w, k]; their sums along the paths
    """

    places: torch.Tensor
    tokens: torch.Tensor
    log_probs: torch.Tensor
    scores: torch.Tensor


class Eagle3Drafter:
    """Drafts level by level, one head forward each; the most probable paths become the tree."""

    def __init__(self, head: Eagle3Head, target: DraftingTarget, config: Eagle3TreeConfig) -> None:
        self.head = head
        self.target = target
        self.config = config
        self.aux_layers = target.draft_layers
        self.max_tree_size = config.size + 1
        self._device = head.norm.weight.device
        self._dtype = head.norm.weight.dtype

    def start(
        self, prompt_ids: list[int], token: int, aux_hidden: torch.Tensor, capacity: int
    ) -> None:
        """Begin a text: the prompt, the target's first token, the prompt's aux states [T, 3Ht]."""
        grown = self.config.depth * self.config.top_k
        self._cache = KVCache(capacity + grown, [self._device])
        self._rotary = self.head.rotary(capacity + self.config.depth)
        self._pending = ([*prompt_ids[1:], token], aux_hidden)

    def propose(self, max_depth: int, clock: StageClock) -> DraftTree:
        """Draft a tree of at most `max_depth` levels behind the last token."""
        successors, aux_hidden = self._pending
        if max_depth == 0 or self.config.size == 0:
            return DraftTree.root_only(successors[-1])
        hidden = self._take(successors, aux_hidden)
        committed = self._cache.length
        levels = self._grow(hidden, min(self.config.depth + 1, max_depth))
        self._cache.truncate(committed)
        clock.lap("draft")
        tree = _best_tree(successors[-1], levels, self.config.size)
        clock.lap("search")
        return tree

    def observe(self, tokens: list[int], aux_hidden: torch.Tensor) -> None:
        """Take the step's tokens and the aux states [len(tokens), 3Ht] of their predecessors."""
        self._pending = (tokens, aux_hidden)

    def _take(self, successors: list[int], aux_hidden: torch.Tensor) -> torch.Tensor:
        """Commit the rows of known tokens; the head's output [1, 1, H] at the last one."""
        past, rows = self._cache.length, len(successors)
        features = self.head.features(aux_hidden.to(self._device))
        embeddings = self._embed(torch.tensor(successors, device=self._device))
        hidden = self.head(
            features[None],
            embeddings[None],
            self._tables(past, past + rows),
            # The last row sees all; the others' outputs are not wanted.
            torch.zeros((1, past + rows), dtype=self._dtype, device=self._device),
            self._cache,
            keep_from=rows - 1,
        )
        self._cache.commit(rows)
        return hidden

    def _grow(self, hidden: torch.Tensor, count: int) -> list[_Level]:
        """Extend the root by the tokens behind `hidden` [1, 1, H], then the best nodes, and so on.

        returns  `count` levels, or fewer where no deeper node can be among the best
        """
        tokens, log_probs = self._candidates(hidden)
        levels = [_Level(tokens.new_zeros(1), tokens, log_probs, log_probs)]
        past, width = self._cache.length, self.config.top_k
        # What a node sees: the known tokens and, of the grown rows, its ancestors' and its own.
        shape = (width, past + (count - 1) * width)
        bias = torch.full(shape, float("-inf"), dtype=self._dtype, device=self._device)
        bias[:, :past] = 0
        for position in range(past, past + count - 1):
            scores, places = self._beam(levels)
            beam = len(places)
            if beam == 0:
                break
            rows = places // tokens.shape[1]  # of the parents, among those that ran last
            begin, end = self._cache.length, self._cache.length + beam
            bias[:beam, past:begin] = bias[rows, past:begin]
            bias[:beam, begin:end].fill_diagonal_(0)
            embeddings = self._embed(tokens.flatten()[places])
            hidden = self.head(
                hidden[:, rows],
                embeddings[None],
                self._tables(position, position + 1),
                bias[:beam, :end],
                self._cache,
            )
            self._cache.commit(beam)
            tokens, log_probs = self._candidates(hidden)
            levels.append(_Level(places, tokens, log_probs, scores[:, None] + log_probs))
        return levels

    def _candidates(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The likeliest tokens behind rows [1, w, H] and their log-probabilities, [w, k] each."""
        logits = self.head.logits(hidden[0]).float()  # [w, Vd]
        best, ids = logits.topk(min(self.config.top_k, logits.shape[-1]), dim=-1)
        log_probs = best - logits.logsumexp(dim=-1, keepdim=True)
        return self.head.draft_to_target[ids], log_probs

    def _beam(self, levels: list[_Level]) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores and places of the last level's nodes that are worth extending, best first."""
        last = levels[-1].scores.flatten()
        scores, places = last.topk(min(self.config.top_k, len(last)))
        # Where reading a number back costs nothing: a node no better than the worst of the tree so
        # far has no descendant in it. What is left out changes nothing.
        if self._device.type == "cpu":
            pool = torch.cat([level.scores.flatten() for level in levels])
            if len(pool) >= self.config.size:
                worst = pool.topk(self.config.size).values[-1]
                useful = int((scores > worst).sum())
                scores, places = scores[:useful], places[:useful]
        return scores, places

    def _embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Embeddings [T, H] of tokens [T]."""
        if self.head.embed_tokens is not None:
            return self.head.embed_tokens(tokens)
        return self.target.embed(tokens).to(self._device)

    def _tables(self, begin: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Rotary tables of the positions from `begin` up to `end`."""
        if self._rotary is None:
            positions = torch.arange(begin, end, device=self._device)
            return rotary_tables(self.head.config, positions, self._dtype)
        cos, sin = self._rotary
        return cos[begin:end], sin[begin:end]


def _best_tree(root: int, levels: list[_Level], size: int) -> DraftTree:
    """The `size` best nodes of all levels, in the order in which they grew.

    A child's score is never above its parent's and it grew later. So a stable sort puts no child
    before its parent, ties and all, and the best nodes are a tree.
    """
    counts = [level.scores.numel() for level in levels]
    begins = np.cumsum([0, *counts])
    tokens, log_probs, scores = (
        torch.cat([getattr(level, name).flatten() for level in levels]).cpu().numpy()
        for name in ("tokens", "log_probs", "scores")
    )
    parents = np.full(begins[-1], -1)
    ranks = np.zeros(begins[-1], np.int32)
    for index, level in enumerate(levels):
        nodes = slice(begins[index], begins[index + 1])
        width, candidates = level.scores.shape
        ranks[nodes] = np.tile(np.arange(candidates), width)
        if index > 0:
            places = level.places.cpu().numpy()
            parents[nodes] = np.repeat(begins[index - 1] + places, candidates)
    kept = np.sort(np.argsort(-scores, kind="stable")[:size])
    # A parent's index in the tree: how many nodes grew before it, the root and itself included.
    tree_parents = np.searchsorted(kept, parents[kept], side="right")

    def with_root(value: float, column: np.ndarray) -> np.ndarray:
        return np.concatenate([np.array([value], column.dtype), column[kept]])

    return DraftTree(
        tokens=with_root(root, tokens),
        parents=np.concatenate([[-1], tree_parents]),
        scores=with_root(0, scores),
        draft_probs=with_root(1, np.exp(log_probs)),
        ranks=with_root(0, ranks),
    )
