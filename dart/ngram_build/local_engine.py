"""Runs the steps on this machine: threads for counting and merging, one store out.

The tokenizer and the compiled core work without the interpreter's lock, so threads use all cores
and share the tokenizer. Memory is divided among them.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TypeVar

from dart.ngram_build import steps
from dart.ngram_build.config import StoreConfig
from dart.ngram_build.run_counter import BYTES_PER_TOKEN
from dart.ngram_build.shards import Shard
from dart.ngram_build.text_encoder import TextEncoder
from dart.ngram_build.work_folder import WorkFolder
from dart.progress import Progress

BYTES_OF_TEXT_PER_TOKEN = 3  # at least, in most texts: more tokens only mean one more run
# Of text for a run: large ones have less in common, small ones lose less in a crash.
SMALLEST_BATCH_BYTES, LARGEST_BATCH_BYTES = 16 << 20, 256 << 20
BATCHES_PER_WORKER = 8  # at least, so that all are done at about the same time
MERGED_AT_ONCE = 128  # runs: each is an open file with a buffer
SMALLEST_PART_RECORDS = 1 << 20
PARTS_PER_WORKER = 4

# How the time divides between the stages, for the time left.
COUNTED, MERGED, JOINED = 0.88, 0.94, 0.96

Result = TypeVar("Result")


class Stopped(Exception):
    """Raised in the threads of a build that is to end."""


@dataclass(slots=True)
class Tally:
    """What the threads have done of one stage; tells them to stop, too."""

    done: float = 0.0
    is_stopped: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, amount: float) -> None:
        """So much more is done. Raises Stopped."""
        if self.is_stopped:
            raise Stopped
        with self._lock:
            self.done += amount

    def progress(self) -> Progress:
        """For one task: adds what it has done since the last time."""
        before = 0.0

        def told(_stage: str, done: float, _total: float) -> None:
            nonlocal before
            self.add(done - before)
            before = done

        return told


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalEngine:
    """Where a build runs.

    memory     bytes for counting, merging and encoding, all threads together; the interpreter, the
               tokenizer and the texts at hand come on top.
    workers    threads.
    tell       how far it is, of 1.
    """

    memory: int
    workers: int
    tell: Progress

    def count(
        self,
        shards: Sequence[Shard],
        encoder: TextEncoder,
        config: StoreConfig,
        folder: WorkFolder,
        *,
        skip_broken: bool = False,
    ) -> None:
        """Count the shards that are not counted yet."""
        counted = folder.counted_shards
        left = [shard for shard in shards if shard.key not in counted]
        total = max(sum(shard.num_bytes for shard in shards), 1)
        before = total - sum(shard.num_bytes for shard in left)
        tally = Tally()
        memory = self.memory // self.workers
        batches = plan_batches(left, memory, self.workers)

        def task(batch: list[Shard]) -> tuple[list[Shard], steps.Counted]:
            return batch, steps.count_shards(
                batch,
                encoder,
                config.order,
                folder.run_folder,
                memory,
                skip_broken=skip_broken,
                advance=tally.add,
            )

        def tell() -> None:
            done = len(folder.counted_shards)
            stage = f"counting, {done} of {len(shards)} shards done"
            self.tell(stage, COUNTED * (before + tally.done) / total, 1.0)

        for batch, result in run_all(task, batches, self.workers, tally, tell):
            folder.add_batch([shard.key for shard in batch], result)

    def finish(
        self,
        folder: WorkFolder,
        config: StoreConfig,
        destination: str | os.PathLike[str],
    ) -> None:
        """Merge the runs of a folder and make a store of them."""
        if not folder.has_all_parts:
            while len(folder.runs) > MERGED_AT_ONCE:
                self._combine(folder, config.order)
            self._merge(folder, config)
        folder.remove_runs()
        parts = [folder.part(index) for index in range(len(folder.ranges))]
        order = config.order

        def tell(stage: str, done: float, total: float) -> None:
            share = done / total if total else 1.0
            if stage.startswith("encoding"):
                level = int(stage.split()[-1])
                self.tell(stage, JOINED + (1 - JOINED) * (level - 1 + share) / order, 1.0)
            else:
                self.tell(stage, MERGED + (JOINED - MERGED) * share, 1.0)

        steps.assemble(
            parts,
            folder.total("tokens"),
            config,
            destination,
            folder=folder.level_folder,
            memory=self.memory,
            progress=tell,
        )

    def _combine(self, folder: WorkFolder, order: int) -> None:
        """Make fewer runs, of groups that can be merged at once."""
        runs = folder.runs
        groups = [runs[i : i + MERGED_AT_ONCE] for i in range(0, len(runs), MERGED_AT_ONCE)]
        total = max(steps.count_records(runs, order), 1)
        tally = Tally()
        memory = self.memory // self.workers

        def task(group: list[str]) -> tuple[list[str], str]:
            run = str(folder.run_folder / uuid.uuid4().hex)
            steps.combine_runs(group, order, run, memory, tally.progress())
            return group, run

        def tell() -> None:
            self.tell(f"combining {len(runs)} runs", COUNTED + 1e-3 * tally.done / total, 1.0)

        for group, run in run_all(task, groups, self.workers, tally, tell):
            folder.replace_runs(group, run)

    def _merge(self, folder: WorkFolder, config: StoreConfig) -> None:
        runs = folder.runs
        records = steps.count_records(runs, config.order)
        if not folder.ranges:
            wanted = self.workers * PARTS_PER_WORKER
            parts = max(min(wanted, records // SMALLEST_PART_RECORDS), 1)
            folder.choose(steps.choose_ranges(runs, config.order, parts))
        ranges = folder.ranges
        tally = Tally()

        def task(index: int) -> None:
            steps.merge_range(
                runs,
                ranges[index],
                config,
                folder.part(index),
                self.memory // self.workers,
                tally.progress(),
            )

        def tell() -> None:
            share = tally.done / max(records, 1)
            self.tell("merging", COUNTED + (MERGED - COUNTED) * share, 1.0)

        left = [i for i in range(len(ranges)) if not steps.has_levels(folder.part(i))]
        for _ in run_all(task, left, self.workers, tally, tell):
            pass


def plan_batches(shards: Sequence[Shard], memory: int, workers: int) -> list[list[Shard]]:
    """Groups of shards in their order that give about a run each, enough for all workers.

    memory     bytes of one worker.
    """
    total = sum(shard.num_bytes for shard in shards)
    fitting = memory // BYTES_PER_TOKEN * BYTES_OF_TEXT_PER_TOKEN
    share = max(total // (workers * BATCHES_PER_WORKER), SMALLEST_BATCH_BYTES)
    share = min(share, LARGEST_BATCH_BYTES, fitting)
    batches: list[list[Shard]] = []
    room = 0
    for shard in shards:
        if not batches or shard.num_bytes > room:
            batches.append([])
            room = share
        batches[-1].append(shard)
        room -= shard.num_bytes
    return batches


Task = TypeVar("Task")


def run_all(
    work: Callable[[Task], Result],
    tasks: Iterable[Task],
    workers: int,
    tally: Tally,
    tell: Callable[[], None],
) -> Iterator[Result]:
    """Do tasks in threads; their results as they come. What one raises stops all."""
    with ThreadPoolExecutor(workers) as pool:
        waiting: set[Future[Result]] = {pool.submit(work, task) for task in tasks}
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
                tell()
        except BaseException:
            tally.is_stopped = True
            for future in waiting:
                future.cancel()
            raise
