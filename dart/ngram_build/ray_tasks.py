"""What the Ray engine's tasks do: shards to rows of windows by range, these to rows of files.

Rows are Arrow tables {range int64, place int64, name string, data binary}; `place` is the shard's
number or an offset in a file. Tasks keep nothing: done again they give the same rows.
"""

from __future__ import annotations

import json
import pickle
import tempfile
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dart.ngram_build import steps
from dart.ngram_build.config import StoreConfig
from dart.ngram_build.local_engine import MERGED_AT_ONCE
from dart.ngram_build.text_encoder import TextEncoder

if TYPE_CHECKING:
    import pyarrow

Range = tuple[int, int]

FACTS = -1  # in the place of a range: what a task has read, as JSON
CHUNK_BYTES = 32 << 20  # of data in a row, and of rows in a table


class Row(NamedTuple):
    """A piece of what goes from task to task and to the driver."""

    range: int
    place: int
    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class CountTask:
    """Counts the shards of some rows and cuts the windows by ranges of first tokens."""

    encoder: TextEncoder
    order: int
    ranges: Sequence[Range]
    memory: int
    skip_broken: bool

    def run(self, batch: pyarrow.Table) -> Iterator[pyarrow.Table]:
        """One table for about CHUNK_BYTES of windows."""
        for row in rows_of(batch):
            yield from tables(self._count(row))

    def _count(self, row: Row) -> Iterator[Row]:
        with tempfile.TemporaryDirectory() as scratch:
            counted = steps.count_shards(
                [pickle.loads(row.data)],
                self.encoder,
                self.order,
                scratch,
                self.memory,
                skip_broken=self.skip_broken,
            )
            for run in counted.runs:
                for index, data in cut_run(run, self.order, self.ranges):
                    yield Row(index, row.place, "", data)
        facts = {name: value for name, value in asdict(counted).items() if name != "runs"}
        yield Row(FACTS, row.place, "", json.dumps(facts).encode())


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Merges the windows of one range; the rows are pieces of the files of its part."""

    config: StoreConfig
    ranges: Sequence[Range]
    memory: int

    def run(self, group: pyarrow.Table) -> Iterator[pyarrow.Table]:
        """One table for about CHUNK_BYTES of files."""
        index = group["range"][0].as_py() if group.num_rows else FACTS
        if index == FACTS:
            yield group
            return
        with tempfile.TemporaryDirectory() as scratch:
            runs = []
            for number, row in enumerate(rows_of(group)):
                runs.append(str(Path(scratch, f"run{number}")))
                Path(runs[-1]).write_bytes(row.data)
            del group
            runs = self._combine(runs)
            part = str(Path(scratch, "part"))
            steps.merge_range(runs, self.ranges[index], self.config, part, self.memory)
            yield from tables(_pieces(index, part))

    def _combine(self, runs: list[str]) -> list[str]:
        while len(runs) > MERGED_AT_ONCE:
            some, runs = runs[:MERGED_AT_ONCE], runs[MERGED_AT_ONCE:]
            runs.append(f"{some[0]}+")
            steps.combine_runs(some, self.config.order, runs[-1], self.memory)
            for run in some:
                Path(run).unlink()
        return runs


def cut_run(run: str, order: int, ranges: Sequence[Range]) -> Iterator[tuple[int, bytes]]:
    """The records of a run by range of first tokens, in pieces of at most CHUNK_BYTES."""
    records = np.memmap(run, steps.record_type(order), mode="r")
    first = records["tokens"][:, 0]
    most = max(CHUNK_BYTES // records.itemsize, 1)
    begin = 0
    for index, (_, token) in enumerate(ranges):
        end = bisect_left(first, token, lo=begin)
        for at in range(begin, end, most):
            yield index, records[at : min(at + most, end)].tobytes()
        begin = end


def _pieces(index: int, part: str) -> Iterator[Row]:
    for path in sorted(Path(part).parent.glob(f"{Path(part).name}*")):
        name = path.name.removeprefix(Path(part).name)
        with path.open("rb") as file:
            at = 0
            while (data := file.read(CHUNK_BYTES)) or at == 0:
                yield Row(index, at, name, data)
                at += len(data)
                if not data:
                    break


def tables(rows: Iterable[Row]) -> Iterator[pyarrow.Table]:
    """Rows as tables of about CHUNK_BYTES."""
    import pyarrow

    schema = pyarrow.schema(
        {
            "range": pyarrow.int64(),
            "place": pyarrow.int64(),
            "name": pyarrow.string(),
            "data": pyarrow.large_binary(),
        }
    )
    taken: list[Row] = []
    size = 0
    for row in rows:
        if size + len(row.data) > CHUNK_BYTES and taken:
            yield pyarrow.table(list(map(list, zip(*taken, strict=True))), schema=schema)
            taken, size = [], 0
        taken.append(row)
        size += len(row.data)
    if taken:
        yield pyarrow.table(list(map(list, zip(*taken, strict=True))), schema=schema)


def rows_of(table: pyarrow.Table) -> Iterator[Row]:
    """The rows of a table, one in memory at a time."""
    for index in range(table.num_rows):
        yield Row(*(table[name][index].as_py() for name in Row._fields))
