"""From Steps to text: pieces by token and source, and the text of single tokens.

Whole characters only: bytes of one that is not complete yet are held back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from dart.text import TextStream

if TYPE_CHECKING:
    from dart.decode import Step

TARGET = "t"  # the target's own: the token after the accepted path, and all of plain decoding
DRAFT = "d"  # drafted, then accepted by the target
NGRAM = "n"  # the same, and the n-gram store had expected it


class Piece(NamedTuple):
    """A token of the text: its id, the text that it completed (may be ""), its source."""

    token: int
    text: str
    source: str


class PieceStream:
    """Turns the Steps of one text into Pieces."""

    def __init__(self, tokenizer: Any) -> None:
        self._text = TextStream(tokenizer)

    def push(self, step: Step) -> list[Piece]:
        """The step's tokens; the text's last one takes along what never became a character."""
        # Token by token, so that every piece of text has one source.
        pieces = [
            Piece(token, self._text.push([token]), source)
            for token, source in zip(step.tokens, sources(step), strict=True)
        ]
        if step.finish_reason is not None and pieces:
            last = pieces[-1]
            pieces[-1] = last._replace(text=last.text + self._text.flush())
        return pieces


def sources(step: Step) -> list[str]:
    """The source of each token of a step."""
    drafted = [DRAFT] * step.accept_length
    if step.tree is not None:
        nodes = step.path[1 : step.accept_length + 1]
        for expected in (step.tree.ngram_probs, step.tree.context_probs):
            if expected is not None:
                drafted = [
                    NGRAM if expected[node] > 0 else source
                    for node, source in zip(nodes, drafted, strict=True)
                ]
    return [*drafted, *[TARGET] * (len(step.tokens) - step.accept_length)]


class TokenTexts:
    """The text of each token by itself; every token is decoded once.

    A tree shows a hundred tokens a step: decoding them anew would cost more than the search.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._known: dict[int, str] = {}

    def of(self, tokens: Iterable[int]) -> list[str]:
        """Text of each token, as it reads inside a text."""
        tokens = list(tokens)
        for token in tokens:
            if token not in self._known:
                # Behind itself: some tokenizers drop the blank before a text's first word.
                once, twice = (self._decode([token] * count) for count in (1, 2))
                self._known[token] = twice[len(once) :]
        return [self._known[token] for token in tokens]

    def _decode(self, tokens: list[int]) -> str:
        return self._tokenizer.decode(
            tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
