"""Runs the steps on Ray Data, where one machine is too small: the same store, byte for byte.

    shards -> count, cut by range -> group by range -> merge -> parts, on the driver -> one store

Ray places the tasks, moves their results and repeats what is lost with a worker or a node. Results
travel through its object store, which spills to disk: there is no shared scratch folder. What each
node needs is this package, memory for a task, and the inputs under the names they have where the
command runs (a shared file system, or URLs).
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dart.errors import ConfigError, DartError, DeviceError
from dart.ngram_build import steps
from dart.ngram_build.config import StoreConfig
from dart.ngram_build.local_engine import BYTES_OF_TEXT_PER_TOKEN, LocalEngine
from dart.ngram_build.ray_tasks import FACTS, CountTask, MergeTask, Range, Row, rows_of, tables
from dart.ngram_build.run_counter import RunCounter
from dart.ngram_build.shards import Shard
from dart.ngram_build.text_encoder import TextEncoder
from dart.ngram_build.work_folder import WorkFolder
from dart.progress import Progress

if TYPE_CHECKING:
    import ray.data

OWN_CLUSTER = "local"  # the address that makes Ray start one
SAMPLED_SHARDS = 32
SAMPLED_CHARACTERS = 1 << 22  # of these together: enough to divide the first tokens
GROUP_COPIES = 4  # of the windows of a range, while they are moved and merged
MOST_RANGES = 2048  # each is an object of every counting task
RANGES_PER_CORE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RayEngine:
    """Where a build runs. Counting and merging are one job, done again if the driver stops.

    memory     bytes of a task, and of the driver; the interpreter, the tokenizer and the texts at
               hand come on top. One task merges all windows that begin with the same token: for
               the most frequent one some percent of the text's, before pruning.
    address    of a cluster (HOST:PORT, or auto for the one this machine belongs to); OWN_CLUSTER:
               one is started here, which other machines cannot reach, and stopped at the end
    tell       how far it is, of 1
    """

    memory: int
    address: str = OWN_CLUSTER
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
        """Count the shards, and merge what was counted into the parts of the folder."""
        if folder.runs:
            raise ConfigError(
                f"{folder.path} holds runs that were counted without Ray; go on with "
                "--engine local, or begin anew with --restart."
            )
        if folder.counted_shards:
            return  # the parts are there
        with _cluster(self.address) as ray, _our_errors(ray):
            cores = _usable_cores(ray, self.memory)
            if not folder.ranges:
                self.tell("looking at the first tokens", 0.0, 1.0)
                folder.choose(self._choose(shards, encoder, config.order, cores, skip_broken))
            self.tell(f"counting and merging on {cores} cores", 0.0, 1.0)
            count = CountTask(encoder, config.order, folder.ranges, self.memory, skip_broken)
            merge = MergeTask(config, folder.ranges, self.memory)
            needs: dict[str, Any] = {"num_cpus": 1, "memory": self.memory}
            parts = (
                _rows(ray, shards)
                .map_batches(count.run, batch_size=1, batch_format="pyarrow", **needs)
                .groupby("range", num_partitions=len(folder.ranges))
                .map_groups(merge.run, batch_format="pyarrow", **needs)
            )
            facts = _receive(parts, folder)
        _add_empty_parts(folder, config, self.memory)
        folder.add_batch([shard.key for shard in shards], _total(facts))

    def finish(
        self, folder: WorkFolder, config: StoreConfig, destination: str | os.PathLike[str]
    ) -> None:
        """Make a store of the parts, on this machine."""
        local = LocalEngine(memory=self.memory, workers=1, tell=self.tell)
        local.finish(folder, config, destination)

    def _choose(
        self,
        shards: Sequence[Shard],
        encoder: TextEncoder,
        order: int,
        cores: int,
        skip_broken: bool,
    ) -> list[Range]:
        """Ranges with about the same work, by a sample of the text."""
        tokens = sum(shard.num_bytes for shard in shards) // BYTES_OF_TEXT_PER_TOKEN
        windows = tokens * steps.record_type(order).itemsize
        wanted = max(
            RANGES_PER_CORE * cores, min(windows * GROUP_COPIES // self.memory, MOST_RANGES)
        )
        sampled = shards[:: max(len(shards) // SAMPLED_SHARDS, 1)]
        broken: list[str] = []
        with tempfile.TemporaryDirectory() as scratch:
            counter = RunCounter(order, scratch, self.memory)
            for shard in sampled:
                texts = shard.documents(encoder.render, broken.append if skip_broken else None)
                beginning = _beginning(texts, SAMPLED_CHARACTERS // len(sampled))
                for ids, _, is_end in encoder.encode_documents(beginning):
                    counter.add(ids, is_end)
            counter.write_run()
            return steps.choose_ranges(counter.runs, order, wanted)


def _beginning(texts: Iterator[str], characters: int) -> Iterator[str]:
    for text in texts:
        yield text[:characters]
        characters -= len(text)
        if characters <= 0:
            return


def _rows(ray: Any, shards: Sequence[Shard]) -> ray.data.Dataset:
    """A dataset with a block for each shard."""
    rows = [Row(0, index, "", pickle.dumps(shard)) for index, shard in enumerate(shards)]
    return ray.data.from_arrow([table for row in rows for table in tables([row])])


def _receive(parts: Any, folder: WorkFolder) -> list[Row]:
    """Write the files of the parts as their pieces come; what the tasks have read."""
    facts: list[Row] = []
    written: set[Path] = set()
    for batch in parts.iter_batches(batch_size=None, batch_format="pyarrow"):
        for row in rows_of(batch):
            if row.range == FACTS:
                facts.append(row)
                continue
            path = Path(f"{folder.part(row.range)}{row.name}.tmp-ray")
            with path.open("r+b" if path in written else "wb") as file:
                file.seek(row.place)
                file.write(row.data)
            written.add(path)
    for path in sorted(written, key=lambda path: "-1.tokens" in path.name):  # these tell of parts
        path.replace(path.with_name(path.name.removesuffix(".tmp-ray")))
    return sorted(facts, key=lambda row: row.place)


def _add_empty_parts(folder: WorkFolder, config: StoreConfig, memory: int) -> None:
    for index, token_range in enumerate(folder.ranges):
        if not steps.has_levels(folder.part(index)):  # no window begins there
            steps.merge_range([], token_range, config, folder.part(index), memory)


def _total(facts: Sequence[Row]) -> steps.Counted:
    each = [json.loads(row.data) for row in facts]
    return steps.Counted(
        runs=[],
        documents=sum(one["documents"] for one in each),
        tokens=sum(one["tokens"] for one in each),
        broken=sum(one["broken"] for one in each),
        first_broken=next((one["first_broken"] for one in each if one["broken"]), ""),
    )


@contextmanager
def _cluster(address: str) -> Iterator[Any]:
    """The module ray, connected; it keeps quiet, and its tasks are such as can be repeated."""
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ConfigError(
            "--engine ray needs the package ray; pip install 'ray[data]' (or this package with "
            "its extra 'ray'), or use --engine local."
        ) from error
    is_own = address == OWN_CLUSTER
    try:
        _check_answers(address)
        with _on_loopback() if is_own else nullcontext():
            ray.init(
                address,
                include_dashboard=False if is_own else None,
                log_to_driver=False,
                logging_level=logging.ERROR,
                runtime_env={
                    "env_vars": {"RAYON_NUM_THREADS": "1"}
                },  # a tokenizer's: a task's core
            )
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"--ray-address {address}: no Ray cluster answers ({error}). Give HOST:PORT as "
            "`ray start --head` shows it, or leave it out to start one on this machine."
        ) from error
    context = ray.data.DataContext.get_current().copy()
    context.enable_progress_bars = sys.stderr.isatty()
    context.print_on_execution_start = False
    # Made of tasks, which Ray can repeat; another kind keeps its state in actors.
    context.shuffle_strategy = "shuffle_v2"
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # what goes wrong is raised
    try:
        with ray.data.DataContext.current(context):
            yield ray
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Raise OSError or ValueError where Ray would try for minutes."""
    if address in (OWN_CLUSTER, "auto"):
        return
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10):
        pass


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Have Ray bind to 127.0.0.1, as it does on macOS and Windows; else it listens everywhere."""
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def _usable_cores(ray: Any, memory: int) -> int:
    """Tasks that the cluster can do at a time."""
    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    cores = sum(int(min(node.get("CPU", 0), node.get("memory", 0) // memory)) for node in alive)
    if cores == 0:
        most = max((node.get("memory", 0) for node in alive if node.get("CPU")), default=0)
        raise ConfigError(
            f"--memory is {memory / 2**30:.1f}G for each task, but no machine of the cluster that "
            f"has a core has more than {most / 2**30:.1f}G. Give less, or add a machine."
        )
    return cores


@contextmanager
def _our_errors(ray: Any) -> Iterator[None]:
    """What a task raised is raised again; what Ray could not do is one error."""
    try:
        yield
    except ray.exceptions.RayError as error:
        seen: BaseException | None = error
        while seen is not None:
            if isinstance(seen, DartError):
                raise seen from None
            seen = getattr(seen, "cause", None) or seen.__cause__
        raise DeviceError(
            f"Ray could not do the job: {str(error).strip().splitlines()[-1]} "
            "Check the machines; where they ran out of memory, give a smaller --memory."
        ) from error
