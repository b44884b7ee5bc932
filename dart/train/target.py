"""Training of the target: a Qwen3 model from nothing on packed documents.

Knows the model's sizes, the loss and the mixture's schedule. The model is
transformers' own Qwen3ForCausalLM, so what is saved loads anywhere.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from dart.train.dataset import Batch, Packer, Shard
from dart.train.tokenizer import save_tokenizer
from dart.train.trainer import LoopSettings, train

LossSums = Callable[..., tuple[torch.Tensor, torch.Tensor]]

MIXTURE_EARLY = {"synthetic": 0.25, "short": 0.36, "long": 0.22, "plain": 0.17}
MIXTURE_LATE = {"synthetic": 0.42, "short": 0.46, "long": 0.10, "plain": 0.02}
"""Share of tokens by pool, before and at the end of the decay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTraining(LoopSettings):
    """Settings of one target run."""

    hidden_size: int = 192
    intermediate_size: int = 512
    layers: int = 8
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 32
    max_positions: int = 1024
    rows: int = 16
    length: int = 384
    prompt_weight: float = 0.2
    matrix_rate: float = 5e-3
    vector_rate: float = 4e-3
    weight_decay: float = 0.05
    decay: float = 0.4
    save_every: int = 250


def build_target(
    settings: TargetTraining, vocab_size: int, tokenizer: PreTrainedTokenizerFast | None
) -> Qwen3ForCausalLM:
    """Return an untrained target; residual branches start at zero."""
    eos: Any = tokenizer.eos_token_id if tokenizer else None
    pad: Any = tokenizer.pad_token_id if tokenizer else None
    config = Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=settings.hidden_size,
        intermediate_size=settings.intermediate_size,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.kv_heads,
        head_dim=settings.head_dim,
        tie_word_embeddings=True,
        max_position_embeddings=settings.max_positions,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        bos_token_id=None,
        eos_token_id=eos,
        pad_token_id=pad,
    )
    torch.manual_seed(settings.seed)
    config._attn_implementation = "sdpa"
    model = Qwen3ForCausalLM(config)
    layers: Any = model.model.layers
    for layer in layers:
        nn.init.zeros_(layer.self_attn.o_proj.weight)
        nn.init.zeros_(layer.mlp.down_proj.weight)
    if tokenizer:
        model.generation_config = GenerationConfig(
            eos_token_id=[eos, pad], pad_token_id=pad, do_sample=False
        )
    return model


def packed_mask(segments: torch.Tensor) -> torch.Tensor:
    """Return the bool mask [B, 1, T, T]: a token sees its own document up to itself."""
    length = segments.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    return ((segments[:, :, None] == segments[:, None, :]) & causal)[:, None]


def loss_sums(
    model: Qwen3ForCausalLM,
    tokens: torch.Tensor,
    labels: torch.Tensor,
    weights: torch.Tensor,
    positions: torch.Tensor,
    segments: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weighted sum of the cross-entropy over tensors [B, T], and of the weights."""
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.model(
            input_ids=tokens,
            attention_mask=packed_mask(segments),
            position_ids=positions,
            use_cache=False,
        ).last_hidden_state
        logits = functional.linear(hidden, model.lm_head.weight)
    losses = functional.cross_entropy(
        logits.float().flatten(0, 1), labels.flatten(), reduction="none"
    )
    return (losses * weights.flatten()).sum(), weights.sum()


@torch.no_grad()
def evaluate_loss(loss: LossSums, model: Qwen3ForCausalLM, batches: list[Batch]) -> float:
    """Return the mean loss on the answers of fixed batches."""
    total = weight = 0.0
    for batch in batches:
        batch_loss, batch_weight = loss(model, *batch)
        total, weight = total + float(batch_loss), weight + float(batch_weight)
    return total / max(weight, 1.0)


def mixture_at(progress: float, decay: float) -> dict[str, float]:
    """Return the share of each pool at `progress` (0 to 1): fixed, then linear to the late one."""
    late = min(1.0, max(0.0, (progress - (1.0 - decay)) / decay))
    return {
        pool: (1 - late) * share + late * MIXTURE_LATE[pool]
        for pool, share in MIXTURE_EARLY.items()
    }


def train_target(
    settings: TargetTraining,
    shards: dict[str, Shard],
    held_out: dict[str, Shard],
    tokenizer: PreTrainedTokenizerFast | None,
    vocab_size: int,
    out: Path,
    *,
    stop_after: int | None = None,
) -> Qwen3ForCausalLM | None:
    """Train or resume a target in folder `out`; return it, or None if stopped before its end.

    stop_after     end early after this many steps of this call, as a signal would.
    """
    model = build_target(settings, vocab_size, tokenizer)
    packing = {"rows": settings.rows, "length": settings.length}
    packer = Packer(shards, seed=settings.seed, prompt_weight=settings.prompt_weight, **packing)
    checker = Packer(held_out, seed=0, prompt_weight=0.0, **packing)
    checks = {
        name: [checker.next_batch(mixture) for _ in range(3)]
        for name, mixture in (
            ("synthetic", {"synthetic": 1.0}),
            ("corpus", {"short": 0.7, "long": 0.3}),
        )
        if any(len(held_out[pool]) for pool in mixture)
    }
    loss = torch.compile(loss_sums) if settings.compile else loss_sums

    def batch_loss(progress: float) -> tuple[torch.Tensor, torch.Tensor]:
        batch = packer.next_batch(mixture_at(progress, settings.decay))
        total, weight = loss(model, *batch)
        return total / weight, batch.segments

    def check() -> dict[str, Any]:
        return {f"held_out_{name}": evaluate_loss(loss, model, b) for name, b in checks.items()}

    has_ended = train(
        "target", settings, model, packer, batch_loss, check, out, stop_after=stop_after
    )
    return model if has_ended else None


def save_target(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write the target with weights rounded to 16 bits; it runs in float32, as config.json says."""
    config = copy.deepcopy(model.config)
    rounded = Qwen3ForCausalLM(config)
    rounded.load_state_dict(model.state_dict())
    rounded.generation_config = model.generation_config
    rounded.half().save_pretrained(folder)
    path = folder / "config.json"
    fields = json.loads(path.read_text(encoding="utf-8"))
    fields["dtype"] = "float32"
    path.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
    save_tokenizer(tokenizer, folder)


def load_target(folder: Path) -> Qwen3ForCausalLM:
    """Load a target for generation or for the training of a head: float32, frozen."""
    model = Qwen3ForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="sdpa"
    )
    return model.eval().requires_grad_(False)
