"""From what the decoder did to what the page shows: pure functions, no Gradio, no model.

Text of the model leaves here as text. The token pane gets one growing string, because Gradio sends
a string that grows as the part that is new:

    source \\x1f text \\x1e   source \\x1f text \\x1e   ...
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any

from dart.stats import STAGES

if TYPE_CHECKING:
    from app.job import Snapshot
    from app.settings import Settings

FIELD, RECORD = "\x1f", "\x1e"

# Whatever a model writes, the encoding stays readable: these become their visible pictures.
_PICTURES = str.maketrans({FIELD: "\N{SYMBOL FOR UNIT SEPARATOR}",
                           RECORD: "\N{SYMBOL FOR RECORD SEPARATOR}",
                           "\0": "\N{SYMBOL FOR NULL}"})  # fmt: skip

REASONS = {
    "eos": "",
    "length": "length limit reached",
    "stopped": "stopped",
    "error": "failed",
}


def encode_pieces(pieces: Iterable[tuple[str, str]]) -> str:
    """(source, text) pairs -> the token pane's string; pieces without text take no room."""
    return "".join(
        f"{source}{FIELD}{text.translate(_PICTURES)}{RECORD}" for source, text in pieces if text
    )


def decode_pieces(encoded: str) -> list[tuple[str, str]]:
    """What the page makes of the string; the mirror of static/chat.js, for tests and exports."""
    records = encoded.split(RECORD)[:-1]
    return [(source, text) for source, text in (record.split(FIELD, 1) for record in records)]


def why_nothing_accepted(settings: Settings, steps: int, accepted: int) -> str:
    """A reason where no token is marked as drafted, empty where some are or it is too early."""
    if settings.decoder == "baseline":
        return "Baseline drafts nothing: every token is the target's own, one a step."
    if accepted or steps < 4:
        return ""
    return f"{settings.label} drafted in all {steps} steps and the target agreed with none of it."


def metrics(snapshot: Snapshot | None, settings: Settings | None) -> dict[str, Any]:
    """The metrics strip's value: every speed from the decoder's own clock, prefill apart."""
    if snapshot is None or settings is None:
        return {"state": "idle"}
    numbers = snapshot.statistics
    seconds = numbers["seconds"]
    accepted = sum(length * steps for length, steps in enumerate(numbers["histogram"]))
    stages = {stage: seconds.get(stage, 0.0) for stage in STAGES}
    outside = max(0.0, snapshot.wall - sum(stages.values())) if numbers["steps"] else 0.0
    return {
        "state": snapshot.state,
        "decoder": settings.label,
        "tokens": numbers["tokens"],
        "steps": numbers["steps"],
        "accepted": accepted,
        "tau": numbers["tau"],
        "speed": numbers["tokens_per_second"],
        "prefill": seconds.get("prefill"),
        "histogram": numbers["histogram"],
        "seconds": {**stages, "other": outside},
        "overhead": outside / snapshot.wall if outside else None,
        "note": why_nothing_accepted(settings, numbers["steps"], accepted),
    }


def turn_note(snapshot: Snapshot, settings: Settings) -> str:
    """The line under an answer."""
    numbers = snapshot.statistics
    parts = [settings.label]
    if numbers["tokens_per_second"]:
        speed, tau = fixed(numbers["tokens_per_second"], 1), fixed(numbers["tau"], 2)
        parts += [f"{speed} tokens/s", f"\u03c4 {tau}"]
    if numbers["tokens"]:
        parts.append(f"{numbers['tokens']} token" + ("s" if numbers["tokens"] != 1 else ""))
    if snapshot.reason:
        parts.append(REASONS.get(snapshot.reason, snapshot.reason))
    return " \u00b7 ".join(part for part in parts if part)


def comparison(
    text: str, speed: float, settings: Settings, before: tuple[Settings, str, float] | None
) -> str:
    """Whether a regenerated answer is the same text; empty where it need not be."""
    if before is None:
        return ""
    other, other_text, other_speed = before
    if not settings.same_text_as(other) or settings.decoder == other.decoder:
        return ""
    if text != other_text:
        return f"the text differs from {other.label}'s"
    gain = f", \u00d7{speed / other_speed:.2f} its speed" if speed and other_speed else ""
    return f"\u2713 the same text as {other.label}{gain}"


def fixed(value: float, digits: int) -> str:
    """As JavaScript's toFixed: ties, as every eighth of a token is one, go up, not to even."""
    return str(Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def megabytes(count: int) -> str:
    """Bytes in words."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def quantity(count: int) -> str:
    """A parameter count in words."""
    for unit, size in (("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return str(count)
