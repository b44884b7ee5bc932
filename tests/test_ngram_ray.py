"""The Ray engine on a cluster of several nodes, each a few processes of this machine."""

from __future__ import annotations

import os
import pickle
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from dart.errors import ConfigError
from dart.ngram_build import ray_engine, ray_tasks
from dart.ngram_build.build import build_from_shards
from dart.ngram_build.config import StoreConfig
from dart.ngram_build.local_engine import LocalEngine
from dart.ngram_build.ray_engine import RayEngine
from dart.ngram_build.ray_tasks import Row
from dart.ngram_build.shards import Shard, list_shards
from dart.ngram_build.steps import Counted
from dart.ngram_build.text_encoder import TextEncoder
from dart.ngram_build.work_folder import WorkFolder
from tests.conformance import CONFORMANCE

MEMORY = 64 << 20
# A node that says nothing is given up after 2 s, not 20.
HEAD = {
    "num_cpus": 0,
    "_system_config": {
        "health_check_initial_delay_ms": 0,
        "health_check_period_ms": 500,
        "health_check_timeout_ms": 1000,
        "health_check_failure_threshold": 4,
    },
}


def quiet(_stage: str, _done: float, _total: float) -> None:
    pass


def first_time(marker: Path) -> bool:
    """Whether this is the first call of all processes, and not in the one that made it."""
    if marker.stem == str(os.getpid()):
        return False
    try:
        marker.open("x").close()
    except FileExistsError:
        return False
    return True


@dataclass(frozen=True)
class DeadlyShard(Shard):
    """Kills the first process that has read half of it."""

    marker: Path = Path()

    def documents(self, render: Any, on_broken: Any = None) -> Iterator[str]:
        for number, text in enumerate(Shard.documents(self, render, on_broken)):
            if number == 3 and first_time(self.marker):
                os.kill(os.getpid(), signal.SIGKILL)
            yield text


@dataclass(frozen=True, kw_only=True)
class DeadlyConfig(StoreConfig):
    """Kills the first process that is about to merge."""

    marker: Path = Path()

    def level_min_counts(self) -> list[int]:
        if first_time(self.marker):
            os.kill(os.getpid(), signal.SIGKILL)
        return StoreConfig.level_min_counts(self)


@dataclass(frozen=True, kw_only=True)
class SlowConfig(StoreConfig):
    """Tells of the first node that is about to merge, and waits there to be removed."""

    marker: Path = Path()

    def level_min_counts(self) -> list[int]:
        if first_time(self.marker):
            import ray

            self.marker.write_text(ray.get_runtime_context().get_node_id(), encoding="utf-8")
            time.sleep(60)
        return StoreConfig.level_min_counts(self)


@pytest.fixture(scope="module")
def encoder() -> TextEncoder:
    return TextEncoder(AutoTokenizer.from_pretrained(CONFORMANCE / "target"))


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> list[Shard]:
    folder = tmp_path_factory.mktemp("texts")
    generator = random.Random(5)
    words = [f"w{5 + min(int(generator.expovariate(0.1)), 50)}" for _ in range(20_000)]
    for number in range(40):
        text = " ".join(words[500 * number : 500 * (number + 1)])
        (folder / f"{number:02}.txt").write_text(text, encoding="utf-8")
    made = list_shards([str(folder)], shard_bytes=8_000)
    assert len(made) > 6
    return made


@pytest.fixture(scope="module")
def cluster():
    """A head without cores, and two nodes with one each; reachable from this machine only."""
    pytest.importorskip("ray", reason="needs the extra 'ray'")
    from ray.cluster_utils import Cluster

    with ray_engine._on_loopback():
        made = Cluster(initialize_head=True, head_node_args=HEAD)
        for _ in range(2):
            made.add_node(num_cpus=1)
        yield made
        made.shutdown()


def assert_same(shards, encoder, config, cluster, tmp_path, *, job=None) -> None:
    """Compare the Ray result with the local one; `job` has other shards or config for Ray."""
    on_ray = {"shards": shards, "config": config} | (job or {})
    here = LocalEngine(memory=MEMORY, workers=1, tell=quiet)
    there = RayEngine(memory=MEMORY, address=cluster.address, tell=quiet)
    expected = build_from_shards(shards, encoder, config, tmp_path / "local", here)
    got = build_from_shards(on_ray["shards"], encoder, on_ray["config"], tmp_path / "ray", there)
    assert got == expected
    assert (tmp_path / "ray").read_bytes() == (tmp_path / "local").read_bytes()
    assert not (tmp_path / "ray.build").exists()


def deadly(kind: type, of: Any, marker: Path) -> Any:
    return kind(**{field.name: getattr(of, field.name) for field in fields(of)}, marker=marker)


@settings(max_examples=12, deadline=None)
@given(data=st.data(), order=st.integers(1, 5), chunk_bytes=st.sampled_from([1, 100, 1 << 20]))
def test_tasks(tmp_path_factory, encoder, data, order, chunk_bytes) -> None:
    """Prevents windows or pieces of files that get lost, doubled or mixed between the tasks."""
    pytest.importorskip("pyarrow", reason="needs the extra 'data'")
    tmp_path = tmp_path_factory.mktemp("tasks")
    lengths = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=6))
    for number, length in enumerate(lengths):
        words = [f"w{data.draw(st.integers(5, 9))}" for _ in range(length)]
        (tmp_path / f"{number}.txt").write_text(" ".join(words), encoding="utf-8")
    shards = list_shards([str(tmp_path / "*.txt")], shard_bytes=1)
    config = StoreConfig(order=order, min_counts=(data.draw(st.integers(1, 2)),))
    cuts = sorted(data.draw(st.sets(st.integers(1, 12), max_size=4)))
    ranges = list(zip([0, *cuts], [*cuts, 2**31], strict=True))
    count = ray_tasks.CountTask(encoder, order, ranges, MEMORY, skip_broken=False)
    merge = ray_tasks.MergeTask(config, ranges, MEMORY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_tasks, "CHUNK_BYTES", chunk_bytes)
        patch.setattr(ray_tasks, "MERGED_AT_ONCE", 2)
        rows = [Row(0, i, "", pickle.dumps(shard)) for i, shard in enumerate(shards)]
        counted = [row for table in count.run(tables_of(rows)) for row in ray_tasks.rows_of(table)]
        data.draw(st.randoms()).shuffle(counted)
        groups = {row.range: [] for row in counted}
        for row in counted:
            groups[row.range].append(row)
        merged = [table for group in groups.values() for table in merge.run(tables_of(group))]
        data.draw(st.randoms()).shuffle(merged)
        with WorkFolder.open(tmp_path / "ray", {}, []) as folder:
            folder.choose(ranges)
            arriving = SimpleNamespace(iter_batches=lambda **_: iter(merged))
            total = ray_engine._total(ray_engine._receive(arriving, folder))
            ray_engine._add_empty_parts(folder, config, MEMORY)
            folder.add_batch([], total)
            RayEngine(memory=MEMORY, tell=quiet).finish(folder, config, tmp_path / "ray")
    here = LocalEngine(memory=MEMORY, workers=1, tell=quiet)
    summary = build_from_shards(shards, encoder, config, tmp_path / "local", here)
    assert (total.documents, total.tokens) == (summary.documents, summary.tokens)
    assert (tmp_path / "ray").read_bytes() == (tmp_path / "local").read_bytes()


def tables_of(rows: list[Row]) -> Any:
    import pyarrow

    return pyarrow.concat_tables(ray_tasks.tables(rows))


@pytest.mark.slow
def test_same_bytes(cluster, encoder, shards, tmp_path, monkeypatch) -> None:
    """Prevents a store that depends on where and in how many pieces it was counted."""
    monkeypatch.setattr(ray_engine, "SAMPLED_CHARACTERS", 1)  # and on good ranges
    config = StoreConfig(order=4, min_counts=(1, 2), exact=True)
    assert_same(shards, encoder, config, cluster, tmp_path)


@pytest.mark.slow
def test_killed_workers(cluster, encoder, shards, tmp_path) -> None:
    """Prevents counts lost or doubled when a worker dies, while it counts and while it merges."""
    config = StoreConfig(order=3)
    markers = [tmp_path / f"{os.getpid()}.{name}" for name in ("count", "merge")]
    job = {
        "shards": [*shards[:-1], deadly(DeadlyShard, shards[-1], markers[0])],
        "config": deadly(DeadlyConfig, config, markers[1]),
    }
    assert_same(shards, encoder, config, cluster, tmp_path, job=job)
    assert all(marker.exists() for marker in markers)


@pytest.mark.slow
def test_lost_node(cluster, encoder, shards, tmp_path) -> None:
    """Prevents a job that cannot do again what was on a machine that is gone."""
    config = StoreConfig(order=3)
    marker = tmp_path / f"{os.getpid()}.node"
    removed = []

    def remove() -> None:
        while not (marker.exists() and marker.read_text(encoding="utf-8")):
            time.sleep(0.05)
        name = marker.read_text(encoding="utf-8")
        node = next(node for node in cluster.worker_nodes if node.node_id == name)
        cluster.remove_node(node, allow_graceful=False)
        removed.append(node)

    thread = threading.Thread(target=remove, daemon=True)
    thread.start()
    try:
        job = {"config": deadly(SlowConfig, config, marker)}
        assert_same(shards, encoder, config, cluster, tmp_path, job=job)
        assert removed
    finally:
        if removed:
            cluster.add_node(num_cpus=1)


@pytest.mark.slow
def test_errors_of_tasks(cluster, encoder, shards, tmp_path, monkeypatch) -> None:
    """Prevents Ray's traceback where a line is broken, and a job that waits for memory forever."""
    monkeypatch.setattr(ray_engine, "SAMPLED_CHARACTERS", 1)
    broken = tmp_path / "a.jsonl"
    broken.write_text('{"text": "w5"}\n{"txt": "w5"}\n', encoding="utf-8")
    config = StoreConfig(order=3)
    engine = RayEngine(memory=MEMORY, address=cluster.address, tell=quiet)
    job = list_shards([str(broken)])
    with pytest.raises(ConfigError, match="a.jsonl, line 2: expected a JSON object"):
        build_from_shards(job, encoder, config, tmp_path / "ray", engine)
    summary = build_from_shards(
        job, encoder, config, tmp_path / "ray", engine, skip_broken=True, restart=True
    )
    assert (summary.documents, summary.broken) == (1, 1)
    assert "a.jsonl, the line at byte 15" in summary.first_broken
    greedy = RayEngine(memory=1 << 60, address=cluster.address, tell=quiet)
    with pytest.raises(ConfigError, match="--memory is .* for each task, but no machine"):
        build_from_shards(job, encoder, config, tmp_path / "ray", greedy, restart=True)


@pytest.mark.slow
def test_own_cluster() -> None:
    """Prevents a cluster that other machines can reach, and one that outlives the command."""
    pytest.importorskip("ray", reason="needs the extra 'ray'")
    before = set(psutil.Process().children(recursive=True))
    with ray_engine._cluster(ray_engine.OWN_CLUSTER):
        started = set(psutil.Process().children(recursive=True)) - before
        assert any(process.name() == "raylet" for process in started)
        listening = [
            connection.laddr.ip
            for process in [psutil.Process(), *started]
            for connection in process.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        ]
        assert listening
        assert {ip.removeprefix("::ffff:") for ip in listening} <= {"127.0.0.1", "::1"}
    _, alive = psutil.wait_procs(started, timeout=10)
    assert alive == []


def test_without_ray(encoder, shards, tmp_path, monkeypatch) -> None:
    """Prevents an ImportError for who has not installed the extra."""
    monkeypatch.setitem(sys.modules, "ray", None)
    engine = RayEngine(memory=MEMORY, tell=quiet)
    with pytest.raises(ConfigError, match="needs the package ray; pip install 'ray.data.'"):
        build_from_shards(shards, encoder, StoreConfig(order=2), tmp_path / "ray", engine)


def test_flags_of_one_engine(tmp_path, capsys) -> None:
    """Prevents a flag that is silently without effect."""
    from dart.__main__ import main

    build = ["ngram", "build", "--input", "x", "--tokenizer", "x", "--output", "x"]
    for flags, word in (
        (["--engine", "ray", "--workers", "2"], "--workers is for --engine local"),
        (["--ray-address", "auto"], "--ray-address needs --engine ray"),
    ):
        assert main([*build, *flags]) == 2
        assert word in capsys.readouterr().err


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "here", ""])
def test_no_cluster_at_the_address(encoder, shards, tmp_path, address) -> None:
    """Prevents minutes of silence before a mistyped address is reported."""
    pytest.importorskip("ray", reason="needs the extra 'ray'")
    engine = RayEngine(memory=MEMORY, address=address, tell=quiet)
    with pytest.raises(ConfigError, match=f"--ray-address {address}: no Ray cluster answers"):
        build_from_shards(shards, encoder, StoreConfig(order=2), tmp_path / "ray", engine)


def test_work_of_the_other_engine(encoder, shards, tmp_path) -> None:
    """Prevents a resumed build that leaves out what was counted without Ray."""
    with WorkFolder.open(tmp_path / "store", {}, [shards[0].key]) as folder:
        run = folder.run_folder / "run"
        run.touch()
        folder.add_batch([shards[0].key], Counted(runs=[str(run)], documents=1, tokens=1))
        engine = RayEngine(memory=MEMORY, tell=quiet)
        with pytest.raises(ConfigError, match="counted without Ray; go on with --engine local"):
            engine.count(shards, encoder, StoreConfig(order=2), folder)
