"""Documents to token ids, in pieces that bound the memory of the tokenizer."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dart.errors import ConfigError
from dart.hub import resolve
from dart.ngram_build.records import chat_renderer

# Texts handed to the tokenizer at a time: the more, the more memory; fewer cost a few percent.
GROUP_TEXTS = 256
GROUP_CHARACTERS = 1 << 18

# Where the usual splitting rules end a word whatever follows: after a line, before a space.
_LINE_END = re.compile(r"(?<=\S\n)(?=\S)")
_SPACE = re.compile(r"(?<=\S)(?= \S)")


class TextEncoder:
    """A tokenizer as the builder needs it: no special tokens added; safe in threads, picklable."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._backend = None
        if getattr(tokenizer, "is_fast", False):
            from tokenizers import Tokenizer

            # A copy: other users of the tokenizer may want truncation and padding.
            self._backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
            self._backend.no_truncation()
            self._backend.no_padding()

    @classmethod
    def load(cls, name_or_path: str | os.PathLike[str], hub: str = "huggingface") -> TextEncoder:
        """The tokenizer of a folder or hub id.

        raises     ConfigError where there is none that can be loaded; as dart.hub.resolve
        """
        from transformers import AutoTokenizer

        folder = resolve(name_or_path, hub=hub, patterns=["tokenizer*", "*.json", "*.txt"])
        try:
            return cls(AutoTokenizer.from_pretrained(folder, trust_remote_code=False))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{folder} holds no tokenizer that can be loaded: {error}") from error

    @property
    def fingerprint(self) -> str:
        """The same for tokenizers that give the same ids to all texts and chats."""
        if self._backend is not None:
            facts = self._backend.to_str()
        else:
            vocabulary = sorted(self._tokenizer.get_vocab().items())
            facts = json.dumps([type(self._tokenizer).__name__, vocabulary])
        template = getattr(self._tokenizer, "chat_template", None)
        return hashlib.sha256(f"{facts}\0{template}".encode()).hexdigest()[:16]

    def render(self, messages: Any) -> str:
        """One text of a chat's messages; as `records.chat_renderer`."""
        return chat_renderer(self._tokenizer)(messages)

    def encode(self, texts: list[str]) -> Iterator[NDArray[np.int32]]:
        """The ids of each text, int32 [n]."""
        if self._backend is not None:
            for encoding in self._backend.encode_batch_fast(texts, add_special_tokens=False):
                yield np.array(encoding.ids, np.int32)
        else:
            for text in texts:
                ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
                yield np.array(ids, np.int32)

    def encode_documents(
        self, documents: Iterable[str]
    ) -> Iterator[tuple[NDArray[np.int32], int, bool]]:
        """The ids of documents, long ones in pieces.

        returns    ids int32 [n] of a piece, its characters, whether it ends its document. Together
                   they are the ids of the whole document, but for tokenizers that begin every
                   text with a mark of their own.
        """
        for group in _groups(documents):
            texts = [text for text, _ in group]
            for (text, is_end), ids in zip(group, self.encode(texts), strict=True):
                yield ids, len(text), is_end


def _groups(documents: Iterable[str]) -> Iterator[list[tuple[str, bool]]]:
    group: list[tuple[str, bool]] = []
    characters = 0
    for document in documents:
        for piece in split(document, GROUP_CHARACTERS):
            group.append(piece)
            characters += len(piece[0])
            if len(group) == GROUP_TEXTS or characters >= GROUP_CHARACTERS:
                yield group
                group, characters = [], 0
    if group:
        yield group


def split(text: str, characters: int) -> Iterator[tuple[str, bool]]:
    """Cut a text after at least so many and at most twice as many characters.

    returns    pieces, and whether each is the last one; a short text is one piece.
    """
    begin = 0
    while len(text) - begin > 2 * characters:
        first, last = begin + characters, begin + 2 * characters
        found = _LINE_END.search(text, first, last) or _SPACE.search(text, first, last)
        end = found.start() if found else last
        yield text[begin:end], False
        begin = end
    yield text[begin:], True
