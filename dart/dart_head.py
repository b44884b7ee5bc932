"""The DART head: one layer that predicts P + 1 positions in one forward, and its drafter.

Source: arXiv 2601.19278; exact behaviour of the published checkpoints, quirks included, as in
CHECKPOINT_FORMATS section 2 (the final norm is applied twice on the way to the logits).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import nn

from dart.acceptance import AcceptanceModel, scaled_odds
from dart.cache import KVCache
from dart.config import HeadConfig, TreeConfig
from dart.context_store import ContextStore
from dart.draft_head import DraftHead
from dart.drafter import DraftingTarget, StageClock
from dart.layers import DraftLayer, rotary_tables
from dart.ngram import NgramStore
from dart.search import search_tree
from dart.tree import DraftTree

_LONGEST_CONTEXT = 16  # tokens handed to the search; no n-gram store matches more


class DartLayer(DraftLayer):
    """The draft layer with the learned stand-in for positions not yet written."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__(config)
        self.mask_rep = nn.Parameter(torch.zeros(2 * config.hidden_size))


class DartHead(DraftHead):
    """Predicts `draft_length` + 1 = P + 1 tokens ahead from the target's aux hidden states.

    Rows: clean row i pairs the aux states of token i with the embedding of token i + 1 and predicts
    token i + 2; the P mask rows after the last clean row predict the P tokens after that. `forward`
    ends with the final norm and `logits` begins with it: applied twice, as upstream does.
    """

    layer_class = DartLayer
    midlayer: DartLayer

    def clean_rows(
        self, aux_hidden: torch.Tensor, embeddings: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows of known tokens: aux [B, T, 3Ht], next-token embeddings [B, T, H].

        returns  attention input [B, T, 2H] and residual [B, T, H]
        """
        features = self.fc(aux_hidden)
        return self.midlayer.pair(features, embeddings), features

    def mask_rows(self, batch: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows of unknown tokens: attention input [B, count, 2H] and residual [B, count, H].

        They are all alike (position tells them apart); the residual is the input's first half.
        """
        pairs = self.midlayer.mask_rep.expand(batch, count, -1)
        return pairs, pairs[..., : self.config.hidden_size]

    def forward(
        self,
        aux_hidden: torch.Tensor,
        embeddings: torch.Tensor,
        cache: KVCache,
        rotary: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """Draft once behind the rows in `cache`.

        aux_hidden  [1, T, 3Ht] of the T newly committed tokens, low layer first
        embeddings  [1, T, H] of each one's successor
        cache       one layer; T rows are committed, the mask rows are not
        rotary      tables of the whole text, as `rotary()` gives them; None computes them here
        returns     [P + 1, H], the final norm applied once
        """
        pairs, residual = self.clean_rows(aux_hidden, embeddings)
        known, unknown, past = pairs.shape[1], self.config.draft_length, cache.length
        mask_pairs, mask_residual = self.mask_rows(1, unknown)
        pairs = torch.cat([pairs, mask_pairs], dim=1)  # [1, T + P, 2H]
        residual = torch.cat([residual, mask_residual], dim=1)
        rows = known + unknown
        if rotary is None:
            positions = torch.arange(past, past + rows, device=pairs.device)
            cos, sin = rotary_tables(self.config, positions, pairs.dtype)
        else:
            cos, sin = (table[past : past + rows] for table in rotary)
        bias = torch.full((unknown + 1, past + rows), float("-inf"), device=pairs.device)
        bias = bias.triu(past + known).to(pairs.dtype)
        hidden = self.midlayer(pairs, residual, cos, sin, bias, cache, keep_from=known - 1)
        cache.commit(known)
        return self.norm(hidden)[0]


class DartDrafter:
    """Drafts with one head forward and one n-gram-guided tree search (paper, Algorithm 1).

    store       n-grams of a corpus; those of the text itself are counted if the config says so
    acceptance  made for this head and these n-grams, scores the nodes; None leaves upstream's
                weights
    """

    def __init__(
        self,
        head: DartHead,
        target: DraftingTarget,
        store: NgramStore | None,
        config: TreeConfig,
        acceptance: AcceptanceModel | None = None,
    ) -> None:
        self.head = head
        self.target = target
        self.store = store
        self.config = config
        self.acceptance = acceptance
        self.aux_layers = target.draft_layers
        self.max_tree_size = config.size + 1
        self.context_store: ContextStore | None = None
        self._device = head.norm.weight.device

    def start(
        self, prompt_ids: list[int], token: int, aux_hidden: torch.Tensor, capacity: int
    ) -> None:
        """Begin a text: the prompt, the target's first token, the prompt's aux states [T, 3Ht]."""
        rows = capacity + self.head.config.draft_length
        self._cache = KVCache(rows, [self._device])
        self._rotary = self.head.rotary(rows)
        self._pending = ([*prompt_ids[1:], token], aux_hidden)
        self._history = [*prompt_ids, token][-_LONGEST_CONTEXT:]
        self.context_store = None
        if self.config.context_order > 0:
            self.context_store = ContextStore(self.config.context_order)
            self.context_store.append([*prompt_ids, token])

    def propose(self, max_depth: int, clock: StageClock) -> DraftTree:
        """Draft a tree of at most `max_depth` levels behind the last token."""
        if max_depth == 0:
            return DraftTree.root_only(self._history[-1])
        successors, aux_hidden = self._pending
        embeddings = self.target.embed(successors).to(self._device)
        aux_hidden = aux_hidden.to(self._device)
        hidden = self.head(aux_hidden[None], embeddings[None], self._cache, self._rotary)
        logits = self.head.logits(hidden[:max_depth])  # [L, Vd]
        candidates = min(self.config.top_k, logits.shape[-1])
        best, ids = logits.topk(candidates, dim=-1)  # [L, k], falling
        probabilities = best.softmax(dim=-1).float().cpu().numpy()
        tokens = self.head.draft_to_target[ids].cpu().numpy()
        clock.lap("draft")
        acceptance = self.acceptance
        tree = search_tree(
            tokens,
            probabilities if acceptance is None else scaled_odds(probabilities),
            self.store,
            self._history,
            eos_token=self.target.eos_token_ids,
            tree_size=self.config.size,
            beam_width=self.config.beam_width,
            ngram_weight=self.config.ngram_weight,
            acceptance=None if acceptance is None else acceptance.coefficients,
            context_store=self.context_store,
            context_acceptance=None if acceptance is None else acceptance.context,
            min_probability=0.0 if acceptance is None else self.config.min_probability,
        )
        if acceptance is not None:
            tree = _with_draft_probabilities(tree, probabilities)
        clock.lap("search")
        return tree

    def observe(self, tokens: list[int], aux_hidden: torch.Tensor) -> None:
        """Take the step's tokens and the aux states [len(tokens), 3Ht] of their predecessors."""
        self._pending = (tokens, aux_hidden)
        self._history = [*self._history, *tokens][-_LONGEST_CONTEXT:]
        if self.context_store is not None:
            self.context_store.append(tokens)


def _with_draft_probabilities(tree: DraftTree, probabilities: np.ndarray) -> DraftTree:
    """The tree with the head's probabilities [L, k] in the place of their odds."""
    assert tree.ranks is not None
    shown = np.where(tree.ranks < 0, np.float32(0), probabilities[tree.depths - 1, tree.ranks])
    shown[0] = 1
    return replace(tree, draft_probs=shown)
