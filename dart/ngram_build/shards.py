"""Inputs -> shards: some of the text each, of about one size, readable in any process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dart.ngram_build import formats
from dart.ngram_build.files import find_files
from dart.ngram_build.formats import OnBroken, Part
from dart.ngram_build.records import Render


@dataclass(frozen=True, slots=True)
class Shard:
    """Some documents; small, picklable, and the same ones whenever and wherever it is read."""

    parts: tuple[Part, ...]
    text_column: str | None = None

    @property
    def key(self) -> str:
        """Its identity: changes with the files, their sizes and times, the cuts and the column."""
        first, last = self.parts[0], self.parts[-1]
        digest = hashlib.sha256(repr(self).encode()).hexdigest()[:16]
        return f"{first.file.path}:{first.start} to {last.file.path}:{last.stop} ({digest})"

    @property
    def num_bytes(self) -> int:
        """What there is to read, as it is stored."""
        return sum(part.num_bytes for part in self.parts)

    def documents(self, render: Render, on_broken: OnBroken | None = None) -> Iterator[str]:
        """The texts in order.

        render     makes one text of a chat's messages: `records.chat_renderer(tokenizer)`
        on_broken  told where and why a line, row or text cannot be read, which is then left out;
                   None: such a one raises
        raises     ConfigError for a broken document, and for a file that is gone, changed or
                   damaged as a whole; HubError where a URL does not answer
        """
        for part in self.parts:
            yield from formats.documents(part, self.text_column, render, on_broken)


def list_shards(
    inputs: Sequence[str], *, text_column: str | None = None, shard_bytes: int = 64 << 20
) -> list[Shard]:
    """The shards of files, folders, globs and URLs: every document once, in a fixed order.

    inputs       see `find_files`; names that end in .jsonl, .jsonl.gz, .jsonl.zst, .json.gz,
                 .json.zst or .parquet hold a document a line or row, any other is one text
    text_column  the field of these that has the text or the messages; None: `records.FIELDS`
    shard_bytes  about how large a shard is: larger files are cut, smaller ones put together
    raises       ConfigError for a name that no file has, and where a package is missing that a
                 format needs; HubError where a URL does not answer
    """
    groups: list[list[Part]] = []
    room = 0
    for file in find_files(inputs, formats.holds_documents):
        for part in formats.cut(file, shard_bytes):
            if not groups or part.num_bytes > room:
                groups.append([])
                room = shard_bytes
            groups[-1].append(part)
            room -= part.num_bytes
    return [Shard(tuple(parts), text_column) for parts in groups]
