"""A decoder of a benchmark by name: `dart:both:fitted:32` is dart with settings of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dart.config import NGRAM_SOURCES, SCORES
from dart.errors import ConfigError

FORM = "dart[:SOURCES][:SCORE][:SIZE]"


@dataclass(frozen=True, slots=True)
class Variant:
    """A decoder and what its name says; None is left to the command's flags."""

    decoder: str
    ngram: str | None = None
    score: str | None = None
    tree_size: int | None = None

    def options(self, flags: dict[str, Any]) -> dict[str, Any]:
        """The flags' options of `DartModel.stream`, the name's own ones in their places."""
        own = {"ngram": self.ngram, "score": self.score, "tree_size": self.tree_size}
        return {**flags, **{name: value for name, value in own.items() if value is not None}}


def read_variant(name: str) -> Variant:
    """The decoder that a name means: each part behind a colon at most once, in this order.

    raises  ConfigError for parts that are none, repeated or in another order
    """
    decoder, *parts = name.split(":")
    if parts and decoder != "dart":
        raise ConfigError(f"--decoders names {name!r}; only dart can be followed by a colon.")
    rest = list(parts)
    ngram = rest.pop(0) if rest and rest[0] in NGRAM_SOURCES else None
    score = rest.pop(0) if rest and rest[0] in SCORES else None
    size = rest.pop(0) if rest and rest[0].isascii() and rest[0].isdigit() else None
    if rest:
        raise ConfigError(
            f"--decoders names {name!r}; expected {FORM}, where SOURCES is one of "
            f"{', '.join(NGRAM_SOURCES)}, SCORE one of {', '.join(SCORES)} and SIZE a number."
        )
    return Variant(decoder, ngram, score, None if size is None else int(size))
