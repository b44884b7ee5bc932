"""Drawing the target's own token: argmax, or Gumbel-max with noise keyed by (seed, position).

The noise is a pure function of (seed, absolute position, token id). Two decoders that see the same
logits at the same position draw the same token, so losslessness is an equality of sequences at any
temperature. It is computed by integer hashing on whatever device the logits live on.
"""

from __future__ import annotations

import torch

from dart.config import SamplingConfig

_MASK32 = 0xFFFFFFFF
_MASK64 = 0xFFFFFFFFFFFFFFFF


def _splitmix64(value: int) -> int:
    """One step of the splitmix64 generator (Steele, Lea, Flood 2014): 64 well-mixed bits."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK64
    return value ^ (value >> 31)


def _mix32(value: torch.Tensor) -> torch.Tensor:
    """MurmurHash3's 32-bit finaliser on int64 lanes; products wrap, the low 32 bits stay right."""
    value = ((value ^ (value >> 16)) * 0x85EBCA6B) & _MASK32
    value = ((value ^ (value >> 13)) * 0xC2B2AE35) & _MASK32
    return value ^ (value >> 16)


def gumbel_noise(seed: int, positions: list[int], tokens: torch.Tensor) -> torch.Tensor:
    """Standard Gumbel noise for (position, token) pairs.

    positions  R absolute positions
    tokens     int64 [V] or [R, V]; token ids the noise is for
    returns    float32 [R, V] on the tokens' device
    """
    keys = [_splitmix64(_splitmix64(seed) ^ (position & _MASK64)) for position in positions]
    low = torch.tensor([key & _MASK32 for key in keys], device=tokens.device)[:, None]  # [R, 1]
    high = torch.tensor([key >> 32 for key in keys], device=tokens.device)[:, None]
    bits = _mix32(_mix32((tokens * 0x9E3779B1 + low) & _MASK32) ^ high)  # [R, V]
    uniform = ((bits >> 8).to(torch.float32) + 0.5) * 2.0**-24  # in (0, 1)
    return -torch.log(-torch.log(uniform))


class Sampler:
    """Draws one token per row of logits."""

    def __init__(self, config: SamplingConfig) -> None:
        self.config = config

    def choose(self, logits: torch.Tensor, positions: list[int]) -> torch.Tensor:
        """The target's own token for each row.

        logits     [N, V], any float dtype
        positions  N absolute positions of the tokens being drawn
        returns    int64 [N] on the logits' device
        """
        config = self.config
        if config.is_greedy:
            return logits.argmax(dim=-1)
        scores = logits.float() / config.temperature
        vocabulary = scores.shape[-1]
        limit = min(config.top_k, vocabulary) if config.top_k > 0 else vocabulary
        has_nucleus = 1e-8 <= config.top_p < 1.0
        # Nodes of one depth share a position, hence their noise: draw it once per position.
        distinct = sorted(set(positions))
        row_of = {position: row for row, position in enumerate(distinct)}
        rows = torch.tensor([row_of[position] for position in positions], device=scores.device)
        if limit == vocabulary and not has_nucleus:
            tokens = torch.arange(vocabulary, device=scores.device)
            noise = gumbel_noise(config.seed, distinct, tokens)
            return (scores + noise[rows]).argmax(dim=-1)
        best, tokens = scores.topk(limit, dim=-1)  # [N, limit], falling
        if has_nucleus:
            # Of the full distribution: a token stays if the mass before it is below top_p.
            probabilities = torch.exp(best - scores.logsumexp(dim=-1, keepdim=True))
            before = probabilities.cumsum(dim=-1) - probabilities
            best = best.masked_fill((before >= config.top_p), float("-inf"))
            best[:, 0] = scores.amax(dim=-1)  # the first always stays, whatever the rounding
        if limit < 1024:
            noise = gumbel_noise(config.seed, positions, tokens)
        else:
            full = torch.arange(vocabulary, device=scores.device)
            noise = gumbel_noise(config.seed, distinct, full)[rows].gather(1, tokens)
        pick = (best + noise).argmax(dim=-1, keepdim=True)
        return tokens.gather(1, pick)[:, 0]
