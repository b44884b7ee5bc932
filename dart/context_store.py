"""The context store: counts of the n-grams of one text, the prompt and what was generated.

Typed face of the core's; what is counted, and which tokens a match opens, is described in
csrc/include/dart/context_store.h.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dart import native
from dart.errors import ConfigError
from dart.ngram import Tokens, to_token_array

if TYPE_CHECKING:
    from dart import _core
else:
    _core = native.core()

DEFAULT_ORDER = 5  # contexts of up to four tokens; longer ones drafted no better when measured


@dataclass(frozen=True, slots=True)
class ContextMatch:
    """A token that has followed the text's end before.

    index        of the candidate, -1 where it is a token that was not asked for
    length       of the longest context that it has followed
    probability  its count / (1 + of all tokens that followed): one sighting is no certainty
    """

    token: int
    index: int
    length: int
    probability: float


class ContextStore:
    """Counts that grow with one text. Not to be shared by texts or threads.

    order   length of the longest n-grams counted
    raises  ConfigError for an order out of range
    """

    __slots__ = ("core",)

    def __init__(self, order: int = DEFAULT_ORDER) -> None:
        try:
            self.core = _core.ContextStore(order)  # handed to the search
        except ValueError as error:
            raise ConfigError(f"context store: {error}") from error

    @property
    def order(self) -> int:
        """Length of the longest n-grams."""
        return self.core.order

    @property
    def num_tokens(self) -> int:
        """Tokens of the text so far."""
        return self.core.num_tokens

    @property
    def num_nodes(self) -> int:
        """Distinct n-grams."""
        return self.core.num_nodes

    def append(self, tokens: Tokens) -> None:
        """Let the text go on with these tokens.

        raises  ConfigError for a negative id; the text is then as it was
        """
        try:
            self.core.append(to_token_array(tokens, "tokens"))
        except ValueError as error:
            raise ConfigError(f"context store: {error}") from error

    def match(self, path: Tokens, candidates: Tokens) -> Iterator[ContextMatch]:
        """What has followed the text's end, or the end of a path behind it: candidates in their
        order, then the tokens that it opens.

        path        tokens behind the text that are not part of it
        candidates  ascending, distinct ids
        """
        found = self.core.match(
            to_token_array(path, "path"), to_token_array(candidates, "candidates")
        )
        for values in zip(*(np.asarray(column).tolist() for column in found), strict=True):
            yield ContextMatch(*values)
