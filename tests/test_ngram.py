import pickle
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dart import ngram
from dart.errors import CheckpointError, ConfigError, NgramFormatError
from tests.conformance import CONFORMANCE, load_json, load_sequences
from tests.reference.ngram import Counts, count_ngrams, probability, read_trie, write_trie

QUERIES = load_json("ngram/ngram_queries.json")["queries"]
TRIES = sorted(path.name for path in (CONFORMANCE / "ngram").glob("*.trie"))
TINY = [[1, 2, 3, 1, 2], [2, 3], [], [7]]


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ngram.NgramStore]:
    folder = tmp_path_factory.mktemp("stores")
    return {
        name: ngram.import_trie(CONFORMANCE / "ngram" / name, folder / f"{name}.ngram", exact=True)
        for name in TRIES
    }


def assert_same_counts(store: ngram.NgramStore, counts: Counts) -> None:
    for gram, count in counts.items():
        assert store.counts(gram) == count, gram
    assert store.num_nodes == len(counts) - 1


def use(store: ngram.NgramStore) -> None:
    """Look around in a store that may be damaged: bounded answers or NgramFormatError."""
    for context in ([], [1], [2], [1, 2], [2, 3], [3, 1], [7]):
        probs, matched = store.probabilities(context, [0, 1, 2, 3, 7, 9, -1])
        assert np.isfinite(probs).all()
        assert (probs >= 0).all()
        assert (probs <= 1).all()
        assert (matched >= 0).all()
        assert (matched < store.order).all()


def test_recorded_queries(imported: dict[str, ngram.NgramStore]) -> None:
    """Prevents a probability or back-off that differs from the published one by a bit."""
    for query in QUERIES:
        probs, matched = imported[query["trie"]].probabilities(query["context"], query["tokens"])
        assert probs.dtype == np.float32
        assert matched.dtype == np.int32
        assert probs.tolist() == query["prob"], query
        assert matched.tolist() == query["matched"], query


@pytest.mark.parametrize("name", TRIES)
def test_import_keeps_every_count(imported: dict[str, ngram.NgramStore], name: str) -> None:
    """Prevents an importer that loses, adds or misplaces n-grams."""
    order, counts = read_trie((CONFORMANCE / "ngram" / name).read_bytes())
    store = imported[name]
    store.verify()
    assert store.order == order
    assert store.vocab_size == max(max(gram, default=-1) for gram in counts) + 1
    assert store.num_bytes == Path(store.path).stat().st_size
    assert_same_counts(store, counts)


@pytest.mark.parametrize("name", TRIES)
def test_build_equals_import(
    imported: dict[str, ngram.NgramStore], name: str, tmp_path: Path
) -> None:
    """Prevents a builder that counts differently from the published one (ends of documents)."""
    sequences, order4_conversations = load_sequences()
    if name.startswith("order4"):
        sequences = sequences[:order4_conversations]
    store = ngram.build(sequences, imported[name].order, tmp_path / "built.ngram", exact=True)
    assert Path(store.path).read_bytes() == Path(imported[name].path).read_bytes()
    assert store.counts([]) == sum(len(sequence) for sequence in sequences)


@settings(max_examples=60, deadline=None)
@given(
    sequences=st.lists(st.lists(st.integers(0, 4) | st.integers(0, 2**31 - 1)), max_size=5),
    order=st.integers(1, 8),
    context=st.lists(st.integers(-1, 5), max_size=9),
)
def test_build_equals_reference(
    tmp_path_factory: pytest.TempPathFactory,
    sequences: list[list[int]],
    order: int,
    context: list[int],
) -> None:
    """Prevents wrong counts or probabilities on shapes the recorded files do not have."""
    counts = count_ngrams(sequences, order)
    path = tmp_path_factory.getbasetemp() / "random.ngram"
    store = ngram.build(sequences, order, path, exact=True)
    store.verify()
    assert_same_counts(store, {(): 0, **counts})
    tokens = [-1, 0, 1, 2, 3, 4, 5, 1, 2**31 - 1]
    probs, matched = store.probabilities(context, tokens)
    expected = [probability(counts, order, context, token) for token in tokens]
    assert list(zip(probs.tolist(), matched.tolist(), strict=True)) == expected


@pytest.mark.parametrize(
    ("bits", "worst", "typical"), [(8, 0.05, 0.005), (6, 0.2, 0.03), (4, 0.6, 0.15)]
)
def test_rounding_is_bounded(
    imported: dict[str, ngram.NgramStore], tmp_path: Path, bits: int, worst: float, typical: float
) -> None:
    """Prevents a codebook that misses what the text is full of, and rounding to or from absent."""
    exact = imported["small.trie"]
    store = ngram.import_trie(CONFORMANCE / "ngram/small.trie", tmp_path / "x.ngram", bits=bits)
    store.verify()
    assert not store.is_exact
    assert store.num_nodes == exact.num_nodes
    assert store.num_bytes < exact.num_bytes
    assert {level.value_bits for level in store.level_sizes()} == {0, bits}
    errors = [np.zeros(0)]
    for query in QUERIES:
        if query["trie"] != "small.trie":
            continue
        expected, lengths = exact.probabilities(query["context"], query["tokens"])
        probs, matched = store.probabilities(query["context"], query["tokens"])
        assert matched.tolist() == lengths.tolist()
        assert ((probs > 0) == (expected > 0)).all()
        errors.append(np.abs(np.log(probs[probs > 0] / expected[probs > 0])))
    found = np.concatenate(errors)
    assert len(found) > 1000
    assert found.max() < worst
    assert np.median(found) < typical


def test_quantised_is_exact_where_it_can_be(tmp_path: Path) -> None:
    """Prevents rounding of the few probabilities that a small store has."""
    exact = ngram.build(TINY, 3, tmp_path / "exact.ngram", exact=True)
    store = ngram.build(TINY, 3, tmp_path / "rounded.ngram")
    for context in ([1], [2], [1, 2], [3, 1], [9]):
        answers = [each.probabilities(context, range(8)) for each in (exact, store)]
        assert answers[0][0].tolist() == answers[1][0].tolist()
    with pytest.raises(ConfigError, match=r"rounded\.ngram holds rounded .*--exact"):
        store.counts([1, 2])
    assert store.counts([]) == exact.counts([]) == 8


def test_level_sizes_add_up(imported: dict[str, ngram.NgramStore]) -> None:
    """Prevents figures per level that are not those of the file."""
    for store in imported.values():
        levels = store.level_sizes()
        assert len(levels) == store.order
        assert sum(level.nodes for level in levels) == store.num_nodes
        parts = sum(level.tokens + level.children + level.values for level in levels)
        assert store.num_bytes == parts + 704
        assert levels[-1].is_remapped
        assert store.num_bytes < 4 * store.num_nodes


def test_inputs_of_any_kind(tmp_path: Path) -> None:
    """Prevents dependence on the callers' array type: lists, numpy of any width, empty, strided."""
    store = ngram.build(TINY, 3, tmp_path / "tiny.ngram")
    expected = store.probabilities([1, 2], [3, 1])
    for dtype in (np.int16, np.uint16, np.int32, np.int64, np.uint64):
        context = np.array([1, 0, 2, 0], dtype)[::2]
        result = store.probabilities(context, np.array([3, 1], dtype))
        assert [a.tolist() for a in result] == [a.tolist() for a in expected]
    assert store.probabilities([], [])[0].shape == (0,)
    assert store.probabilities([1, 2**40], [2**40, 3])[0].tolist() == [0, 0]
    with pytest.raises(ConfigError, match="float64"):
        store.probabilities([1.5], [2])  # pyright: ignore[reportArgumentType]


def test_pruned_counts_are_absent(tmp_path: Path) -> None:
    """Prevents NaN or zero probabilities from counts that upstream's pruning made 0 or negative."""
    counts = {(): -3, (1,): 0, (2,): 4, (3,): -1, (2, 3): 0, (2, 4): 2, (1, 2): 5, (2, 5): 9}
    trie = tmp_path / "pruned.trie"
    trie.write_bytes(write_trie(2, counts))
    store = ngram.import_trie(trie, tmp_path / "pruned.ngram")
    store.verify()
    assert store.counts([]) == -3
    probs, matched = store.probabilities([2], [3, 4, 5])
    assert probs.tolist() == [0, 0.5, 1]  # 9 of 4 cannot be: at most 1
    assert matched.tolist() == [0, 1, 1]
    assert store.probabilities([1], [2])[1].tolist() == [0]


def test_threads_read_the_same(imported: dict[str, ngram.NgramStore]) -> None:
    """Prevents shared state between lookups, which release the interpreter lock."""
    store = imported[TRIES[0]]
    queries = [query for query in QUERIES if query["trie"] == TRIES[0]]
    failures: list[dict[str, object]] = []

    def work() -> None:
        for query in queries * 5:
            probs, _ = store.probabilities(query["context"], query["tokens"])
            if probs.tolist() != query["prob"]:
                failures.append(query)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_pickle_carries_the_path(tmp_path: Path) -> None:
    """Prevents worker processes from copying gigabytes, or failing to start."""
    store = ngram.build(TINY, 3, tmp_path / "tiny.ngram", exact=True)
    copy = pickle.loads(pickle.dumps(store))
    assert copy.path == store.path
    assert copy.counts([1, 2]) == store.counts([1, 2]) == 2


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    """Prevents reading beyond the end of a file that was cut off in a download."""
    data = Path(ngram.build(TINY, 3, tmp_path / "tiny.ngram").path).read_bytes()
    path = tmp_path / "cut.ngram"
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(NgramFormatError):
            ngram.NgramStore.open(path)
    path.write_bytes(data + b"\0")
    with pytest.raises(NgramFormatError):
        ngram.NgramStore.open(path)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_every_flipped_byte_is_bounded_and_found(tmp_path: Path, flip: int, exact: bool) -> None:
    """Prevents a crash or an endless loop on a damaged file, and damage verify() overlooks."""
    store = ngram.build(TINY, 3, tmp_path / "tiny.ngram", exact=exact)
    data = Path(store.path).read_bytes()
    for index in range(len(data)):
        path = tmp_path / f"{flip}-{index}.ngram"
        path.write_bytes(data[:index] + bytes([data[index] ^ flip]) + data[index + 1 :])
        try:
            store = ngram.NgramStore.open(path)
        except NgramFormatError:
            continue
        with pytest.raises(NgramFormatError, match="checksum"):
            store.verify()
        try:
            use(store)
        except NgramFormatError as error:
            assert str(path) in str(error)  # noqa: PT017  the error itself is optional here


@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_every_flipped_trie_byte_is_refused_or_harmless(tmp_path: Path, flip: int) -> None:
    """Prevents a damaged download from crashing the importer or giving an inconsistent store."""
    data = write_trie(3, count_ngrams(TINY, 3))
    source, destination = tmp_path / "damaged.trie", tmp_path / "out.ngram"
    for index in range(len(data)):
        source.write_bytes(data[:index] + bytes([data[index] ^ flip]) + data[index + 1 :])
        try:
            store = ngram.import_trie(source, destination)
        except NgramFormatError:
            continue
        store.verify()
        use(store)


def test_every_trie_truncation_is_refused(tmp_path: Path) -> None:
    """Prevents a store made of half a download."""
    data = write_trie(3, count_ngrams(TINY, 3))
    source, destination = tmp_path / "cut.trie", tmp_path / "out.ngram"
    for size in range(len(data)):
        source.write_bytes(data[:size])
        with pytest.raises(NgramFormatError):
            ngram.import_trie(source, destination)
    assert not destination.exists()


def test_wrong_paths_say_what_to_do(tmp_path: Path) -> None:
    """Prevents a bare system error where the user gave a wrong path."""
    with pytest.raises(CheckpointError, match=r"missing\.ngram: cannot be opened .*expected.*;"):
        ngram.NgramStore.open(tmp_path / "missing.ngram")
    with pytest.raises(CheckpointError, match="is a directory"):
        ngram.NgramStore.open(tmp_path)
    with pytest.raises(CheckpointError, match=r"none\.trie: cannot be opened"):
        ngram.import_trie(tmp_path / "none.trie", tmp_path / "out.ngram")
    with pytest.raises(CheckpointError, match="existing folder"):
        ngram.build(TINY, 3, tmp_path / "no" / "such" / "folder.ngram")
    (tmp_path / "folder").mkdir()
    with pytest.raises(CheckpointError, match="cannot be put in place"):
        ngram.build(TINY, 3, tmp_path / "folder")
    assert not list(tmp_path.glob("*.tmp*"))


def test_trie_given_to_open_names_the_import(tmp_path: Path) -> None:
    """Prevents a user with upstream's file from being told only that it is corrupt."""
    path = tmp_path / "small.trie"
    path.write_bytes(write_trie(3, count_ngrams(TINY, 3)))
    with pytest.raises(NgramFormatError, match="python -m dart ngram import"):
        ngram.NgramStore.open(path)


def test_builder_refuses_bad_parameters(tmp_path: Path) -> None:
    """Prevents a store of wrong order, or ids that wrap around, from being written silently."""
    for order in (0, -1, 9):
        with pytest.raises(ConfigError, match="order is"):
            ngram.build(TINY, order, tmp_path / "x.ngram")
    for bad in ([1, -2], [2**31]):
        with pytest.raises(ConfigError, match="sequence 1: token is"):
            ngram.build([[1], bad], 3, tmp_path / "x.ngram")
    for bits in (1, 9):
        with pytest.raises(ConfigError, match="bits is"):
            ngram.build(TINY, 3, tmp_path / "x.ngram", bits=bits)
        with pytest.raises(ConfigError, match="bits is"):
            ngram.import_trie(tmp_path / "x.trie", tmp_path / "x.ngram", bits=bits)
    assert not list(tmp_path.iterdir())
