"""Training of the EAGLE3 head: training-time test. The head itself is `dart.eagle3_head`.

The head is unrolled: in the first step it reads the target's aux states, in every further one its
own output of the step before, with the text's true tokens. So it learns on what it will meet when
it drafts. Every step's loss is the divergence from the target's distribution; features are not
compared with the target's.

source     arXiv 2503.01840, "training-time test"; the weights of the steps are those of the
           authors' code.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from transformers import Qwen3ForCausalLM

from dart.eagle3_head import Eagle3Head
from dart.layers import rotary_tables
from dart.train.dataset import Shard
from dart.train.head import HeadTraining, Objective, start_head, train_head
from dart.train.masking import unrolled_mask
from dart.train.target import packed_mask

GAMMA = 0.8  # weight of an unrolled step relative to the one before it


@dataclass(frozen=True, slots=True, kw_only=True)
class Eagle3Training(HeadTraining):
    """Settings of one head run.

    unrolled  steps S, the first one included
    """

    anchors: int = 192
    unrolled: int = 6


class UnrolledRows:
    """Keys and values of the steps so far, where the layer expects its KV cache."""

    def __init__(self) -> None:
        self._rows: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append a step's rows and return all."""
        if self._rows is None:
            self._rows = key_states, value_states
        else:
            keys, values = self._rows
            self._rows = (
                torch.cat([keys, key_states], dim=2),
                torch.cat([values, value_states], dim=2),
            )
        return self._rows


def predictions(
    head: Eagle3Head,
    aux_hidden: torch.Tensor,
    embeddings: torch.Tensor,
    positions: torch.Tensor,
    segments: torch.Tensor,
    anchors: torch.Tensor,
    *,
    unrolled: int,
) -> torch.Tensor:
    """Return the head's logits [B, A, S, Vd] of S steps behind every anchor.

    aux_hidden     [B, T, 3H]; embeddings  [B, T, H] of each row's next token
    """
    last = positions.shape[1] - 1
    rows = UnrolledRows()
    features = head.features(aux_hidden)
    tables = _tables(head, positions, features.dtype)
    hidden = head(features, embeddings, tables, packed_mask(segments), rows)  # [B, T, H]
    hidden = _at(hidden, anchors)  # [B, A, H]
    outputs = [hidden]
    for step in range(1, unrolled):
        # Rows beyond a document's end count nowhere; they need only be there.
        successors = _at(embeddings, (anchors + step).clamp(max=last))
        tables = _tables(head, positions.gather(1, anchors) + step, features.dtype)
        hidden = head(hidden, successors, tables, unrolled_mask(segments, anchors, step), rows)
        outputs.append(hidden)
    return head.logits(torch.stack(outputs, dim=2))


def _at(states: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Rows [B, A] of states [B, T, H]: [B, A, H]."""
    return states.gather(1, rows[:, :, None].expand(-1, -1, states.shape[-1]))


def _tables(
    head: Eagle3Head, positions: torch.Tensor, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotary tables [B, 1, T, d] for positions [B, T]."""
    cos, sin = rotary_tables(head.config, positions, dtype)
    return cos[:, None], sin[:, None]


def build_head(target: Qwen3ForCausalLM, *, seed: int) -> Eagle3Head:
    """Return an untrained head."""
    return start_head(Eagle3Head, target, draft_length=0, seed=seed)


def train_eagle3(
    settings: Eagle3Training,
    target: Qwen3ForCausalLM,
    shards: dict[str, Shard],
    held_out: dict[str, Shard],
    out: Path,
    *,
    stop_after: int | None = None,
) -> Eagle3Head | None:
    """Train or resume an EAGLE3 head; all else as in `train_head`."""
    head = build_head(target, seed=settings.seed)
    predict = partial(predictions, unrolled=settings.unrolled)
    objective = Objective(predict, settings.unrolled, GAMMA)
    return train_head(
        "eagle3", settings, objective, head, target, shards, held_out, out, stop_after=stop_after
    )
