"""Stores from shards of text, and from token sequences: the steps in their order."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dart import native
from dart.errors import CheckpointError
from dart.ngram_build import work_folder
from dart.ngram_build.config import StoreConfig
from dart.ngram_build.local_engine import LocalEngine
from dart.ngram_build.run_counter import RunCounter
from dart.ngram_build.shards import Shard
from dart.ngram_build.steps import Counted
from dart.ngram_build.text_encoder import TextEncoder
from dart.ngram_build.work_folder import WorkFolder

if TYPE_CHECKING:
    from dart import _core
else:
    _core = native.core()


class Engine(Protocol):
    """Where the steps run."""

    def count(
        self,
        shards: Sequence[Shard],
        encoder: TextEncoder,
        config: StoreConfig,
        folder: WorkFolder,
        *,
        skip_broken: bool = False,
    ) -> None:
        """Count the shards that are not counted yet, into runs or parts of the folder."""
        ...

    def finish(
        self, folder: WorkFolder, config: StoreConfig, destination: str | os.PathLike[str]
    ) -> None:
        """Make a store of these."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What went into a store."""

    documents: int
    tokens: int
    broken: int
    first_broken: str
    resumed_shards: int  # that an earlier, interrupted build had counted


def build_from_shards(
    shards: Sequence[Shard],
    encoder: TextEncoder,
    config: StoreConfig,
    destination: str | os.PathLike[str],
    engine: Engine,
    *,
    skip_broken: bool = False,
    restart: bool = False,
    on_resume: Callable[[int], None] | None = None,
) -> Summary:
    """Build a store, or go on with a build of the same that was interrupted.

    restart    drop what an earlier build has left.
    on_resume  told how many shards are counted already, where work is taken up.
    raises     ConfigError where unfinished work is of another job or another process is at it;
               CheckpointError where something cannot be written; what reading the shards raises.
    """
    job: dict[str, Any] = {
        "order": config.order,
        "min_counts": config.level_min_counts(),
        "exact": config.exact,
        "bits": config.bits,
        "tokenizer": encoder.fingerprint,
        "skip_broken": skip_broken,
    }
    if restart:
        work_folder.discard(destination)
    with WorkFolder.open(destination, job, [shard.key for shard in shards]) as folder:
        resumed = len(folder.counted_shards)
        if resumed and on_resume:
            on_resume(resumed)
        engine.count(shards, encoder, config, folder, skip_broken=skip_broken)
        engine.finish(folder, config, destination)
        summary = Summary(
            documents=folder.total("documents"),
            tokens=folder.total("tokens"),
            broken=folder.total("broken"),
            first_broken=folder.first_broken,
            resumed_shards=resumed,
        )
        folder.remove()
    return summary


def build_from_sequences(
    sequences: Iterable[NDArray[np.int32]],
    config: StoreConfig,
    destination: str | os.PathLike[str],
    engine: LocalEngine,
) -> None:
    """Build a store of token ids, int32 [n] each.

    In memory while that suffices; then with files in a folder beside the destination, which is gone
    afterwards.

    raises     ValueError for a negative id, with the sequence's number before it; CheckpointError
               where something cannot be written.
    """
    numbered = enumerate(sequences)
    builder = _core.NgramBuilder(config.order, 0)
    # The levels grow with the text, and twice as large as they need to be.
    limit = engine.memory // (12 + 40 * config.order)
    for index, ids in numbered:
        _add(builder.add, ids, index)
        if builder.size > limit:
            break
    else:
        builder.write(
            os.fspath(destination),
            exact=config.exact,
            bits=config.bits,
            min_counts=config.level_min_counts(),
        )
        return
    path = Path(destination)
    try:
        scratch = Path(tempfile.mkdtemp(prefix=f"{path.name}.", dir=path.parent))
    except OSError as error:
        raise CheckpointError(
            f"{path.parent}: {error.strerror}; expected an existing folder with write permission "
            "and free space. Give another destination."
        ) from error
    try:
        with WorkFolder.open(scratch / "store", {}, []) as folder:
            first = str(folder.run_folder / "first")
            builder.write_run(first, progress=None)
            tokens = builder.num_tokens
            del builder
            counter = RunCounter(config.order, folder.run_folder, engine.memory)
            for index, ids in numbered:
                _add(counter.add, ids, index)
            counter.write_run()
            runs, tokens = [first, *counter.runs], tokens + counter.num_tokens
            del counter  # its memory is needed
            folder.add_batch([], Counted(runs=runs, documents=0, tokens=tokens))
            engine.finish(folder, config, destination)
    finally:
        shutil.rmtree(scratch)


def _add(add: Callable[[NDArray[np.int32]], None], ids: NDArray[np.int32], index: int) -> None:
    try:
        add(ids)
    except ValueError as error:
        raise ValueError(f"sequence {index}: {error}") from error
