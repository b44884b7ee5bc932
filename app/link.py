"""Links that open the race page as somebody left it: `?prompt=...&decoders=dart,baseline&seed=7`.

Reading is here; `static/link.js` writes them, in the browser.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from app.lanes import MODES
from app.settings import DECODER_LABELS, RANGES, check_length, ngram_source, score_choice
from dart.errors import ConfigError

_SHOWN_CHARS = 40  # of a bad value, which may be anything


def read_link(query: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """The fields that a link sets, and a sentence about those that were ignored.

    query  parameters of the page's address; what is no field of ours is not looked at
    """
    fields, complaints = {}, []
    for name, read in _FIELDS.items():
        value = query.get(name)
        if value is None:
            continue
        try:
            fields[name] = read(name, value)
        except (ConfigError, ValueError, OverflowError):
            shown = value if len(value) <= _SHOWN_CHARS else value[:_SHOWN_CHARS] + "\u2026"
            complaints.append(f"{name}={shown}")
    note = ""
    if complaints:
        note = "The link was followed except for what cannot be set: " + ", ".join(complaints)
    return fields, note


def _prompt(_name: str, value: str) -> str:
    check_length(value)
    return value


def _decoders(_name: str, value: str) -> list[str]:
    wanted = value.split(",")
    if not set(wanted) <= set(DECODER_LABELS):
        raise ValueError(value)
    return [name for name in DECODER_LABELS if name in wanted]


def _mode(_name: str, value: str) -> str:
    return MODES[[*MODES].index(value)]


def _ngram(_name: str, value: str) -> str:
    ngram_source(value)
    return value


def _score(_name: str, value: str) -> str:
    score_choice(value)
    return value


def _number(kind: Callable[[str], float]) -> Callable[[str, str], float]:
    def read(name: str, value: str) -> float:
        number, (least, most) = kind(value), RANGES[name]
        if not least <= number <= most:
            raise ValueError(value)
        return number

    return read


_FIELDS: dict[str, Callable[[str, str], Any]] = {
    "prompt": _prompt,
    "decoders": _decoders,
    "mode": _mode,
    "temperature": _number(float),
    "top_p": _number(float),
    "top_k": _number(int),
    "seed": _number(int),
    "tree_size": _number(int),
    "max_tokens": _number(int),
    "ngram": _ngram,
    "score": _score,
}
