"""What rows see while a head is trained behind many prefixes ("anchors") of one sequence at once.

DART, prefix-shared masked training: rows are T clean rows followed by A blocks of P mask rows.
Clean rows are causal inside their document; a block sees the clean rows up to its anchor and the
earlier rows of its own block; nothing sees another block. EAGLE3, training-time test: see
`unrolled_mask`.

source     arXiv 2601.19278, "prefix-shared masked training".
"""

from __future__ import annotations

import torch


def training_mask(segments: torch.Tensor, anchors: torch.Tensor, block: int) -> torch.Tensor:
    """Return the bool mask [B, 1, T + A*P, T + A*P], True where a row sees another.

    segments   int64 [B, T], number of the document each clean row belongs to
    anchors    int64 [B, A], the clean row each block follows
    block      P, mask rows of a block
    """
    batch, length = segments.shape
    count = anchors.shape[1]
    rows = torch.arange(length)
    same = segments[:, :, None] == segments[:, None, :]
    clean = same & (rows[:, None] >= rows)  # [B, T, T]
    prefix = clean.gather(1, anchors[:, :, None].expand(-1, -1, length))  # [B, A, T]
    prefix = prefix.repeat_interleave(block, dim=1)  # [B, A*P, T]
    masks = torch.arange(count * block)
    own = (masks[:, None] // block == masks // block) & (masks[:, None] >= masks)  # [A*P, A*P]
    above = torch.cat([clean, clean.new_zeros(batch, length, count * block)], dim=2)
    below = torch.cat([prefix, own.expand(batch, -1, -1)], dim=2)
    return torch.cat([above, below], dim=1)[:, None]


def training_positions(positions: torch.Tensor, anchors: torch.Tensor, block: int) -> torch.Tensor:
    """Return the position of every row [B, T + A*P]; a block goes on where its anchor is."""
    after = positions.gather(1, anchors)[:, :, None] + 1 + torch.arange(block)  # [B, A, P]
    return torch.cat([positions, after.flatten(1)], dim=1)


def draw_anchors(
    weights: torch.Tensor, segments: torch.Tensor, count: int, generator: torch.Generator
) -> torch.Tensor:
    """Return `count` random rows [B, A] of each sequence whose first prediction is trained.

    weights    float [B, T], 1 where the next token is part of an answer

    Row i predicts token i + 2, so the label one row further decides.
    """
    is_candidate = torch.zeros_like(weights)
    same = segments[:, 1:] == segments[:, :-1]
    is_candidate[:, :-1] = (weights[:, 1:] > 0) & same
    # Where there are fewer candidates than anchors the rest falls on untrained rows, whose weight
    # is 0.
    chosen = torch.multinomial(is_candidate + 1e-7, count, generator=generator)
    return chosen.sort(dim=1).values


def prediction_rows(
    weights: torch.Tensor, segments: torch.Tensor, anchors: torch.Tensor, count: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return where the target's logits for every prediction of an anchor lie, and which count.

    count      predictions S behind an anchor
    returns    int64 [B, A, S], rows of the target; bool of the same shape

    Prediction j of anchor i is compared with the target at row i + 1 + j, as long as the answer
    lasts.
    """
    length = weights.shape[1]
    wanted = anchors[:, :, None] + 1 + torch.arange(count)
    inside = wanted < length
    rows = wanted.clamp(max=length - 1)
    flat = rows.flatten(1)
    same = segments.gather(1, flat).view_as(rows) == segments.gather(1, anchors)[:, :, None]
    counts = weights.gather(1, flat).view_as(rows) > 0
    return rows, inside & same & counts


def unrolled_mask(segments: torch.Tensor, anchors: torch.Tensor, step: int) -> torch.Tensor:
    """Return the bool mask [B, 1, A, T + step*A] of the unrolled step `step` >= 1.

    Its rows, one an anchor, see the clean rows up to their anchor and themselves in every unrolled
    step so far: what a drafted token sees, of which the anchor is the last known one.

    source     arXiv 2503.01840, the attention masks of training-time test
    """
    batch, length = segments.shape
    count = anchors.shape[1]
    same = segments[:, None, :] == segments.gather(1, anchors)[:, :, None]
    prefix = same & (torch.arange(length) <= anchors[:, :, None])  # [B, A, T]
    own = torch.eye(count, dtype=torch.bool).repeat(1, step)  # [A, step*A]
    return torch.cat([prefix, own.expand(batch, -1, -1)], dim=2)[:, None]
