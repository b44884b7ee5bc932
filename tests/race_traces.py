"""Made-up races in the trace's format: three decoders, one text, draft trees of 20 to 60 nodes.

The times are drawn around those of a small model on a CPU; nothing here was measured.
"""

from __future__ import annotations

import codecs
import json
import math
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dart.decode import Step
from dart.stats import RunStatistics
from dart.tree import DraftTree
from tests.fake_model import CODE, HOSTILE, STORY, Tokenizer

DECODERS = ("dart", "eagle3", "baseline")
UTF8 = (
    "Caf\u00e9, na\u00efve \u2013 \u4f60\u597d\u4e16\u754c \U0001f436\U0001f3fd "
    "\u0645\u0631\u062d\u0628\u0627. "
)
TEXT = STORY + CODE + UTF8
HOSTILE_TOKENS = (
    "<img src=x onerror=\"document.body.setAttribute('data-pwned', 1)\">",
    "${document.body.setAttribute(/data-pwned/.source, 2)}",
    "</script><script>document.body.setAttribute('data-pwned', 3)</script>",
    "`backticks`",
    "<b>bold</b>&lt;",
    "%{customdata}",
    "__proto__",
)
# Seconds of a step by stage, the longest path guessed, and how often the next guess is right.
_PACE: dict[str, tuple[dict[str, float], int, float]] = {
    "dart": ({"draft": 0.0022, "search": 0.0008, "verify": 0.0140}, 8, 0.80),
    "eagle3": ({"draft": 0.0085, "verify": 0.0150}, 6, 0.78),
    "baseline": ({"verify": 0.0105}, 0, 0.0),
}


@dataclass
class Race:
    """A race's lines, and per decoder what the engine's own statistics say about it."""

    lines: list[dict[str, Any]]
    statistics: dict[str, RunStatistics] = field(default_factory=dict)

    @property
    def encoded(self) -> str:
        """The lines as the page gets them."""
        return "".join(json.dumps(line) + "\n" for line in self.lines)

    def steps(self, decoder: str, busy: float = math.inf) -> list[dict[str, Any]]:
        """A decoder's steps that had ended by a moment of its own clock."""
        return [
            line
            for line in self.lines
            if line["kind"] == "step" and line["decoder"] == decoder and line["busy"] <= busy
        ]

    def counters(self, decoder: str, busy: float = math.inf) -> dict[str, str]:
        """What the page must show at that moment, by the definitions of dart/stats.py."""
        statistics = RunStatistics()
        for line in self.steps(decoder, busy):
            tree = None if "prefill" in line["seconds"] else DraftTree.root_only(0)
            tokens = [token for token, _, _ in line["tokens"]]
            statistics.add(Step(tokens, line["accept"], tree, seconds=line["seconds"]))
        speed, tau = statistics.tokens_per_second, statistics.tau
        return {
            "speed": "\u2013" if speed is None else f"{speed:.{0 if speed >= 100 else 1}f}",
            "tau": "\u2013" if tau is None else f"{tau:.2f}",
            "tokens": str(len(statistics.tokens)),
            "steps": str(statistics.forwards),
        }

    def text(self, decoder: str, busy: float = math.inf) -> str:
        """The text at that moment."""
        steps = self.steps(decoder, busy)
        return "".join(text for step in steps for _, text, _ in step["tokens"])

    def times(self) -> list[float]:
        """When each line was written, in seconds since the race began."""
        last, found = 0.0, []
        for line in self.lines:
            last = line.get("t", last)
            found.append(last)
        return found


class _Lane:
    """One decoder on its way through the text."""

    def __init__(
        self, name: str, tokens: list[int], pieces: list[str], noise: random.Random
    ) -> None:
        self.name, self.tokens, self.pieces, self.noise = name, tokens, pieces, noise
        self.done, self.busy, self.statistics = 0, 0.0, RunStatistics()

    def step(self, started: float) -> dict[str, Any]:
        """One more line; `started` is the wall clock."""
        noise = self.noise
        if self.done == 0:
            accept, tree, columns = 0, None, None
            seconds = {"prefill": round(0.06 * noise.uniform(0.9, 1.2), 6)}
        else:
            stages, longest, chance = _PACE[self.name]
            seconds = {name: round(t * noise.uniform(0.85, 1.3), 6) for name, t in stages.items()}
            accept = 0
            room = min(longest, len(self.tokens) - self.done - 1)
            while accept < room and noise.random() < chance:
                accept += 1
            tree, columns = self._tree(accept, longest)
        new = self.tokens[self.done : self.done + accept + 1]
        texts = self.pieces[self.done : self.done + accept + 1]
        sources = ["t"] * len(new)
        for i in range(accept):
            node = columns["path"][i + 1] if columns else 0
            supported = columns and columns["matched"] and columns["matched"][node]
            sources[i] = "n" if supported else "d"
        self.done += len(new)
        self.busy = round(self.busy + sum(seconds.values()), 6)
        self.statistics.add(
            Step(new, accept, tree, columns["path"] if columns else [], None, dict(seconds))
        )
        return {
            "kind": "step",
            "decoder": self.name,
            "t": round(started + sum(seconds.values()), 6),
            "busy": self.busy,
            "seconds": seconds,
            "tokens": [list(piece) for piece in zip(new, texts, sources, strict=True)],
            "accept": accept,
            "tree": columns if self.name != "baseline" else None,
        }

    def _guess(self) -> int:
        return self.noise.randrange(len(self.tokens))

    def _tree(self, accept: int, longest: int) -> tuple[DraftTree, dict[str, Any]]:
        """A tree of which exactly `accept` nodes are right."""
        noise, begin = self.noise, self.done - 1
        size = noise.randint(20, 60) if longest else 0
        if begin + accept + 2 >= len(self.tokens):
            size = min(size, accept + 2)
        # Positions in the text stand for tokens until the end.
        spots, parents, depths, path = [begin], [-1], [0], [0]
        taken: set[tuple[int, int]] = set()

        def add(parent: int, spot: int) -> int:
            taken.add((parent, self.tokens[spot]))
            spots.append(spot)
            parents.append(parent)
            depths.append(depths[parent] + 1)
            return len(spots) - 1

        for i in range(accept):
            path.append(add(path[-1], begin + 1 + i))
        attempts = 0
        while len(spots) <= size and attempts < 1000:
            attempts += 1
            parent = min(noise.randrange(len(spots)), noise.randrange(len(spots)))
            spot = self._guess()
            right = parent in path and self.tokens[spot] == self.tokens[begin + depths[parent] + 1]
            if right or depths[parent] >= longest or (parent, self.tokens[spot]) in taken:
                continue
            add(parent, spot)
        order = sorted(range(len(spots)), key=lambda node: (depths[node], node))
        place = {node: index for index, node in enumerate(order)}
        count = len(order)
        ids = [self.tokens[spots[node]] for node in order]
        column_parents = [-1 if node == 0 else place[parents[node]] for node in order]
        path = [place[node] for node in path]
        chosen = [self._guess() for _ in order]
        for node in path:
            chosen[node] = min(begin + depths[order[node]] + 1, len(self.tokens) - 1)
        probabilities = [1.0, *(noise.betavariate(0.7, 2.5) for _ in range(count - 1))]
        for node in path[1:]:
            probabilities[node] = noise.uniform(0.35, 0.99)
        guided = self.name == "dart"
        matched = [noise.choice((0, 0, 1, 2, 3)) if i and guided else 0 for i in range(count)]
        again = [noise.choice((0, 0, 0, 1, 4)) if i and guided else 0 for i in range(count)]
        columns: dict[str, Any] = {
            "ids": ids,
            "texts": [self.pieces[spots[node]] for node in order],
            "parents": column_parents,
            "scores": [_short(-2.0 * i / count) for i in range(count)],
            "draft": [_short(p) for p in probabilities],
            "ngram": [_short(noise.random()) if m else 0.0 for m in matched] if guided else None,
            "matched": matched if guided else None,
            "context": [_short(noise.random()) if m else 0.0 for m in again] if guided else None,
            "context_matched": again if guided else None,
            "ranks": [noise.randrange(12) if i else 0 for i in range(count)],
            "path": path,
            "chosen": [self.tokens[spot] for spot in chosen],
            "chosen_texts": [self.pieces[spot] for spot in chosen],
        }
        tree = DraftTree(np.array(ids, np.int64), np.array(column_parents, np.int64))
        return tree, columns


def make_race(
    *,
    decoders: tuple[str, ...] = DECODERS,
    tokens: int = 160,
    text: str = TEXT,
    seed: int = 0,
    mode: str = "race",
    differ_at: int | None = None,
    fail: str | None = None,
    temperature: float = 0.0,
) -> Race:
    """A whole race.

    differ_at  token index from which EAGLE3's text is another one, or None
    fail       decoder that ends with an error after four steps, or None
    """
    noise = random.Random(seed)
    ids, pieces = _tokenize(text, tokens)
    lanes = {name: _Lane(name, ids, pieces, random.Random(f"{seed} {name}")) for name in decoders}
    if differ_at is not None:
        other = [*ids[:differ_at], *reversed(ids[differ_at:])]
        known = dict(zip(ids, pieces, strict=True))
        lanes["eagle3"] = _Lane("eagle3", other, [known[i] for i in other], random.Random(seed))
    header = _header(list(decoders), mode, tokens, seed, temperature)
    race = Race([header], {name: lane.statistics for name, lane in lanes.items()})
    wall, running, steps = 0.0, list(decoders), dict.fromkeys(decoders, 0)
    while running:
        by_time = mode == "race"
        name = min(running, key=lambda n: lanes[n].busy) if by_time else running[0]
        lane = lanes[name]
        before = lane.busy
        race.lines.append(lane.step(wall))
        wall = round(wall + (lane.busy - before) + noise.uniform(0.0001, 0.0006), 6)
        steps[name] += 1
        failed = name == fail and steps[name] > 4
        if failed or lane.done >= len(lane.tokens):
            running.remove(name)
            reason = "error" if failed else "length"
            race.lines.append(
                {
                    "kind": "end", "decoder": name, "t": wall, "reason": reason,
                    "error": "The device ran out of <i>memory</i>; ask for fewer tokens."
                    if failed else None,
                    "figures": lane.statistics.as_dict(),
                }
            )  # fmt: skip
    busy = sum(lane.busy for lane in lanes.values())
    overhead = _short(1 - busy / wall)
    race.lines.append(
        {"kind": "summary", "wall": wall, "busy": round(busy, 6), "overhead": overhead}
    )
    return race


def hostile_race() -> Race:
    """A race whose tokens are attacks, and an ordinary one's UTF-8."""
    text = "\n".join((HOSTILE, *HOSTILE_TOKENS)) + UTF8
    return make_race(text=text, tokens=90, seed=3)


def trace_file(race: Race) -> dict[str, Any]:
    """The same race as a trace file."""
    header = {key: value for key, value in race.lines[0].items() if key != "kind"}
    return {**header, "events": race.lines[1:]}


def _header(
    decoders: list[str], mode: str, tokens: int, seed: int, temperature: float
) -> dict[str, Any]:
    return {
        "kind": "header",
        "schema": "dart-trace/1",
        "created": "2026-11-20T16:20:00+00:00",
        "mode": mode,
        "prompt": "Tell me a story, then <b>write</b> some code.",
        "prompt_tokens": 21,
        "decoders": decoders,
        "settings": {
            "temperature": temperature, "top_p": 1.0, "top_k": 0, "seed": seed, "tree_size": 60,
            "max_tokens": tokens, "ngram": None, "score": None,
        },
        "model": {
            "name": "made-up model", "parameters": 24_600_000, "device": "CPU",
            "dtype": "float32", "is_demo": True,
        },
        "versions": {
            "dart": "0.1.0", "torch": "2.13.0", "transformers": "5.23.0", "gradio": "6.31.0",
            "python": "3.11.7",
        },
    }  # fmt: skip


def _tokenize(text: str, count: int) -> tuple[list[int], list[str]]:
    """`count` tokens of the text over and over; a character's text comes with its last byte.

    A hostile piece is one token, so that it reaches tree labels whole.
    """
    tokenizer = Tokenizer()
    ids: list[int] = []
    while len(ids) < count:
        for part in _split(text, HOSTILE_TOKENS):
            if part in HOSTILE_TOKENS:
                ids.append(100_000 + HOSTILE_TOKENS.index(part))
            else:
                ids.extend(tokenizer.encode(part))
    ids = ids[:count]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces = []
    for token in ids:
        if token >= 100_000:
            pieces.append(HOSTILE_TOKENS[token - 100_000])
        else:
            pieces.append(decoder.decode(tokenizer.pieces[token]))
    return ids, pieces


def _split(text: str, words: tuple[str, ...]) -> list[str]:
    """The text cut around those words."""
    parts = [text]
    for word in words:
        parts = [
            piece
            for part in parts
            for piece in _around(part, word)
            if piece
        ]  # fmt: skip
    return parts


def _around(part: str, word: str) -> list[str]:
    if part in HOSTILE_TOKENS or word not in part:
        return [part]
    before, _, after = part.partition(word)
    return [before, word, *_around(after, word)]


def _short(number: float) -> float:
    """Four significant digits, as traces hold scores and probabilities."""
    return float(f"{number:.4g}")
