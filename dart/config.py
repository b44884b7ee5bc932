"""Settings of a generation and of a draft head: frozen, checked when made, printable as JSON.

Knows ranges and defaults; knows nothing about files, models or devices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dart.errors import ConfigError

# Where DART's search reads n-grams: the store file, the text itself, both, or nowhere.
NGRAM_SOURCES = ("static", "context", "both", "none")
# How an n-gram store's file is kept in memory: see NgramStore.open.
NGRAM_RESIDENCE = ("mapped", "preloaded", "locked")
# What a node's score is: upstream's fixed weights, or the fitted probability of its acceptance.
SCORES = ("upstream", "fitted")
GREEDY_BELOW = 1e-5  # temperatures up to this one mean argmax, as upstream has it


def _require(holds: bool, name: str, value: object, expected: str) -> None:
    if not holds:
        raise ConfigError(f"{name} is {value!r}; expected {expected}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingConfig:
    """How the target's own token is drawn from its logits.

    The filters apply in upstream's order: temperature, top-p, top-k. `top_p` 0 or 1 and `top_k` 0
    switch a filter off. Equal `seed` and equal text give the equal token, whatever the decoder.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        finite = math.isfinite(self.temperature) and 0.0 <= self.temperature <= 100.0
        _require(finite, "temperature", self.temperature, "a number from 0 (greedy) to 100")
        _require(0.0 <= self.top_p <= 1.0, "top_p", self.top_p, "a number from 0 to 1")
        _require(self.top_k >= 0, "top_k", self.top_k, "0 (off) or a positive integer")
        _require(0 <= self.seed < 2**63, "seed", self.seed, "an integer from 0 to 2**63 - 1")

    @property
    def is_greedy(self) -> bool:
        """True where the token is the argmax and no noise is drawn."""
        return self.temperature <= GREEDY_BELOW


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeConfig:
    """The draft tree's shape (paper, Algorithm 1); `size` counts nodes without the root.

    min_probability  nodes that the target accepts with less than this probability are left out,
                     where an acceptance model says so; what a node must be worth on the device
    context_order    order of the n-grams counted in the text itself; 0: they are not
    """

    size: int = 60
    beam_width: int = 20
    top_k: int = 25
    ngram_weight: float = 0.5
    min_probability: float = 0.0
    context_order: int = 0

    def __post_init__(self) -> None:
        _require(0 <= self.size <= 1024, "tree size", self.size, "0 to 1024 drafted nodes")
        _require(1 <= self.beam_width <= 1024, "beam_width", self.beam_width, "1 to 1024")
        _require(1 <= self.top_k <= 1024, "tree top_k", self.top_k, "1 to 1024")
        weight = self.ngram_weight
        _require(math.isfinite(weight) and weight >= 0, "ngram_weight", weight, "a number >= 0")
        least = self.min_probability
        _require(0.0 <= least <= 1.0, "min_probability", least, "a number from 0 to 1")
        _require(0 <= self.context_order <= 8, "context_order", self.context_order, "0 to 8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Eagle3TreeConfig:
    """How EAGLE3's draft tree grows; the defaults are upstream's.

    size   nodes without the root (upstream's `total` counts it)
    depth  extensions of the first level, so that the tree has up to `depth` + 1 levels
    top_k  tokens a node is extended by, and nodes of a level that are extended
    """

    size: int = 59
    depth: int = 7
    top_k: int = 10

    def __post_init__(self) -> None:
        _require(0 <= self.size <= 1024, "tree size", self.size, "0 to 1024 drafted nodes")
        _require(0 <= self.depth <= 64, "tree depth", self.depth, "0 to 64")
        _require(1 <= self.top_k <= 1024, "tree top_k", self.top_k, "1 to 1024")


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationConfig:
    """When a generation ends, and how its tokens are drawn.

    max_new_tokens  new tokens at the most, EOS included
    max_length      prompt and new tokens together; None leaves only the model's context
    eos_token_ids   any of these ends the text (and is part of it)
    tie_tolerance   logits of one row that are closer than this share of the best one count as tied
                    and are computed once more in a way that all decoders share; None goes by the
                    target's dtype, 0 leaves ties to rounding
    """

    max_new_tokens: int = 512
    max_length: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    tie_tolerance: float | None = None

    def __post_init__(self) -> None:
        tolerance = self.tie_tolerance
        is_share = tolerance is None or 0.0 <= tolerance < 1.0
        _require(is_share, "tie_tolerance", tolerance, "None or a number from 0 to below 1")
        _require(self.max_new_tokens >= 1, "max_new_tokens", self.max_new_tokens, "at least 1")
        if self.max_length is not None:
            _require(self.max_length >= 2, "max_length", self.max_length, "at least 2, or None")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadConfig:
    """Sizes of a draft head, read from the `config.json` of its checkpoint.

    hidden_size         width of the head, which is the width of the target's embedding
    target_hidden_size  width of one aux hidden state
    draft_length        mask rows P of a DART head (it predicts P + 1 positions); 0 for EAGLE3
    """

    hidden_size: int
    target_hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    draft_vocab_size: int
    draft_length: int
    max_position_embeddings: int = 2048
    rope_theta: float = 10000.0
    rope_scaling_type: str | None = None
    rope_scaling_factor: float = 1.0
    rms_norm_eps: float = 1e-6

    def __post_init__(self) -> None:
        for name in ("hidden_size", "target_hidden_size", "intermediate_size", "vocab_size",
                     "num_attention_heads", "num_key_value_heads", "head_dim", "draft_vocab_size",
                     "max_position_embeddings"):  # fmt: skip
            value = getattr(self, name)
            is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            _require(is_count, name, value, "a positive integer")
        _require(0 <= self.draft_length <= 64, "draft_length", self.draft_length, "0 to 64")
        heads, groups = self.num_attention_heads, self.num_key_value_heads
        _require(heads % groups == 0, "num_key_value_heads", groups, f"a divisor of {heads}")
        _require(self.head_dim % 2 == 0, "head_dim", self.head_dim, "an even number")
        small_enough = self.draft_vocab_size <= self.vocab_size
        _require(small_enough, "draft_vocab_size", self.draft_vocab_size, f"<= {self.vocab_size}")
        _require(self.rope_theta > 0, "rope_theta", self.rope_theta, "a positive number")
        _require(self.rms_norm_eps > 0, "rms_norm_eps", self.rms_norm_eps, "a positive number")
        kinds = (None, "linear", "dynamic")
        _require(self.rope_scaling_type in kinds, "rope_scaling type", self.rope_scaling_type,
                 "absent, 'linear' or 'dynamic'")  # fmt: skip
