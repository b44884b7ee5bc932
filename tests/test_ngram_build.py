"""Stores by runs, ranges and parts: the same bytes as in memory, however work was divided."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dart import ngram
from dart.errors import CheckpointError, ConfigError
from dart.ngram_build import local_engine, steps
from dart.ngram_build.build import build_from_sequences
from dart.ngram_build.config import StoreConfig
from dart.ngram_build.local_engine import LocalEngine
from dart.ngram_build.run_counter import RunCounter
from tests.reference.ngram import Counts, count_ngrams

Sequences = list[list[int]]


def engine(memory: int = 1 << 20, workers: int = 2) -> LocalEngine:
    return LocalEngine(memory=memory, workers=workers, tell=lambda *_: None)


def arrays(sequences: Sequences) -> list[NDArray[np.int32]]:
    return [np.array(sequence, np.int32) for sequence in sequences]


def pruned(counts: Counts, config: StoreConfig) -> Counts:
    """The n-grams that are frequent enough, and the empty one."""
    least = [0, *config.level_min_counts()]
    return {gram: count for gram, count in counts.items() if count >= least[len(gram)]}


def assert_holds(path: Path, counts: Counts) -> None:
    store = ngram.NgramStore.open(path)
    store.verify()
    for gram, count in {(): 0, **counts}.items():
        assert store.counts(gram) == count, gram
    assert store.num_nodes == len(set(counts) - {()})


def zipf_text(size: int, seed: int = 0) -> NDArray[np.int32]:
    return (np.random.default_rng(seed).zipf(1.4, size) % 5000).astype(np.int32)


def build_by_steps(
    folder: Path, sequences: Sequences, config: StoreConfig, memory: int, parts: int
) -> Path:
    """The steps one by one, as an engine does them."""
    counter = RunCounter(config.order, folder, memory)
    for ids in arrays(sequences):
        counter.add(ids)
    counter.write_run()
    ranges = steps.choose_ranges(counter.runs, config.order, parts)
    prefixes = [str(folder / f"part{index}-") for index in range(len(ranges))]
    for prefix, token_range in zip(prefixes, ranges, strict=True):
        assert not steps.has_levels(prefix)
        steps.merge_range(counter.runs, token_range, config, prefix, memory)
        assert steps.has_levels(prefix)
    store = folder / "steps.ngram"
    steps.assemble(prefixes, counter.num_tokens, config, store, folder=folder, memory=memory)
    return store


@settings(max_examples=60, deadline=None)
@given(
    sequences=st.lists(st.lists(st.integers(0, 3) | st.integers(0, 2**31 - 1)), max_size=6),
    order=st.integers(1, 8),
    increases=st.lists(st.integers(0, 2), min_size=1, max_size=3),
    memory=st.sampled_from([1, 12 * 40, 1 << 20]),
    parts=st.integers(1, 4),
)
def test_steps_equal_the_reference(
    tmp_path_factory: pytest.TempPathFactory,
    sequences: Sequences,
    order: int,
    increases: list[int],
    memory: int,
    parts: int,
) -> None:
    """Prevents counts that depend on runs, ranges, document ends, pruning or large ids."""
    folder = tmp_path_factory.mktemp("steps")
    least = tuple(1 + sum(increases[: i + 1]) for i in range(min(order, len(increases))))
    config = StoreConfig(order=order, min_counts=least, exact=True)
    store = build_by_steps(folder, sequences, config, memory, parts)
    assert_holds(store, pruned(count_ngrams(sequences, order), config))
    memory_store = ngram.build(
        sequences, order, folder / "memory.ngram", exact=True, min_counts=least
    )
    assert store.read_bytes() == Path(memory_store.path).read_bytes()


@pytest.mark.parametrize("memory", [1, 2000, 1 << 20, 1 << 30])
@pytest.mark.parametrize("workers", [1, 3])
def test_memory_and_threads_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: int, workers: int
) -> None:
    """Prevents other bytes where text is spilled, runs are combined and ranges are merged."""
    monkeypatch.setattr(local_engine, "MERGED_AT_ONCE", 3)
    monkeypatch.setattr(local_engine, "SMALLEST_PART_RECORDS", 10)
    text = zipf_text(1500)
    sequences = [text[i : i + 70] for i in range(0, len(text), 70)]
    for config in (StoreConfig(order=4), StoreConfig(order=3, exact=True, min_counts=(1, 2))):
        build_from_sequences(sequences, config, tmp_path / "x.ngram", engine(memory, workers))
        expected = ngram.build(
            sequences,
            config.order,
            tmp_path / "expected.ngram",
            exact=config.exact,
            min_counts=config.min_counts,
        )
        assert (tmp_path / "x.ngram").read_bytes() == Path(expected.path).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["expected.ngram", "x.ngram"]


@pytest.mark.parametrize("piece", [1, 5, 400])
def test_long_documents_are_counted_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    """Prevents n-grams lost or added where a document is cut, also by whom it comes from."""
    monkeypatch.setattr("dart.ngram_build.run_counter.PIECE_TOKENS", piece)
    text = zipf_text(500).tolist()
    config = StoreConfig(order=5, exact=True)
    counter = RunCounter(5, tmp_path, 12 * 50)
    for begin in range(0, len(text), 37):
        ids = np.array(text[begin : begin + 37], np.int32)
        counter.add(ids, is_end=begin + 37 >= len(text))
    counter.add(np.array([1, 2], np.int32))
    counter.write_run()
    steps.merge_range(counter.runs, (0, 2**31), config, tmp_path / "p", 1 << 20)
    store = tmp_path / "x.ngram"
    assert counter.num_tokens == len(text) + 2
    steps.assemble(
        [str(tmp_path / "p")], counter.num_tokens, config, store, folder=tmp_path, memory=1 << 20
    )
    assert_holds(store, count_ngrams([text, [1, 2]], 5))


def test_ranges_share_the_work(tmp_path: Path) -> None:
    """Prevents one thread from doing all of the merge while the others wait."""
    counter = RunCounter(2, tmp_path, 12 * 30_000)
    text = np.random.default_rng(1).integers(0, 3000, 100_000).astype(np.int32)
    for begin in range(0, len(text), 1000):
        counter.add(text[begin : begin + 1000])
    counter.write_run()
    assert len(counter.runs) > 3
    ranges = steps.choose_ranges(counter.runs, 2, 8)
    assert len(ranges) == 8
    assert (ranges[0][0], ranges[-1][1]) == (0, 2**31)
    assert [end for _, end in ranges[:-1]] == [begin for begin, _ in ranges[1:]]
    shares = [((begin <= text) & (text < end)).mean() for begin, end in ranges]
    assert max(shares) < 2 * min(shares)
    assert steps.choose_ranges([], 2, 8) == [(0, 2**31)]


def test_wrong_parameters_name_what_fits(tmp_path: Path) -> None:
    """Prevents a build of hours that ends in an error, or in a store without its contexts."""
    for least, message in (
        ((2, 1), "minimal counts are 2 1"),
        ((0,), "minimal counts are 0"),
        ((1, 1, 1, 1), "there are 4 minimal counts"),
        ((), "there are 0 minimal counts"),
    ):
        with pytest.raises(ConfigError, match=message):
            ngram.build([[1]], 3, tmp_path / "x.ngram", min_counts=least)
    with pytest.raises(ConfigError, match="memory is 5 bytes, expected 67108864"):
        ngram.build([[1]], 3, tmp_path / "x.ngram", memory=5)
    with pytest.raises(ValueError, match="sequence 1: token is -1"):
        build_from_sequences(
            arrays([[1] * 50, [-1]]), StoreConfig(order=2), tmp_path / "x.ngram", engine(1)
        )
    with pytest.raises(CheckpointError, match="expected an existing folder"):
        build_from_sequences(
            arrays([[1] * 50]), StoreConfig(order=2), tmp_path / "no" / "x.ngram", engine(1)
        )
    assert not list(tmp_path.iterdir())


def test_pruning_keeps_true_probabilities(tmp_path: Path) -> None:
    """Prevents probabilities given what was kept instead of given the text."""
    sequences = [[1, 2]] * 3 + [[1, 3]]
    store = ngram.build(sequences, 2, tmp_path / "x.ngram", exact=True, min_counts=(1, 2))
    assert store.probabilities([1], [2, 3])[0].tolist() == [0.75, 0]
    assert store.counts([]) == 8


BUILD_AND_MEASURE = """
import sys
import subprocess
import sys
from pathlib import Path
import numpy as np
from dart.ngram_build.build import build_from_sequences
from dart.ngram_build.config import StoreConfig
from dart.ngram_build.local_engine import LocalEngine

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))

text = (np.random.default_rng(0).zipf(1.2, 4_000_000) % 50_000).astype(np.int32)
documents = (text[at : at + 1000] for at in range(0, len(text), 1000))
engine = LocalEngine(memory=int(sys.argv[2]) << 20, workers=2, tell=lambda *_: None)
before = peak()
build_from_sequences(documents, StoreConfig(order=4), sys.argv[1], engine)
print((peak() - before) >> 20)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="measures on Linux only")
def test_memory_is_bounded(tmp_path: Path) -> None:
    """Prevents a bound that holds the buffers but not the process: mapped files, both at once."""

    def grown(memory: int) -> int:
        command = [sys.executable, "-c", BUILD_AND_MEASURE, str(tmp_path / "x"), str(memory)]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    assert grown(64) < 64 + 16
    assert grown(4096) > 2 * (64 + 16)  # so there was something to bound
