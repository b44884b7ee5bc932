"""How a store's speed is measured, and the ways a store is kept in memory."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from dart import ngram, pure
from dart.__main__ import main
from dart.bench import page_cache
from dart.bench.store import measure, quantiles
from dart.bench.store_queries import make_queries
from dart.config import NGRAM_RESIDENCE
from dart.errors import ConfigError

DEMO = Path(__file__).parents[1] / "assets" / "demo" / "ngram" / "demo.ngram"
LINUX = pytest.mark.skipif(not page_cache.is_supported(), reason="this system does not tell")
RANDOM = np.random.default_rng(0)
TEXT = (RANDOM.zipf(1.3, 40_000) % 300).astype(np.int32)


def size_of(path: str | Path) -> int:
    return Path(path).stat().st_size


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store of several pages."""
    path = tmp_path_factory.mktemp("stores") / "text.ngram"
    ngram.build([TEXT[:30_000]], 4, path)
    return str(path)


def test_queries_are_what_a_head_could_ask() -> None:
    """Prevents searches that are easier, or other, than a model's: wrong places, doubled tokens."""
    queries = make_queries(TEXT, 50, levels=3, candidates=10, seed=1)
    text = TEXT.tolist()
    assert len(queries) == 50
    for query in queries:
        assert query.tokens.shape == query.probabilities.shape == (3, 10)
        context = query.context.tolist()
        assert len(context) == ngram.MAX_ORDER - 1
        # Some place of the text has this context and these tokens behind it.
        assert any(
            text[at : at + len(context)] == context
            and all(text[at + len(context) + i] in query.tokens[i] for i in range(3))
            for at in range(len(text) - len(context) - 3)
            if text[at] == context[0]
        )
        for tokens, probabilities in zip(query.tokens, query.probabilities, strict=True):
            assert len(set(tokens.tolist())) == 10
            assert probabilities.sum() == pytest.approx(1, abs=1e-5)
            assert (np.diff(probabilities) <= 0).all()
            assert (probabilities > 0).all()
    again = make_queries(TEXT, 50, levels=3, candidates=10, seed=1)
    assert all((a.context == b.context).all() for a, b in zip(queries, again, strict=True))


@pytest.mark.parametrize(("size", "candidates"), [(40, 5), (1000, 301)])
def test_short_texts_are_refused(size: int, candidates: int) -> None:
    """Prevents an endless search for places, or rows with holes, in a text that is too short."""
    with pytest.raises(ConfigError, match="give a longer one"):
        make_queries(TEXT[:size], 100, levels=8, candidates=candidates, seed=0)


def test_quantiles() -> None:
    """Prevents a median that is a mean, and a lost maximum."""
    assert quantiles([1.0, 2.0, 99.0])["median"] == 2.0
    assert quantiles(np.arange(1001.0)) == {"median": 500.0, "p99": 990.0, "max": 1000.0}


@LINUX
def test_dropped_pages_are_gone_and_those_read_are_counted(store: str) -> None:
    """Prevents a cold measurement of a warm file, and figures of memory that are always 0."""
    if page_cache.drop(store) > 0:
        pytest.skip("this file system keeps files in memory")
    opened = ngram.NgramStore.open(store)
    assert page_cache.resident(store).resident < size_of(store)
    opened.probabilities([1, 2, 3], range(300))
    assert page_cache.cached_share(store) > 0
    after = page_cache.resident(store)
    assert 0 < after.referenced <= after.resident <= size_of(store) + page_cache.PAGE
    page_cache.forget_references()
    assert page_cache.resident(store).referenced == 0
    del opened
    assert page_cache.resident(store).resident == 0


@LINUX
def test_mapped_stores_take_no_more_memory_than_what_they_read(tmp_path: Path) -> None:
    """Prevents a small machine from filling up with the neighbours of what was looked up."""
    path = tmp_path / "demo.ngram"
    path.write_bytes(DEMO.read_bytes())
    if page_cache.drop(path) > 0:
        pytest.skip("this file system keeps files in memory")
    opened = ngram.NgramStore.open(path, residence="mapped")
    page_cache.forget_references()
    opened.probabilities([100, 200, 300], range(25))
    here = page_cache.resident(path)
    assert 0 < here.resident < size_of(path) // 10
    assert here.resident <= here.referenced + page_cache.PAGE  # the header's, read before
    assert page_cache.cached_share(path) <= here.resident / size_of(path) * 1.01
    opened.verify()
    assert page_cache.cached_share(path) > 0.9


def test_figures_are_there_and_possible(store: str) -> None:
    """Prevents figures that were not measured: zeros, or quantiles out of order."""
    queries = make_queries(TEXT, 20, levels=4, candidates=10, seed=0)
    figures = measure(store, queries, passes=2, rounds=3)
    searches = figures["search_seconds"]
    spreads = [
        figures["open_seconds"]["warm"],
        searches["warm"],
        searches["warm_undisturbed"],
        *figures["context_seconds"].values(),
    ]
    if page_cache.is_supported():
        assert searches["cold"]["cached_share_after"] > 0
        assert list(searches["cold"]["first"]) == ["10"]  # there are not 100
        spreads.append(searches["cold"]["first"]["10"])
        assert figures["open_seconds"]["cold"] > 0
        memory = figures["memory"]
        assert 0 < memory["touched_bytes"] <= memory["file_bytes"] + page_cache.PAGE
    for spread in spreads:
        assert 0 < spread["median"] <= spread["p99"] <= spread["max"] < 60
    assert searches["warm_undisturbed"]["max"] <= searches["warm"]["max"]


def test_command(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents a result without provenance, and a table that does not fit the figures."""
    text = tmp_path / "text.jsonl"
    line = json.dumps({"text": "def add(a, b):\n    return a + b\n" * 50})
    talk = json.dumps({"messages": [{"role": "user", "content": "Sort the names, please."}] * 9})
    text.write_text(f"{line}\n{talk}\n", encoding="utf-8")
    out = tmp_path / "out.json"
    flags = ["--text", str(text), "--json", str(out)]
    small = ["--searches", "5", "--levels", "3", "--candidates", "4", "--passes", "1"]
    assert main(["ngram", "bench", store, *flags, *small]) == 0
    said = capsys.readouterr().out
    assert "search, warm" in said
    assert "one context" in said
    result = json.loads(out.read_text("utf-8"))
    assert result["provenance"]["command"].startswith("python -m dart ngram bench ")
    assert result["settings"]["candidates"] == 4
    assert result["store"]["num_bytes"] == size_of(store)
    for bad, message in (
        (["--searches", "0"], "--searches is 0"),
        (["--text", str(tmp_path / "none")], "is no file"),
        (["--tokenizer", str(tmp_path)], "holds no tokenizer"),
        (["--json", str(tmp_path / "none" / "x")], "folder does not exist"),
    ):
        assert main(["ngram", "bench", store, *flags, *bad]) == 2
        assert message in capsys.readouterr().err
    text.write_text('{"prompt": 1}\n', encoding="utf-8")
    assert main(["ngram", "bench", store, *flags]) == 2
    assert "line 1: expected a JSON object" in capsys.readouterr().err


def test_command_without_a_text(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Prevents a default text that the command itself cannot read, or that is too short for it,

    and results that name a folder of the machine they were made on.
    """
    out = tmp_path / "out.json"
    assert main(["ngram", "bench", str(DEMO), "--passes", "1", "--json", str(out)]) == 0
    assert "search, warm" in capsys.readouterr().out
    settings = json.loads(out.read_text(encoding="utf-8"))["settings"]
    assert settings["text"] is None
    assert settings["tokenizer"] is None


@pytest.mark.parametrize("residence", NGRAM_RESIDENCE)
def test_residence_changes_no_answer(store: str, residence: str) -> None:
    """Prevents a store that answers otherwise, or not at all, because of where its file is."""
    plain = ngram.NgramStore.open(store).probabilities([1, 2], range(300))
    kept = pickle.loads(pickle.dumps(ngram.NgramStore.open(store, residence=residence)))
    for other in (kept, pure.NgramStore.open(store, residence)):
        for expected, found in zip(plain, other.probabilities(np.array([1, 2], np.int32),
                                                              np.arange(300, dtype=np.int32)),
                                   strict=True):  # fmt: skip
            assert (expected == found).all()


def test_unknown_residence_is_refused(store: str) -> None:
    """Prevents a mistyped word from being taken for the default."""
    with pytest.raises(ConfigError, match="'hot', expected one of mapped, preloaded, locked"):
        ngram.NgramStore.open(store, residence="hot")


@LINUX
@pytest.mark.parametrize("residence", ["preloaded", "locked"])
def test_file_is_read_ahead(store: str, residence: str) -> None:
    """Prevents a thread that never reads, and one that keeps a closed file's memory."""
    page_cache.drop(store)
    opened = ngram.NgramStore.open(store, residence=residence)
    end = time.monotonic() + 10
    while page_cache.resident(store).resident < size_of(store):
        assert time.monotonic() < end, "not read in ten seconds"
        time.sleep(0.01)
    assert page_cache.cached_share(store) == 1
    del opened
    while page_cache.resident(store).resident > 0:
        assert time.monotonic() < end, "still mapped"
        time.sleep(0.01)


LOCK = """\
import os, resource, sys
from dart import ngram
from dart.errors import CheckpointError
resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
if os.geteuid() == 0:
    os.seteuid(65534)  # root may lock whatever the limit
try:
    ngram.NgramStore.open(sys.argv[1], residence="locked")
except CheckpointError as error:
    print(error)
"""


@LINUX
def test_refused_lock_names_the_limit(store: str) -> None:
    """Prevents a store that silently stays unlocked, and an error that does not say what to do."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "store.ngram"
        path.write_bytes(Path(store).read_bytes())
        path.chmod(0o644)
        said = subprocess.run(
            [sys.executable, "-c", LOCK, path], capture_output=True, text=True, check=True
        ).stdout
    assert "cannot be locked" in said
    assert f"leave to lock {size_of(store)} bytes, here it is for 0" in said
    assert "ulimit -l" in said
