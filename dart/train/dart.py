"""Training of the DART head, with prefix-shared masks. The head itself is `dart.dart_head`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import Qwen3ForCausalLM

from dart.dart_head import DartHead
from dart.layers import rotary_tables
from dart.train.dataset import Shard
from dart.train.head import HeadTraining, Objective, start_head, train_head
from dart.train.masking import training_mask, training_positions

GAMMA = 0.6  # weight of a position relative to the one before it; arXiv 2601.19278


@dataclass(frozen=True, slots=True, kw_only=True)
class DartTraining(HeadTraining):
    """Settings of one head run."""

    draft_length: int = 7


def build_head(target: Qwen3ForCausalLM, *, draft_length: int, seed: int) -> DartHead:
    """Return an untrained head.

    The final norm is applied twice, so each application starts with the root of the target's
    weight.
    """
    head = start_head(DartHead, target, draft_length=draft_length, seed=seed)
    with torch.no_grad():
        head.midlayer.mask_rep.normal_(std=0.5)
        head.norm.weight.copy_(target.model.norm.weight.clamp(min=1e-3).sqrt())
    return head


def predictions(
    head: DartHead,
    aux_hidden: torch.Tensor,
    embeddings: torch.Tensor,
    positions: torch.Tensor,
    segments: torch.Tensor,
    anchors: torch.Tensor,
) -> torch.Tensor:
    """Return the head's logits [B, A, P + 1, Vd] behind every anchor, all in one forward.

    aux_hidden     [B, T, 3H]; embeddings  [B, T, H] of each row's next token
    """
    block = head.config.draft_length
    batch, length, _ = aux_hidden.shape
    count = anchors.shape[1]
    pairs, residual = head.clean_rows(aux_hidden, embeddings)
    mask_pairs, mask_residual = head.mask_rows(batch, count * block)
    pairs = torch.cat([pairs, mask_pairs.to(pairs.dtype)], dim=1)  # [B, T + A*P, 2H]
    residual = torch.cat([residual, mask_residual.to(residual.dtype)], dim=1)
    where = training_positions(positions, anchors, block)
    cos, sin = rotary_tables(head.config, where, pairs.dtype)
    mask = training_mask(segments, anchors, block)
    hidden = head.midlayer(pairs, residual, cos[:, None], sin[:, None], mask)
    size = hidden.shape[-1]
    first = hidden.gather(1, anchors[:, :, None].expand(-1, -1, size))[:, :, None]  # [B, A, 1, H]
    later = hidden[:, length:].view(batch, count, block, size)
    return head.logits(head.norm(torch.cat([first, later], dim=2)))


def train_dart(
    settings: DartTraining,
    target: Qwen3ForCausalLM,
    shards: dict[str, Shard],
    held_out: dict[str, Shard],
    out: Path,
    *,
    stop_after: int | None = None,
) -> DartHead | None:
    """Train or resume a DART head; all else as in `train_head`."""
    head = build_head(target, draft_length=settings.draft_length, seed=settings.seed)
    objective = Objective(predictions, settings.draft_length + 1, GAMMA)
    return train_head(
        "dart", settings, objective, head, target, shards, held_out, out, stop_after=stop_after
    )
