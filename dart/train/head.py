"""Training of a draft head on a frozen target: the same for every kind of head.

Knows the head's rows (row i: aux states of token i, embedding of token i + 1, predicts token i +
2), its loss and its start from the target's own weights. What a kind of head computes behind an
anchor comes as a function.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.nn import functional
from transformers import Qwen3ForCausalLM

from dart.config import HeadConfig
from dart.draft_head import DraftHead
from dart.train.dataset import Batch, Packer, Shard
from dart.train.losses import divergence, position_weighted
from dart.train.masking import draw_anchors, prediction_rows
from dart.train.target import packed_mask
from dart.train.trainer import LoopSettings, train

Head = TypeVar("Head", bound=DraftHead)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadTraining(LoopSettings):
    """Settings of one head run.

    anchors    rows of a sequence behind which the head predicts
    own_share  of the tokens, those that the target wrote itself; the rest is corpus
    """

    rows: int = 8
    length: int = 384
    anchors: int = 96
    own_share: float = 0.75
    clip: float = 0.5


@dataclass(frozen=True, slots=True)
class Objective:
    """What a kind of head is trained to do.

    predict  head, aux_hidden [B, T, 3H], embeddings [B, T, H] of each row's next token, positions,
             segments [B, T] and anchors [B, A] -> logits [B, A, count, Vd]
    count    predictions behind an anchor; the first is of the token after the anchor's next one
    gamma    weight of a prediction relative to the one before it
    """

    predict: Callable[..., torch.Tensor]
    count: int
    gamma: float


def start_head(kind: type[Head], target: Qwen3ForCausalLM, *, draft_length: int, seed: int) -> Head:
    """Return a head shaped like the target that starts as a weak copy of its last layers.

    Its output matrix is the target's, its residual the target's highest tap, its branches zero.
    """
    config = target.config
    torch.manual_seed(seed)
    head = kind(
        HeadConfig(
            hidden_size=config.hidden_size,
            target_hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_attention_heads=config.num_attention_heads,
            num_key_value_heads=config.num_key_value_heads or config.num_attention_heads,
            head_dim=config.head_dim,
            vocab_size=config.vocab_size,
            draft_vocab_size=config.vocab_size,
            draft_length=draft_length,
            max_position_embeddings=config.max_position_embeddings,
            rope_theta=10000.0,
            rms_norm_eps=config.rms_norm_eps,
        )
    )
    size = config.hidden_size
    with torch.no_grad():
        head.fc.weight.normal_(std=0.02)
        head.fc.weight[:, 2 * size :] += torch.eye(size)
        head.midlayer.self_attn.o_proj.weight.zero_()
        head.midlayer.mlp.down_proj.weight.zero_()
        head.norm.weight.copy_(target.model.norm.weight)
        head.lm_head.weight.copy_(target.lm_head.weight)
    return head


def aux_layers(target: Qwen3ForCausalLM) -> tuple[int, int, int]:
    """Layers whose inputs the head reads."""
    count = target.config.num_hidden_layers
    return 2, count // 2, count - 3


@torch.no_grad()
def tap_scales(target: Qwen3ForCausalLM, batch: Batch) -> torch.Tensor:
    """Return the root mean square of each tap, repeated over its features: [3H].

    A target's residual stream grows to tens or hundreds; unscaled it would drown what the head's
    own layer adds. Training divides the taps by these numbers, `fold_scales` puts them into `fc`.
    """
    states = target.model(
        input_ids=batch.tokens,
        attention_mask=packed_mask(batch.segments),
        position_ids=batch.positions,
        use_cache=False,
        output_hidden_states=True,
    ).hidden_states
    taps = [states[layer][batch.segments >= 0] for layer in aux_layers(target)]
    return torch.cat([tap.pow(2).mean().sqrt().expand(tap.shape[-1]) for tap in taps])


@torch.no_grad()
def fold_scales(head: Head, scales: torch.Tensor) -> Head:
    """Return the head for taps as they are, made of one trained on taps divided by `scales`."""
    folded = copy.deepcopy(head)
    folded.fc.weight /= scales
    return folded


def head_loss(
    objective: Objective,
    head: DraftHead,
    target: Qwen3ForCausalLM,
    tokens: torch.Tensor,
    weights: torch.Tensor,
    positions: torch.Tensor,
    segments: torch.Tensor,
    anchors: torch.Tensor,
    scales: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the loss of a batch, which predictions hit the target's argmax, and which count.

    returns    scalar; bool [B, A, count] twice
    """
    with torch.autocast("cpu", torch.bfloat16):
        with torch.no_grad():
            output = target.model(
                input_ids=tokens,
                attention_mask=packed_mask(segments),
                position_ids=positions,
                use_cache=False,
                output_hidden_states=True,
            )
            states = output.hidden_states
            aux_hidden = torch.cat([states[layer] for layer in aux_layers(target)], dim=-1)
            aux_hidden = aux_hidden / scales
            embeddings = target.model.embed_tokens(tokens.roll(-1, dims=1))
            rows, counts = prediction_rows(weights, segments, anchors, objective.count)
            size = output.last_hidden_state.shape[-1]
            hidden = output.last_hidden_state.gather(
                1, rows.flatten(1)[:, :, None].expand(-1, -1, size)
            ).view(*rows.shape, size)
            target_logits = functional.linear(hidden, target.lm_head.weight)
        logits = objective.predict(head, aux_hidden, embeddings, positions, segments, anchors)
    loss = position_weighted(divergence(target_logits, logits), counts, objective.gamma)
    return loss, logits.argmax(-1) == target_logits.argmax(-1), counts


def train_head(
    name: str,
    settings: HeadTraining,
    objective: Objective,
    head: Head,
    target: Qwen3ForCausalLM,
    shards: dict[str, Shard],
    held_out: dict[str, Shard],
    out: Path,
    *,
    stop_after: int | None = None,
) -> Head | None:
    """Train or resume a head in folder `out`; return it, or None if stopped before its end.

    name           of the kind, in what the run reports
    shards         pools "own" (the target's continuations) and "corpus"
    stop_after     end early after this many steps of this call, as a signal would
    """
    target.requires_grad_(False)
    packing = {"rows": settings.rows, "length": settings.length, "prompt_weight": 0.0}
    packer = Packer(shards, seed=settings.seed, **packing)
    mixture = {"own": settings.own_share, "corpus": 1.0 - settings.own_share}
    anchors_by = torch.Generator().manual_seed(settings.seed)
    checks = _fixed_batches(held_out, settings, packing)
    scales = tap_scales(target, Packer(shards, seed=settings.seed, **packing).next_batch(mixture))
    loss = torch.compile(head_loss) if settings.compile else head_loss

    def batch_loss(progress: float) -> tuple[torch.Tensor, torch.Tensor]:
        batch = packer.next_batch(mixture)
        anchors = draw_anchors(batch.weights, batch.segments, settings.anchors, anchors_by)
        value, _, _ = loss(
            objective,
            head,
            target,
            batch.tokens,
            batch.weights,
            batch.positions,
            batch.segments,
            anchors,
            scales,
        )
        return value, batch.segments

    def check() -> dict[str, Any]:
        return evaluate_head(objective, head, target, checks, scales) if checks else {}

    has_ended = train(
        name,
        settings,
        head,
        packer,
        batch_loss,
        check,
        out,
        generators={"anchors": anchors_by},
        stop_after=stop_after,
    )
    return fold_scales(head, scales) if has_ended else None


def _fixed_batches(
    held_out: dict[str, Shard], settings: HeadTraining, packing: dict[str, Any]
) -> list[tuple[Batch, torch.Tensor]]:
    if not any(len(shard) for shard in held_out.values()):
        return []
    packer = Packer(held_out, seed=0, **packing)
    generator = torch.Generator().manual_seed(0)
    batches = []
    for _ in range(3):
        batch = packer.next_batch(dict.fromkeys(held_out, 1.0))
        anchors = draw_anchors(batch.weights, batch.segments, settings.anchors, generator)
        batches.append((batch, anchors))
    return batches


@torch.no_grad()
def evaluate_head(
    objective: Objective,
    head: DraftHead,
    target: Qwen3ForCausalLM,
    batches: list[tuple[Batch, torch.Tensor]],
    scales: torch.Tensor,
) -> dict[str, Any]:
    """Return the loss and the accuracy by position on fixed batches."""
    total = 0.0
    hits = torch.zeros(objective.count)
    counted = torch.zeros_like(hits)
    for batch, anchors in batches:
        value, hit, counts = head_loss(
            objective,
            head,
            target,
            batch.tokens,
            batch.weights,
            batch.positions,
            batch.segments,
            anchors,
            scales,
        )
        total += float(value) / len(batches)
        hits = hits + (hit & counts).sum((0, 1))
        counted = counted + counts.sum((0, 1))
    accuracy = [round(float(value), 4) for value in hits / counted]
    return {"held_out_loss": total, "held_out_accuracy": accuracy}
