"""Tokenised documents on disk, and their packing into rows of fixed length.

Knows pools (groups of documents that the schedule mixes) and that a row holds whole documents
only, each with its own positions. Does not know models or losses.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from dart.train.pairs import Document
from dart.train.tokenizer import END_OF_TEXT, IM_END, chat_prefix

POOLS = ("synthetic", "short", "long", "plain")
SHORT_ANSWER = 130  # tokens; longer chat answers go to the pool "long"
LOOKAHEAD = 64  # documents among which the one that fits a row best is chosen


@dataclass(frozen=True, slots=True)
class Shard:
    """Documents of one pool: their tokens end to end, and where each and its answer begin."""

    tokens: np.ndarray  # uint16 [T]
    starts: np.ndarray  # int64 [N + 1]
    answers: np.ndarray  # int64 [N], offset of the answer inside the document

    def __len__(self) -> int:
        return len(self.answers)

    def document(self, index: int) -> np.ndarray:
        """Return the tokens of one document."""
        return self.tokens[self.starts[index] : self.starts[index + 1]]


class Batch(NamedTuple):
    """Rows of packed documents; `labels` are the next tokens inside each document."""

    tokens: torch.Tensor  # int64 [B, T]
    labels: torch.Tensor  # int64 [B, T]
    weights: torch.Tensor  # float32 [B, T], weight of the label; 0 at document ends and on padding
    positions: torch.Tensor  # int64 [B, T], from 0 in each document
    segments: torch.Tensor  # int64 [B, T], number of the document in its row; -1 on padding


def encode(
    tokenizer: PreTrainedTokenizerFast,
    documents: Sequence[Document],
    *,
    max_length: int,
    two_turn_share: float = 0.0,
    seed: int = 0,
) -> dict[str, Shard]:
    """Tokenise documents into one shard per pool.

    max_length      chat pairs longer than this are dropped, plain code is cut
    two_turn_share  this share of the chat pairs is followed by another one in the same document,
                    so that the second turn of a conversation is nothing new
    """
    end_of_text = tokenizer.convert_tokens_to_ids(END_OF_TEXT)
    im_end = tokenizer.convert_tokens_to_ids(IM_END)
    found: dict[str, list[tuple[list[int], int]]] = {pool: [] for pool in POOLS}
    for begin in range(0, len(documents), 1000):
        block = documents[begin : begin + 1000]
        prompts = tokenizer([chat_prefix(d.prompt) for d in block], add_special_tokens=False)
        answers = tokenizer([d.answer for d in block], add_special_tokens=False)
        pairs = zip(block, prompts["input_ids"], answers["input_ids"], strict=True)
        for document, prompt, answer in pairs:
            if not document.prompt:
                found["plain"].append(([*answer, end_of_text][:max_length], 0))
                continue
            ids = [*prompt, *answer, im_end]
            pool = "short" if len(answer) <= SHORT_ANSWER and len(ids) <= 240 else "long"
            pool = "synthetic" if document.package == "synthetic" else pool
            if len(ids) <= max_length:
                found[pool].append((ids, len(prompt)))
    line_end = tokenizer("\n", add_special_tokens=False)["input_ids"]
    choose = random.Random(seed)
    for pool in ("synthetic", "short"):
        rows = found[pool]
        for index in range(len(rows)):
            if choose.random() < two_turn_share:
                ids, answer_start = rows[index]
                joined = [*ids, *line_end, *choose.choice(rows)[0]]
                if len(joined) <= max_length:
                    rows[index] = (joined, answer_start)
    return {pool: make_shard(rows) for pool, rows in found.items()}


def make_shard(rows: Sequence[tuple[list[int], int]]) -> Shard:
    """Return a shard of documents given as ids and the offset of the answer."""
    lengths = np.array([len(ids) for ids, _ in rows], np.int64)
    return Shard(
        np.array([token for ids, _ in rows for token in ids], np.uint16),
        np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
        np.array([start for _, start in rows], np.int64),
    )


def save_shards(shards: dict[str, Shard], path: Path) -> None:
    """Write shards to one file."""
    arrays = {}
    for pool, shard in shards.items():
        arrays |= {
            f"{pool}.tokens": shard.tokens,
            f"{pool}.starts": shard.starts,
            f"{pool}.answers": shard.answers,
        }
    np.savez(path, **arrays)


def load_shards(path: Path) -> dict[str, Shard]:
    """Read what `save_shards` wrote."""
    with np.load(path) as data:
        pools = [name.removesuffix(".tokens") for name in data.files if name.endswith(".tokens")]
        return {
            pool: Shard(data[f"{pool}.tokens"], data[f"{pool}.starts"], data[f"{pool}.answers"])
            for pool in pools
        }


def merge_shards(shards: Iterable[Shard]) -> Shard:
    """Put shards end to end."""
    parts = list(shards)
    lengths = np.concatenate([np.diff(part.starts) for part in parts])
    return Shard(
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
        np.concatenate([part.answers for part in parts]),
    )


def fitting(shard: Shard, length: int) -> Shard:
    """Return the documents of at most `length` tokens."""
    chosen = [i for i in range(len(shard)) if len(shard.document(i)) <= length]
    return make_shard([(shard.document(i).tolist(), int(shard.answers[i])) for i in chosen])


def write_documents(documents: Iterable[Document], path: Path) -> None:
    """Write documents as JSON lines."""
    with path.open("w", encoding="utf-8") as file:
        for document in documents:
            file.write(json.dumps(document.to_json()) + "\n")


def read_documents(path: Path) -> list[Document]:
    """Read documents from JSON lines."""
    with path.open(encoding="utf-8") as file:
        return [Document(**json.loads(line)) for line in file]


class Packer:
    """Draws documents in a seeded order and packs them into rows; its state can be saved."""

    def __init__(
        self, shards: dict[str, Shard], *, rows: int, length: int, seed: int, prompt_weight: float
    ) -> None:
        self.shards, self.rows, self.length = shards, rows, length
        self.seed, self.prompt_weight = seed, prompt_weight
        self._positions = dict.fromkeys(shards, 0)
        self._drawn = 0
        self._waiting: list[tuple[str, int]] = []
        self._orders: dict[str, tuple[int, np.ndarray]] = {}

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs to go on with the same documents."""
        return {
            "positions": dict(self._positions),
            "drawn": self._drawn,
            "waiting": list(self._waiting),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken."""
        self._positions = dict(state["positions"])
        self._drawn = state["drawn"]
        self._waiting = [(pool, index) for pool, index in state["waiting"]]

    def epochs(self) -> dict[str, float]:
        """Return how often each pool has been gone through."""
        return {
            pool: self._positions[pool] / max(1, len(shard)) for pool, shard in self.shards.items()
        }

    def _draw(self, mixture: dict[str, float]) -> tuple[str, int]:
        # Shares are of tokens, draws are of documents: divide by the mean length.
        pools = [pool for pool in mixture if len(self.shards[pool]) and mixture[pool] > 0]
        shares = np.array(
            [mixture[p] * len(self.shards[p]) / len(self.shards[p].tokens) for p in pools]
        )
        generator = np.random.default_rng([self.seed, self._drawn])
        self._drawn += 1
        pool = pools[int(generator.choice(len(pools), p=shares / shares.sum()))]
        epoch, offset = divmod(self._positions[pool], len(self.shards[pool]))
        self._positions[pool] += 1
        if self._orders.get(pool, (-1,))[0] != epoch:
            order = np.random.default_rng(
                [self.seed, list(self.shards).index(pool), epoch]
            ).permutation(len(self.shards[pool]))
            self._orders[pool] = (epoch, order)
        return pool, int(self._orders[pool][1][offset])

    def next_batch(self, mixture: dict[str, float]) -> Batch:
        """Return the next batch; `mixture` gives each pool's share of the tokens."""
        tokens = np.zeros((self.rows, self.length), np.int64)
        labels = np.zeros_like(tokens)
        positions = np.zeros_like(tokens)
        weights = np.zeros((self.rows, self.length), np.float32)
        segments = np.full_like(tokens, -1)
        for row in range(self.rows):
            filled = number = 0
            while True:
                while len(self._waiting) < LOOKAHEAD:
                    self._waiting.append(self._draw(mixture))
                choice = self._fitting(self.length - filled, take_oldest=filled == 0)
                if choice is None:
                    break
                pool, index = self._waiting.pop(choice)
                shard = self.shards[pool]
                ids = shard.document(index).astype(np.int64)
                n = len(ids)
                part = slice(filled, filled + n)
                tokens[row, part] = ids
                labels[row, filled : filled + n - 1] = ids[1:]
                weights[row, filled : filled + n - 1] = 1.0
                answer = int(shard.answers[index])
                if answer:
                    weights[row, filled : filled + answer - 1] = self.prompt_weight
                positions[row, part] = np.arange(n)
                segments[row, part] = number
                filled, number = filled + n, number + 1
        return Batch(*(torch.from_numpy(a) for a in (tokens, labels, weights, positions, segments)))

    def _fitting(self, room: int, *, take_oldest: bool) -> int | None:
        best, best_length = None, 0
        for choice, (pool, index) in enumerate(self._waiting):
            length = int(self.shards[pool].starts[index + 1] - self.shards[pool].starts[index])
            if take_oldest and length <= room:
                return choice
            if best_length < length <= room:
                best, best_length = choice, length
        return best
