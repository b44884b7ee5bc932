"""The trace of a race: JSON lines that a browser can draw, replay, save and open again.

`trace.schema.json` describes a trace file and, under `events`, its lines. A race of which part has
happened is the first part of its lines: the page gets the header, then lines as they come.
"""

from __future__ import annotations

import json
import math
import platform
import threading
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from functools import lru_cache
from importlib import metadata
from typing import TYPE_CHECKING, Any

import dart
from app.pieces import PieceStream, TokenTexts
from app.race import Race, Record
from dart.stats import RunStatistics

if TYPE_CHECKING:
    from app.engine import Loaded
    from app.settings import Settings
    from dart.decode import Step
    from dart.tree import DraftTree

SCHEMA = "dart-trace/1"


def header(
    loaded: Loaded, prompt: str, prompt_tokens: int, decoders: Sequence[str], mode: str,
    settings: Settings,
) -> dict[str, Any]:  # fmt: skip
    """The first line: what is going to run, on what, made with what."""
    return {
        "kind": "header",
        "schema": SCHEMA,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "mode": mode,
        "prompt": prompt,
        "prompt_tokens": prompt_tokens,
        "decoders": list(decoders),
        "settings": settings.run_options(),
        "model": {
            "name": loaded.name,
            "parameters": loaded.parameters,
            "device": loaded.device,
            "dtype": loaded.dtype,
            "is_demo": loaded.is_demo,
        },
        "versions": dict(_versions()),
    }


def as_file(head: dict[str, Any], events: list[dict[str, Any]]) -> dict[str, Any]:
    """A trace as it is saved: the header's fields and the lines behind it."""
    fields = {name: value for name, value in head.items() if name != "kind"}
    return {**fields, "events": events}


def to_lines(events: Iterable[dict[str, Any]]) -> str:
    """The events as text, each followed by a newline."""
    texts = (json.dumps(e, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n"
             for e in events)  # fmt: skip
    return "".join(texts)


class TraceWriter:
    """Turns the Records of one race into events, in their order; the last one is the summary.

    texts  shared by all races of a model
    """

    def __init__(self, decoders: Sequence[str], tokenizer: Any, texts: TokenTexts) -> None:
        self._texts = texts
        self._pieces = {name: PieceStream(tokenizer) for name in decoders}
        self._statistics = {name: RunStatistics() for name in decoders}
        self._busy = dict.fromkeys(decoders, 0.0)
        self._running = set(decoders)

    def events(self, records: Iterable[Record]) -> list[dict[str, Any]]:
        """The events of the next records."""
        events = []
        for record in records:
            self._busy[record.decoder] = record.busy
            if record.step is not None:
                events.append(self._step(record, record.step))
                continue
            events.append(self._end(record))
            self._running.discard(record.decoder)
            if not self._running:
                events.append(self._summary(record.wall))
        return events

    def _step(self, record: Record, step: Step) -> dict[str, Any]:
        self._statistics[record.decoder].add(step)
        has_draft = step.tree is not None and len(step.tree) > 1
        return {
            "kind": "step",
            "decoder": record.decoder,
            "t": _seconds(record.wall),
            "busy": _seconds(record.busy),
            "seconds": {stage: _seconds(value) for stage, value in step.seconds.items()},
            "tokens": [list(piece) for piece in self._pieces[record.decoder].push(step)],
            "accept": step.accept_length,
            "tree": self._tree(step, step.tree) if step.tree is not None and has_draft else None,
        }

    def _tree(self, step: Step, tree: DraftTree) -> dict[str, Any]:
        ids = tree.tokens.tolist()
        chosen = step.chosen.tolist() if step.chosen is not None else None
        return {
            "ids": ids,
            "texts": self._texts.of(ids),
            "parents": tree.parents.tolist(),
            "scores": _column(tree.scores),
            "draft": _column(tree.draft_probs),
            "ngram": _column(tree.ngram_probs),
            "matched": _column(tree.matched_lengths),
            "context": _column(tree.context_probs),
            "context_matched": _column(tree.context_lengths),
            "ranks": _column(tree.ranks),
            "path": [int(node) for node in step.path],
            "chosen": chosen,
            "chosen_texts": self._texts.of(chosen) if chosen is not None else None,
        }

    def _end(self, record: Record) -> dict[str, Any]:
        figures = self._statistics[record.decoder].as_dict()
        figures["seconds"] = {name: _seconds(s) for name, s in figures["seconds"].items()}
        figures["tau"] = _rounded(figures["tau"])
        figures["tokens_per_second"] = _rounded(figures["tokens_per_second"])
        return {
            "kind": "end",
            "decoder": record.decoder,
            "t": _seconds(record.wall),
            "reason": record.reason,
            "error": record.error,
            "figures": figures,
        }

    def _summary(self, wall: float) -> dict[str, Any]:
        busy = sum(self._busy.values())
        return {
            "kind": "summary",
            "wall": _seconds(wall),
            "busy": _seconds(busy),
            "overhead": _rounded(1 - busy / wall if wall > 0 else 0.0),
        }


class LiveTrace:
    """A race that may still be running, as its lines so far; may be asked by several threads."""

    def __init__(self, race: Race, head: dict[str, Any], tokenizer: Any, texts: TokenTexts) -> None:
        self.race = race
        self._head = head
        self._writer = TraceWriter(head["decoders"], tokenizer, texts)
        self._lock = threading.Lock()
        self._seen = 0
        self._lines = to_lines([head])

    def lines(self) -> str:
        """Header and events up to now; every answer begins with the one before it."""
        with self._lock:
            self._lines += to_lines(self._new_events())
            return self._lines

    def file(self) -> dict[str, Any]:
        """The whole trace of a race that is over and was not looked at before."""
        return as_file(self._head, self._new_events())

    def _new_events(self) -> list[dict[str, Any]]:
        new = self.race.records[self._seen :]
        self._seen += len(new)
        return self._writer.events(new)


def _seconds(value: float) -> float:
    return round(value, 6)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _column(values: Any) -> list[Any] | None:
    """Integers as they are, others to four significant digits; null where JSON has no number."""
    if values is None:
        return None
    if values.dtype.kind in "iu":
        return values.tolist()
    return [float(f"{x:.4g}") if math.isfinite(x) else None for x in values.tolist()]


@lru_cache(maxsize=1)
def _versions() -> tuple[tuple[str, str], ...]:
    packages = ("torch", "transformers", "gradio")
    installed = [(name, metadata.version(name)) for name in packages]
    return (("dart", dart.__version__), *installed, ("python", platform.python_version()))
