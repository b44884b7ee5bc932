"""Drawing the target's own token: argmax, or Gumbel-max with noise keyed by (seed, position).

The noise is a pure function of (seed, absolute position, token id). Two decoders that see the same
logits at the same position draw the same token, so losslessness is an equality of sequences at any
temperature. It is computed by integer hashing on whatever device the logits live on.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dart.config import SamplingConfig

_MASK32 = 0xFFFFFFFF
_MASK64 = 0xFFFFFFFFFFFFFFFF
_BEYOND = 8  # candidates looked at behind the last that top-k lets through


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


def _argmax(scores: torch.Tensor) -> torch.Tensor:
    """The first best of each row, int64 [N]; on a CPU by NumPy, which is ten times as fast."""
    if scores.device.type == "cpu" and scores.dtype == torch.float32:
        return torch.from_numpy(scores.numpy().argmax(axis=-1))
    return scores.argmax(dim=-1)


@dataclass(frozen=True, slots=True)
class _Filtered:
    """The best candidates of each row, best first, and which of them the filters let through.

    scores  [N, W] logits over temperature, falling; kept  bool [N, W]
    before  [N, W] probability before each candidate; None without top-p
    """

    scores: torch.Tensor
    kept: torch.Tensor
    before: torch.Tensor | None

    def doubtful(self, rows: list[int], error: torch.Tensor, top_p: float) -> torch.Tensor:
        """Candidates that a rounding error [R, 1] could move across the edge, bool [R, W]."""
        scores, kept = self.scores[rows], self.kept[rows]
        last_in = scores.masked_fill(~kept, float("inf")).amin(dim=-1, keepdim=True)
        first_out = scores.masked_fill(kept, float("-inf")).amax(dim=-1, keepdim=True)
        doubtful = torch.where(kept, scores - first_out <= error, last_in - scores <= error)
        if self.before is not None:
            # Scores that are off by half of `error` shift the mass before a token by less.
            near = (self.before[rows] - top_p).abs() <= error
            near[:, 0] = False  # the first always stays
            doubtful |= near
        return doubtful


@dataclass(frozen=True, slots=True)
class Draw:
    """The target's own token for each row, and what is needed to say how firm that choice is.

    tokens     int64 [N] on the logits' device
    logits     [N, V] what they were drawn from
    perturbed  [N, W] scores with noise: of the whole vocabulary, or of `filtered`'s candidates;
               None where the best logit wins
    """

    config: SamplingConfig
    tokens: torch.Tensor
    logits: torch.Tensor
    perturbed: torch.Tensor | None = None
    filtered: _Filtered | None = None

    def is_firm(self, rows: list[int], rounding: float) -> list[bool]:
        """Whether rounding leaves these rows' tokens as they are.

        rounding  how far the difference of two logits of a row may be off, as a share of the row's
                  best logit (of 1 where that is smaller)
        """
        logits = self.logits[rows]
        two = min(2, logits.shape[-1])
        if self.perturbed is None:
            best = logits.topk(two, dim=-1).values.tolist()  # read once, compared here: few numbers
            return [top[0] - top[-1] > rounding * max(abs(top[0]), 1.0) for top in best]
        peaks = logits.amax(dim=-1, keepdim=True).float()
        error = rounding * peaks.abs().clamp(min=1.0) / self.config.temperature  # [R, 1]
        perturbed = self.perturbed[rows]
        if self.filtered is None:
            top = perturbed.topk(two, dim=-1).values
            return (top[:, :1] - top[:, -1:] > error)[:, 0].tolist()
        doubtful = self.filtered.doubtful(rows, error, self.config.top_p)
        perturbed = perturbed.masked_fill(~(self.filtered.kept[rows] | doubtful), float("-inf"))
        top, index = perturbed.topk(two, dim=-1)
        is_doubtful = doubtful.gather(1, index[:, :1])
        return ((top[:, :1] - top[:, -1:] > error) & ~is_doubtful)[:, 0].tolist()


class Sampler:
    """Draws one token per row of logits."""

    def __init__(self, config: SamplingConfig) -> None:
        self.config = config

    def draw(self, logits: torch.Tensor, positions: list[int]) -> Draw:
        """The target's own token for each row.

        logits     [N, V], any float dtype
        positions  N absolute positions of the tokens being drawn
        """
        config = self.config
        if config.is_greedy:
            return Draw(config, _argmax(logits), logits)
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
            perturbed = scores + gumbel_noise(config.seed, distinct, tokens)[rows]
            return Draw(config, _argmax(perturbed), logits, perturbed)
        # A few more than may be drawn: whether the last one let through is sure depends on them.
        width = min(limit + _BEYOND, vocabulary)
        best, tokens = scores.topk(width, dim=-1)  # [N, W], falling
        kept = (torch.arange(width, device=scores.device) < limit).expand(best.shape)
        before = None
        if has_nucleus:
            # Of the full distribution: a token stays if the mass before it is below top_p.
            probabilities = torch.exp(best - scores.logsumexp(dim=-1, keepdim=True))
            before = probabilities.cumsum(dim=-1) - probabilities
            kept = kept & (before < config.top_p)
            kept[:, 0] = True  # the first always stays, whatever the rounding
        if width < 1024:
            noise = gumbel_noise(config.seed, positions, tokens)
        else:
            full = torch.arange(vocabulary, device=scores.device)
            noise = gumbel_noise(config.seed, distinct, full)[rows].gather(1, tokens)
        perturbed = best + noise
        pick = perturbed.masked_fill(~kept, float("-inf")).argmax(dim=-1, keepdim=True)
        chosen = tokens.gather(1, pick)[:, 0]
        return Draw(config, chosen, logits, perturbed, _Filtered(best, kept, before))
