"""What a visitor chose for a run, checked for kind; the ranges are the engine's to check."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from dart.config import NGRAM_SOURCES, SCORES
from dart.errors import ConfigError

DECODER_LABELS = {"dart": "DART", "eagle3": "EAGLE3", "baseline": "Baseline"}
AUTOMATIC = "auto"
NGRAM_LABELS = {
    AUTOMATIC: "automatic",
    "both": "store and this text",
    "static": "store",
    "context": "this text",
    "none": "none",
}
SCORE_LABELS = {
    AUTOMATIC: "automatic",
    "fitted": "fitted probability",
    "upstream": "upstream's weights",
}
MAX_PROMPT_CHARS = 16_000  # Gradio sets no limit of its own on what a client may send
# What the form offers, and a link may ask for; what is possible at all is the engine's to say.
RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "top_k": (0, 200),
    "seed": (0, 2**53 - 1),  # where a browser's integers end
    "tree_size": (0, 128),
    "max_tokens": (1, 4096),
}


def check_length(prompt: str) -> None:
    """ConfigError for a prompt nobody would type."""
    if len(prompt) > MAX_PROMPT_CHARS:
        raise ConfigError(
            f"The prompt has {len(prompt):,} characters; at most {MAX_PROMPT_CHARS:,} are taken. "
            "Shorten it."
        )


def check_prompt(prompt: str) -> str:
    """The prompt without surrounding blanks; ConfigError where it cannot be one."""
    if not isinstance(prompt, str) or not prompt.strip():
        raise ConfigError("The prompt is empty: write something first.")
    check_length(prompt)
    # Half a character, which JSON can hold and UTF-8 cannot, becomes its replacement.
    return prompt.strip().encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@dataclass(frozen=True, slots=True)
class Settings:
    """How to decode. `tree_size`, `ngram` and `score` None let the model choose."""

    decoder: str = "dart"
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    tree_size: int | None = None
    max_tokens: int = 256
    ngram: str | None = None
    score: str | None = None

    @classmethod
    def from_form(
        cls,
        decoder: Any,
        temperature: Any,
        top_p: Any,
        top_k: Any,
        seed: Any,
        tree_size: Any,
        max_tokens: Any,
        ngram: Any = AUTOMATIC,
        score: Any = AUTOMATIC,
    ) -> Settings:
        """The form's raw values, in its order; a cleared field arrives as None."""
        return cls(
            decoder=str(decoder),
            temperature=_number("temperature", temperature),
            top_p=_number("top-p", top_p),
            top_k=_integer("top-k", top_k),
            seed=_integer("seed", seed),
            tree_size=_integer("tree size", tree_size) or None,
            max_tokens=_integer("max tokens", max_tokens),
            ngram=ngram_source(ngram),
            score=score_choice(score),
        )

    @property
    def label(self) -> str:
        """The decoder's name as people read it."""
        return DECODER_LABELS.get(self.decoder, self.decoder)

    def same_text_as(self, other: Settings) -> bool:
        """Whether both must give the same text: drafting differs at the most."""
        irrelevant = {"decoder": "", "tree_size": None, "ngram": None, "score": None}
        return {**asdict(self), **irrelevant} == {**asdict(other), **irrelevant}

    def run_options(self) -> dict[str, Any]:
        """All but the decoder, by name."""
        return {name: value for name, value in asdict(self).items() if name != "decoder"}

    def stream_options(self) -> dict[str, Any]:
        """Keyword arguments of `DartModel.stream`."""
        options = self.run_options()
        return {"max_new_token_num": options.pop("max_tokens"), **options}


def ngram_source(value: Any) -> str | None:
    """None where the model is to choose; ConfigError for what is no source."""
    return _choice("n-grams", value, NGRAM_SOURCES)


def score_choice(value: Any) -> str | None:
    """None where the model is to choose; ConfigError for what is no score."""
    return _choice("score", value, SCORES)


def _choice(name: str, value: Any, known: tuple[str, ...]) -> str | None:
    if value == AUTOMATIC:
        return None
    if value not in known:
        raise ConfigError(f"{name} is {value!r}; expected one of {', '.join([AUTOMATIC, *known])}.")
    return str(value)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ConfigError(f"{name} is {value!r}; expected a number.")
    return float(value)


def _integer(name: str, value: Any) -> int:
    number = _number(name, value)
    if number != int(number):
        raise ConfigError(f"{name} is {value!r}; expected a whole number.")
    return int(number)
