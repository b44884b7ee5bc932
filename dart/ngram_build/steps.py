"""The steps from documents to a store, as plain functions over files.

Each may run in a thread, in a process or on another machine that sees its files. What it writes
appears under its name when it is whole, so that what is there is done. Knows nothing of the order
of the steps or of what is left to do.

A *run* is a file of records {order tokens int32, count uint32}, ascending: the windows of the next
`order` tokens from a place in the text, -1 after a document's end. A window may come in several
records; their counts add up. A *part* is the levels of a range of first tokens, three columns each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dart import native
from dart.errors import ConfigError, DartError
from dart.ngram_build.run_counter import RunCounter
from dart.progress import Progress

if TYPE_CHECKING:
    from dart import _core
    from dart.ngram_build.config import StoreConfig
    from dart.ngram_build.shards import Shard
    from dart.ngram_build.text_encoder import TextEncoder
else:
    _core = native.core()

MAX_TOKENS = 2**31  # ids are below
RANGE_SAMPLES = 4096  # first tokens looked at to divide the work
MERGE_MEMORY = 8 << 20  # of the writers of a part, besides the buffers of its readers

Advance = Callable[[int], None]  # so many bytes of input more are done; may raise to stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What became of some shards: paths of runs, and how much is in them."""

    runs: list[str]
    documents: int
    tokens: int
    broken: int = 0  # documents left out
    first_broken: str = ""  # where the first one of these is, and why


def count_shards(
    shards: Iterable[Shard],
    encoder: TextEncoder,
    order: int,
    folder: str | os.PathLike[str],
    memory: int,
    *,
    skip_broken: bool = False,
    advance: Advance | None = None,
) -> Counted:
    """Count the windows of all documents of some shards into sorted runs.

    folder       where the runs are written, under new names.
    memory       bytes for counting; the tokenizer and the document at hand come on top. Where the
                 shards have more than memory / 12 tokens there are several runs.
    skip_broken  leave documents out that cannot be read, instead of raising.
    advance      is told of the bytes of the shards that have been read, and called with 0 while
                 a run is counted.
    raises       CheckpointError if the folder cannot be written; what reading the shards raises.
    """
    tell = advance or _nothing
    counter = RunCounter(order, folder, memory, lambda _stage, _done, _total: tell(0))
    documents = 0
    broken: list[str] = []
    for shard in shards:
        left = shard.num_bytes
        on_broken = broken.append if skip_broken else None
        texts = shard.documents(encoder.render, on_broken)
        for ids, characters, is_end in encoder.encode_documents(texts):
            counter.add(ids, is_end)
            documents += is_end
            told = min(characters, left)  # packed or escaped: about as many bytes
            left -= told
            tell(told)
        tell(left)
    counter.write_run()
    return Counted(
        runs=counter.runs,
        documents=documents,
        tokens=counter.num_tokens,
        broken=len(broken),
        first_broken=next(iter(broken), ""),
    )


def _nothing(_: int) -> None:
    pass


def combine_runs(
    runs: Sequence[str],
    order: int,
    destination: str | os.PathLike[str],
    memory: int,
    progress: Progress | None = None,
) -> None:
    """Make one run of several, where there are too many to merge at a time."""
    _core.combine_runs(list(runs), order, os.fspath(destination), memory=memory, progress=progress)


def count_records(runs: Sequence[str], order: int) -> int:
    """How many records there are in all runs."""
    return sum(Path(run).stat().st_size for run in runs) // record_type(order).itemsize


def choose_ranges(runs: Sequence[str], order: int, parts: int) -> list[tuple[int, int]]:
    """Divide the first tokens into at most `parts` ranges with about the same work.

    returns    [begin, end) of each, ascending; together they are [0, 2^31).
    """
    step = max(count_records(runs, order) // RANGE_SAMPLES, 1)
    sampled = [np.zeros(0, np.int32)]
    for run in runs:
        if Path(run).stat().st_size > 0:
            records = np.memmap(run, record_type(order), mode="r")
            sampled.append(np.array(records["tokens"][step // 2 :: step, 0]))
    tokens = np.sort(np.concatenate(sampled))
    places = np.linspace(0, len(tokens), parts + 1)[1:-1].astype(np.int64)
    cuts = sorted({int(token) for token in tokens[places]} - {0}) if len(tokens) else []
    return list(zip([0, *cuts], [*cuts, MAX_TOKENS], strict=True))


def record_type(order: int) -> np.dtype:
    """Of the records of a run."""
    return np.dtype([("tokens", "<i4", (order,)), ("count", "<u4")])


def merge_range(
    runs: Sequence[str],
    token_range: tuple[int, int],
    config: StoreConfig,
    part: str | os.PathLike[str],
    memory: int,
    progress: Progress | None = None,
) -> None:
    """Merge the windows that begin with a token of a range into the levels of a part.

    part       prefix of its files: level n is part + n + .tokens, .counts and .children. It is
               there when `has_levels` says so.
    """
    begin, end = token_range
    _core.merge_runs(
        list(runs),
        config.order,
        begin,
        end,
        config.level_min_counts(),
        os.fspath(part),
        memory=max(memory - MERGE_MEMORY, 0),
        progress=progress,
    )


def has_levels(part: str | os.PathLike[str]) -> bool:
    """Whether a part is whole: its first level is written last."""
    return Path(f"{os.fspath(part)}1.tokens").is_file()


def assemble(
    parts: Sequence[str],
    tokens: int,
    config: StoreConfig,
    destination: str | os.PathLike[str],
    *,
    folder: str | os.PathLike[str],
    memory: int,
    progress: Progress | None = None,
) -> None:
    """Join parts, ascending by their ranges, and encode them as a store.

    Goes on where it was interrupted. The files of the parts are removed on the way.

    tokens     all that were counted.
    folder     where the joined levels are kept until they are encoded; on the file system of the
               destination.
    raises     CheckpointError where something cannot be read or written; ConfigError where the
               n-grams are too many for the format.
    """
    order = config.order
    prefix = str(Path(folder) / "level")
    for level in range(1, order + 1):
        if not Path(f"{prefix}{level}.tokens").is_file():
            _core.join_level(list(parts), level, order, prefix, progress=progress)
        for part in parts:
            for column in ("tokens", "counts", "children"):
                Path(f"{part}{level}.{column}").unlink(missing_ok=True)
    try:
        _core.encode_levels(
            prefix,
            order,
            tokens,
            os.fspath(destination),
            exact=config.exact,
            bits=config.bits,
            memory=memory,
            progress=progress,
        )
    except DartError:
        raise
    except ValueError as error:
        raise ConfigError(f"the n-grams cannot be encoded: {error}") from error
