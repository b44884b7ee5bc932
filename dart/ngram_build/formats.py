"""What files hold, by the end of their names: JSON lines, Parquet tables, plain text.

A part is a range of bytes of a file. Lines belong to the part they begin in, and so do the row
groups of a table. Plain text is one document; it and packed lines have one part only.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

from dart.errors import ConfigError
from dart.ngram_build.files import File
from dart.ngram_build.records import BROKEN, FIELDS, Render, checked, text_of

LINES = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".json.gz", ".json.zst")
TABLE = ".parquet"
ROWS_AT_ONCE = 256

OnBroken = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes start to stop of a file, as it is stored."""

    file: File
    start: int
    stop: int

    @property
    def num_bytes(self) -> int:
        """How many bytes it is."""
        return self.stop - self.start


def holds_documents(path: str) -> bool:
    """Whether it is a file of many documents, by its name; any other is one text."""
    return path.endswith((*LINES, TABLE))


def cut(file: File, part_bytes: int) -> list[Part]:
    """The parts of a file, of at most about so many bytes where it can be cut.

    raises  ConfigError where a package that its format needs is missing
    """
    if file.path.endswith((TABLE, ".zst")):
        _arrow(file.path)
    is_divisible = file.path.endswith((".jsonl", TABLE))
    count = max(1, -(-file.num_bytes // part_bytes)) if is_divisible else 1
    bounds = [file.num_bytes * i // count for i in range(count + 1)]
    return [Part(file, bounds[i], bounds[i + 1]) for i in range(count)]


def documents(
    part: Part, column: str | None, render: Render, on_broken: OnBroken | None
) -> Iterator[str]:
    """The texts of a part in order; see `Shard.documents`."""
    path = part.file.path
    read = _rows if path.endswith(TABLE) else _lines if path.endswith(LINES) else _whole
    return read(part, column, render, on_broken)


def _whole(
    part: Part, column: str | None, render: Render, on_broken: OnBroken | None
) -> Iterator[str]:
    try:
        with part.file.open() as opened:
            text = checked(io.TextIOWrapper(opened, encoding="utf-8").read())
    except UnicodeError as error:
        if on_broken is None:
            raise ConfigError(
                f"{part.file.path}: expected UTF-8 text, or a name that ends in "
                f"{', '.join((*LINES, TABLE))} ({error}). Leave it out, or skip what is broken."
            ) from error
        on_broken(f"{part.file.path}: {error}")
    else:
        yield text


def _lines(
    part: Part, column: str | None, render: Render, on_broken: OnBroken | None
) -> Iterator[str]:
    path = part.file.path
    with part.file.open() as opened, _unpacked(opened, path) as lines:
        at = part.start
        if at > 0:  # the line that is under way belongs to the part before
            lines.seek(at - 1)
            at += len(lines.readline()) - 1
        is_packed = not path.endswith(".jsonl")
        while (is_packed or at < part.stop) and (line := lines.readline()):
            begins, at = at, at + len(line)
            if line.isspace():
                continue
            try:
                text = text_of(json.loads(line.decode()), render, column)
            except BROKEN as error:
                if on_broken is None:
                    raise ConfigError(
                        f"{path}, line {_line_number(part.file, begins)}: expected a JSON object "
                        f"with {_wanted(column)} ({_why(error)})."
                    ) from error
                on_broken(f"{path}, the line at byte {begins}: {_why(error)}")
            else:
                yield text


def _rows(
    part: Part, column: str | None, render: Render, on_broken: OnBroken | None
) -> Iterator[str]:
    path = part.file.path
    pyarrow, parquet = _arrow(path)
    with part.file.open() as opened, _undamaged(path, pyarrow.ArrowException, OSError):
        table = parquet.ParquetFile(opened)
        names = table.schema_arrow.names
        wanted = FIELDS if column is None else (column,)
        column = next((name for name in wanted if name in names), None)
        if column is None:
            raise ConfigError(
                f"{path} has the columns {', '.join(names)}; expected {_wanted(*wanted)}. "
                "Name the one that holds the text (--text-column)."
            )
        first_row = 0
        for group in range(table.metadata.num_row_groups):
            facts = table.metadata.row_group(group)
            row, first_row = first_row, first_row + facts.num_rows
            if not part.start <= _beginning(facts) < part.stop:
                continue
            for batch in table.iter_batches(ROWS_AT_ONCE, row_groups=[group], columns=[column]):
                for value in batch.column(0):
                    row += 1
                    try:
                        text = text_of({column: value.as_py()}, render, column)
                    except BROKEN as error:
                        message = f"{path}, row {row}: {column} has no text ({_why(error)})."
                        if on_broken is None:
                            raise ConfigError(message) from error
                        on_broken(message)
                    else:
                        yield text


def _beginning(row_group: Any) -> int:
    """Where the first page of a row group is in the file."""
    first = row_group.column(0)
    if first.has_dictionary_page and first.dictionary_page_offset:
        return min(first.dictionary_page_offset, first.data_page_offset)
    return first.data_page_offset


def _line_number(file: File, at: int) -> int:
    with file.open() as opened, _unpacked(opened, file.path) as lines:
        number = 1
        while at > 0 and (block := lines.read(min(at, 1 << 20))):
            number += block.count(b"\n")
            at -= len(block)
        return number


@contextmanager
def _unpacked(opened: BinaryIO, path: str) -> Iterator[io.BufferedIOBase | BinaryIO]:
    if path.endswith(".gz"):
        damage = (EOFError, zlib.error, gzip.BadGzipFile)
        with _undamaged(path, *damage), gzip.open(opened) as lines:
            yield lines
    elif path.endswith(".zst"):
        pyarrow, _ = _arrow(path)
        with _undamaged(path, pyarrow.ArrowException, OSError):
            yield io.BufferedReader(pyarrow.CompressedInputStream(opened, "zstd"), 1 << 20)
    else:
        yield opened


@contextmanager
def _undamaged(path: str, *damage: type[BaseException]) -> Iterator[None]:
    try:
        yield
    except damage as error:
        raise ConfigError(
            f"{path} is damaged, or not what its name says ({error}). Get it anew or leave it out."
        ) from error


def _arrow(path: str) -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError(
            f"{path} needs the package pyarrow to be read; pip install pyarrow (or this package "
            "with its extra 'data'), or give .jsonl files."
        ) from error
    return pyarrow, parquet


def _wanted(*columns: str | None) -> str:
    names = [name for name in columns if name] or FIELDS
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _why(error: BaseException) -> str:
    return str(error.args[0] if isinstance(error, KeyError) else error)
