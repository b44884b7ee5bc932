"""Importing beyond memory: bounds, stops, kills, and stores found again by name."""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest

from dart import imported, ngram
from dart.__main__ import main
from dart.errors import CheckpointError, ConfigError, NgramFormatError
from dart.ngram_build.config import MIN_MEMORY
from tests.reference.ngram import count_ngrams, write_trie
from tests.synthetic_trie import draw_text
from tests.synthetic_trie import write_trie as write_large_trie

TINY = [[1, 2, 3, 1, 2], [2, 3], [], [7]]


def make_trie(path: Path, seed: int = 0, documents: int = 12) -> Path:
    write_large_trie(draw_text(documents, 60, seed), path)
    return path


def import_tightly(source: Path, destination: Path, progress=None, notice=lambda text: None):
    """As import_trie, with less memory than it accepts: over the disk, whatever the file."""
    ngram._core.import_trie(
        str(source), str(destination), exact=False, bits=8, memory=4000, progress=progress,
        notice=notice,
    )  # fmt: skip


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


KILLED = """
import sys, time
from dart import ngram
def progress(stage, done, total):
    print(stage, flush=True)
    time.sleep(0.02)
ngram._core.import_trie(*sys.argv[1:], exact=False, bits=8, memory=4000, progress=progress,
                        notice=lambda text: None)
"""


@pytest.mark.parametrize(
    "stage",
    ["reading level 1", "sorting level 2", "reading level 2", "sorting level 3",
     "reading level 3", "encoding level 1", "encoding level 3"],
)  # fmt: skip
def test_killed_imports_go_on(tmp_path: Path, stage: str) -> None:
    """Prevents lost or doubled n-grams, a half store, or an import that cannot start again."""
    source = make_trie(tmp_path / "x.trie")
    expected = ngram.import_trie(source, tmp_path / "expected.ngram")
    store = tmp_path / "out.ngram"
    with python(KILLED, source, store) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(stage):
                process.send_signal(signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL
    assert not store.exists()
    notices: list[str] = []
    import_tightly(source, store, notice=notices.append)
    assert store.read_bytes() == Path(expected.path).read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"x.trie", "expected.ngram", "out.ngram"}
    if stage != "reading level 1":  # then the first step may not have ended
        assert notices == [f"going on with the import in {store}.import"]


PEAK = """
import sys
from dart import ngram
def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) << 10
ngram.NgramStore  # the core is loaded
before = peak()
ngram.import_trie(sys.argv[1], sys.argv[2], memory=int(sys.argv[3]))
print(peak() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_peak_memory(tmp_path: Path) -> None:
    """Prevents a memory bound that is none."""
    source = tmp_path / "x.trie"
    nodes = write_large_trie(draw_text(1700, 1000, 0), source)
    assert nodes * 64 > 2 * MIN_MEMORY  # by which it goes over the disk
    peaks = {}
    for memory in (MIN_MEMORY, ngram.DEFAULT_MEMORY):
        store = tmp_path / f"{memory}.ngram"
        process = python(PEAK, source, store, memory)
        peaks[memory] = int(process.communicate()[0])
        assert process.returncode == 0
    assert peaks[MIN_MEMORY] <= MIN_MEMORY
    assert peaks[ngram.DEFAULT_MEMORY] > MIN_MEMORY  # else this test tests nothing
    stores = [(tmp_path / f"{memory}.ngram").read_bytes() for memory in peaks]
    assert stores[0] == stores[1]


def test_ctrl_c_stops_within_a_second(tmp_path: Path) -> None:
    """Prevents an hour of waiting for a job that was given up."""
    source = make_trie(tmp_path / "x.trie", documents=400)
    slow = KILLED.replace("time.sleep(0.02)", "pass").replace("progress=progress", "progress=None")
    with python("print('ready', flush=True)\n" + slow, source, tmp_path / "x.ngram") as process:
        assert process.stdout is not None
        while not (tmp_path / "x.ngram.import/state").exists():
            time.sleep(0.005)
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait() not in (0, -signal.SIGKILL)
    assert time.monotonic() - begin < 10  # a second on an idle machine, its end included
    assert not (tmp_path / "x.ngram").exists()


def test_two_processes_do_not_mix_their_work(tmp_path: Path) -> None:
    """Prevents two imports to one place from writing each other's files."""
    source = make_trie(tmp_path / "x.trie")
    with python(KILLED, source, tmp_path / "out.ngram") as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(CheckpointError, match=r"out\.ngram\.import: another process"):
            import_tightly(source, tmp_path / "out.ngram")
        for _ in process.stdout:
            pass
    assert process.returncode == 0
    ngram.NgramStore.open(tmp_path / "out.ngram").verify()


def test_a_small_disk_is_told_at_once(tmp_path: Path) -> None:
    """Prevents an import that fails after an hour for want of space."""
    nodes = 10**11
    source = tmp_path / "x.trie"
    with source.open("wb") as file:  # a file with a hole
        file.write(np.array([3, nodes], "<u8").tobytes())
        file.truncate(16 + 24 * nodes + 12 * (nodes - 1))
    with pytest.raises(CheckpointError, match=r"has a disk with .* GB free, expected 6400\.0 GB"):
        ngram.import_trie(source, tmp_path / "x.ngram")


@pytest.mark.parametrize("memory", [0, (64 << 20) - 1])
def test_too_little_memory_is_refused(tmp_path: Path, memory: int) -> None:
    """Prevents a bound that cannot be kept from being promised."""
    with pytest.raises(ConfigError, match=r"expected 67108864 \(64M\) or more"):
        ngram.import_trie(tmp_path / "x.trie", tmp_path / "x.ngram", memory=memory)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """A hub with one repository; the patterns of every download, which fills its cache anew."""
    published = tmp_path / "published"
    published.mkdir()
    for name, sequences in {"small": TINY, "full": [*TINY, [9, 9]]}.items():
        trie = write_trie(3, count_ngrams(sequences, 3))
        (published / f"{name}.trie").write_bytes(trie)
    downloads: list[list[str]] = []

    def download(name: str, allow_patterns: list[str]) -> str:
        assert name == "owner/ngrams"
        downloads.append(allow_patterns)
        snapshot, blobs = tmp_path / "hub/snapshots/1", tmp_path / "hub/blobs"
        snapshot.mkdir(parents=True, exist_ok=True)
        blobs.mkdir(exist_ok=True)
        for pattern in allow_patterns:
            for path in published.glob(pattern):
                shutil.copy(path, blobs / f"hash-of-{path.name}")
                (snapshot / path.name).unlink(missing_ok=True)
                (snapshot / path.name).symlink_to(blobs / f"hash-of-{path.name}")
        return str(snapshot)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setenv("DART_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return downloads


def test_hub_names_are_imported_once(hub: list[list[str]], tmp_path: Path) -> None:
    """Prevents a second import, or a second download of 47 GB after the hub's cache was emptied."""
    small = imported.open_published("owner/ngrams")
    assert small.probabilities([2], [3])[1].tolist() == [1]
    shutil.rmtree(tmp_path / "hub")
    assert imported.open_published("owner/ngrams").path == small.path
    assert hub == [["small.trie", "*.ngram"]]
    full = imported.open_published("owner/ngrams", is_small=False)
    assert full.path != small.path
    assert full.vocab_size == 10
    # The cache of stores lost its notes, and the file comes anew: still the same contents.
    for note in (tmp_path / "cache/ngram").glob("*.source"):
        note.unlink()
    made = Path(small.path).stat().st_mtime_ns
    shutil.rmtree(tmp_path / "hub")
    assert imported.open_published("owner/ngrams").path == small.path
    assert Path(small.path).stat().st_mtime_ns == made


def test_a_removed_store_is_made_again(hub: list[list[str]]) -> None:
    """Prevents a note without its store from being an error."""
    Path(imported.open_published("owner/ngrams").path).unlink()
    imported.open_published("owner/ngrams").verify()
    assert len(hub) == 2


def test_local_files_are_imported_once_and_noticed_when_they_change(tmp_path: Path) -> None:
    """Prevents a stale store for a new file, and an import at every start."""
    source, cache = tmp_path / "small.trie", tmp_path / "cache"
    source.write_bytes(write_trie(3, count_ngrams(TINY, 3)))
    first = imported.open_published(tmp_path, cache=cache)
    made = Path(first.path).stat().st_mtime_ns
    assert imported.open_published(source, cache=cache).path == first.path
    assert Path(first.path).stat().st_mtime_ns == made
    source.write_bytes(write_trie(3, count_ngrams([*TINY, [5]], 3)))
    os.utime(source, ns=(1, 1))
    assert imported.open_published(tmp_path, cache=cache).num_nodes == first.num_nodes + 1


def test_folders_without_a_store_say_what_is_missing(tmp_path: Path) -> None:
    """Prevents a wrong folder from being reported as a missing file somewhere in it."""
    with pytest.raises(CheckpointError, match=r"neither a \.ngram store nor full\.trie"):
        imported.open_published(tmp_path, is_small=False)


def open_elsewhere(source: Path, cache: Path, barrier) -> None:
    barrier.wait()
    imported.open_or_import(source, cache=cache).verify()


def test_processes_import_one_after_the_other(tmp_path: Path) -> None:
    """Prevents two servers that start together from doing the work twice, or spoiling it."""
    source = make_trie(tmp_path / "x.trie", documents=40)
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    processes = [
        context.Process(target=open_elsewhere, args=(source, tmp_path / "cache", barrier))
        for _ in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert len(list((tmp_path / "cache/ngram").glob("*.ngram"))) == 1


def test_waiting_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Prevents a start that seems to hang while another process imports."""
    source = make_trie(tmp_path / "x.trie")
    store = Path(imported.open_or_import(source, cache=tmp_path).path)
    caplog.clear()
    held, done = store.rename(tmp_path / "aside"), threading.Event()
    with imported.only_one(store.with_suffix(".lock")), caplog.at_level(logging.WARNING):
        thread = threading.Thread(
            target=lambda: (imported.open_or_import(source, cache=tmp_path), done.set())
        )
        thread.start()
        while "waiting for the import" not in caplog.text:
            time.sleep(0.01)
        held.rename(store)  # what the other process does
    thread.join()
    assert done.is_set()
    assert "importing" not in caplog.text


def test_command_takes_hub_names(
    hub: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents a detour over the hub's own tools, and the wrong one of two files."""
    assert main(["ngram", "import", "owner/ngrams", "a.ngram", "--exact", "--memory", "64M"]) == 0
    assert main(["ngram", "import", "owner/ngrams", "b.ngram", "--full"]) == 0
    assert hub == [["small.trie"], ["full.trie"]]
    assert ngram.NgramStore.open("a.ngram").counts([1, 2]) == 2
    assert ngram.NgramStore.open("b.ngram").vocab_size == 10
    capsys.readouterr()
    assert main(["ngram", "import", "owner/ngrams", "c.ngram", "--memory", "10M"]) == 2
    assert "expected 67108864 (64M) or more" in capsys.readouterr().err


def test_command_takes_the_trie_of_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents a store from being imported for the trie beside it, and a hub asked for a file."""
    monkeypatch.setattr(huggingface_hub, "snapshot_download", pytest.fail)
    folder = tmp_path / "folder"
    folder.mkdir()
    source = make_trie(folder / "small.trie")
    store = ngram.import_trie(source, folder / "one.ngram")
    assert main(["ngram", "import", str(folder), str(tmp_path / "x.ngram")]) == 0
    assert (tmp_path / "x.ngram").read_bytes() == Path(store.path).read_bytes()
    capsys.readouterr()
    source.unlink()
    (folder / "two.ngram").touch()
    for given, words in (
        (folder, "folder holds no small.trie; name"),
        ("owner/absent.trie", "absent.trie"),
    ):
        assert main(["ngram", "import", str(given), str(tmp_path / "y.ngram")]) == 2
        assert words in capsys.readouterr().err


def test_progress_ends_and_never_goes_back(tmp_path: Path) -> None:
    """Prevents an estimate that jumps, as the parts of an import are counted apart."""
    shares: list[float] = []
    source = make_trie(tmp_path / "x.trie")
    import_tightly(
        source, tmp_path / "x.ngram",
        progress=lambda stage, done, total: (shares.append(done / total), time.sleep(0.1)),
    )  # fmt: skip
    assert all(after >= before - 1e-9 for before, after in pairwise(shares))
    assert len(shares) > 6
    assert 0.0 <= shares[0] < 0.1
    assert 0.7 < shares[-1] <= 1.0


def test_a_store_is_no_trie(tmp_path: Path) -> None:
    """Prevents "order is 5571594090758422852, download it again" for a file that is fine."""
    store = ngram.build([[1, 2, 3]], 2, tmp_path / "some.ngram")
    with pytest.raises(NgramFormatError, match=r"an n-gram store, expected an upstream \.trie"):
        ngram.import_trie(store.path, tmp_path / "again.ngram")


def test_refused_files_leave_nothing_behind(tmp_path: Path) -> None:
    """Prevents gigabytes of unfinished work beside a file that can never be imported."""
    source = make_trie(tmp_path / "x.trie")
    data = bytearray(source.read_bytes())
    data[-20] ^= 1
    source.write_bytes(data)
    with pytest.raises(NgramFormatError, match=r"x\.trie: "):
        import_tightly(source, tmp_path / "x.ngram")
    assert [path.name for path in tmp_path.iterdir()] == ["x.trie"]
