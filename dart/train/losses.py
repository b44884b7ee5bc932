"""A head's loss: position-weighted divergence from the target."""

from __future__ import annotations

import torch


def divergence(target_logits: torch.Tensor, draft_logits: torch.Tensor) -> torch.Tensor:
    """Return KL(target || draft) of each row: [.., V] and [.., V] -> float32 [..]."""
    target = target_logits.float().log_softmax(-1)
    draft = draft_logits.float().log_softmax(-1)
    return (target.exp() * (target - draft)).sum(-1)


def position_weighted(
    divergences: torch.Tensor, counts: torch.Tensor, gamma: float
) -> torch.Tensor:
    """Return sum_t gamma^(t-1) KL_t, averaged over the anchors that count.

    divergences, counts     [B, A, S]
    gamma                   weight of a prediction relative to the one before it
    """
    weights = gamma ** torch.arange(divergences.shape[-1]) * counts
    return (divergences * weights).sum() / counts[..., 0].sum().clamp(min=1)
