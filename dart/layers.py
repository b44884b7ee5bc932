"""The one transformer layer that both kinds of draft head are made of.

Module names are the checkpoint's. Knows nothing about drafting, trees or the target. Training uses
the same modules with a mask and positions of its own.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import nn
from torch.nn import functional

from dart.config import HeadConfig


class Rows(Protocol):
    """Keys and values of earlier rows: the KV cache of one layer, or training's stand-in for it."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append rows [B, K, T, d] and return all, [B, K, past + T, d]."""
        ...


class RMSNorm(nn.Module):
    """Root-mean-square norm: float32 inside, cast back, then the weight."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """[..., size] -> the same shape and dtype."""
        if states.dtype == torch.float32:
            return functional.rms_norm(states, self.weight.shape, self.weight, self.eps)
        wide = states.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(states.dtype)


def rotary_tables(
    config: HeadConfig, positions: torch.Tensor, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines [..., head_dim] for positions [...], half-split form, made in float32.

    With `rope_scaling` upstream ignores `rope_theta` and uses 10000 (CHECKPOINT_FORMATS 2.2).
    """
    theta, size = config.rope_theta, config.head_dim
    angles_at = positions.float()
    if config.rope_scaling_type is not None:
        theta, factor = 10000.0, config.rope_scaling_factor
        if config.rope_scaling_type == "linear":
            angles_at = angles_at / factor
        else:
            length, limit = int(positions.max()) + 1, config.max_position_embeddings
            if length > limit:
                stretch = factor * length / limit - (factor - 1)
                theta *= stretch ** (size / (size - 2))
    exponents = torch.arange(0, size, 2, device=positions.device).float() / size
    angles = angles_at[..., None] * (1.0 / theta**exponents)
    angles = torch.cat([angles, angles], dim=-1)  # [..., head_dim]
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding of [B, heads, T, d] by tables [T, d] or [B, 1, T, d]."""
    half = states.shape[-1] // 2
    swapped = torch.cat([-states[..., half:], states[..., :half]], dim=-1)
    return states * cos + swapped * sin


class Attention(nn.Module):
    """Grouped-query attention over rows of width 2H."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.heads, self.groups = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = config.head_dim
        width = 2 * config.hidden_size
        self.q_proj = nn.Linear(width, self.heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(width, self.groups * self.head_dim, bias=False)
        self.v_proj = nn.Linear(width, self.groups * self.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head_dim, config.hidden_size, bias=False)

    def forward(
        self,
        states: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        bias: torch.Tensor | None,
        cache: Rows | None,
        queries_from: int = 0,
    ) -> torch.Tensor:
        """Attend.

        states        [B, T, 2H]
        cos, sin      rotary tables [T, d] or [B, 1, T, d]
        bias          [.., T - queries_from, past + T], added to the scores; None is plain causal
        cache         a one-layer cache whose rows come first; its new rows are not committed here
        queries_from  rows before this one serve as keys alone
        returns       [B, T - queries_from, H]
        """
        batch, rows, _ = states.shape
        shape = (batch, rows, self.heads, self.head_dim)
        queries = self.q_proj(states).view(shape).transpose(1, 2)[:, :, queries_from:]
        shape = (batch, rows, self.groups, self.head_dim)
        keys = self.k_proj(states).view(shape).transpose(1, 2)
        values = self.v_proj(states).view(shape).transpose(1, 2)
        queries = rotate(queries, cos[..., queries_from:, :], sin[..., queries_from:, :])
        keys = rotate(keys, cos, sin)
        if cache is not None:
            keys, values = cache.update(keys, values, 0)
        mixed = functional.scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask=bias,
            is_causal=bias is None,
            enable_gqa=self.heads > self.groups,
        )
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    """SiLU-gated feed-forward block."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """[..., H] -> [..., H]."""
        return self.down_proj(functional.silu(self.gate_proj(states)) * self.up_proj(states))


class DraftLayer(nn.Module):
    """A decoder layer whose attention reads [embedding | feature] pairs."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.hidden_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.mlp = MLP(config)

    def pair(self, features: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        """Attention input [.., T, 2H]: normed embeddings first, then normed features."""
        return torch.cat([self.input_layernorm(embeddings), self.hidden_norm(features)], dim=-1)

    def forward(
        self,
        pairs: torch.Tensor,
        residual: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        bias: torch.Tensor | None,
        cache: Rows | None = None,
        keep_from: int = 0,
    ) -> torch.Tensor:
        """Run the layer, for the rows from `keep_from` on.

        pairs     [B, T, 2H]; residual  [B, T, H], un-normed
        bias      as in Attention.forward
        returns   [B, T - keep_from, H], before the head's final norm
        """
        states = residual[:, keep_from:] + self.self_attn(pairs, cos, sin, bias, cache, keep_from)
        return states + self.mlp(self.post_attention_layernorm(states))
