"""The core in Python against the compiled one: same names, answers, errors, trees.

tests/test_search.py compares both searches on random problems.
"""

from __future__ import annotations

import ast
import inspect
import pickle
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from dart import native, ngram, pure, search
from dart.errors import CheckpointError, ConfigError, ExtensionError, NgramFormatError
from dart.ngram_build import build
from dart.pure.store import CHECKSUM_OFFSET, HEADER_BYTES, _header_checksum
from tests.conformance import CONFORMANCE, load_json
from tests.reference.ngram import count_ngrams, write_trie

QUERIES = load_json("ngram/ngram_queries.json")["queries"]
TINY = [[1, 2, 3, 1, 2], [2, 3], [], [7]]
SEEDS = CONFORMANCE.parent / "fuzz" / "store"
STUB = Path(search.__file__).with_name("_core.pyi")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ngram.NgramStore]:
    folder = tmp_path_factory.mktemp("stores")
    return {
        path.name: ngram.import_trie(path, folder / f"{path.stem}.ngram", exact=True)
        for path in (CONFORMANCE / "ngram").glob("*.trie")
    }


@pytest.fixture
def pure_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that got no compiled core."""
    monkeypatch.setattr(ngram, "_core", pure)
    monkeypatch.setattr(search, "_core", pure)


def test_is_not_what_the_tests_compare_with() -> None:
    """Prevents this file and test_search.py from comparing the Python core with itself."""
    assert native.core() is not pure, native.fallback_reason()


def test_names_and_arguments_are_those_of_the_stub() -> None:
    """Prevents a call that works with one core only."""
    for node in ast.parse(STUB.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            assert arguments(node) == list(inspect.signature(getattr(pure, node.name)).parameters)
        if isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef):
                    check_member(pure, node.name, member)


def arguments(node: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in [*node.args.args, *node.args.kwonlyargs]]


def check_member(core: ModuleType, owner: str, member: ast.FunctionDef) -> None:
    if any(isinstance(mark, ast.Name) and mark.id == "property" for mark in member.decorator_list):
        return  # attributes of an opened store: test_recorded_queries reads them
    if owner == "NgramBuilder" and member.name != "__init__":
        return  # there never is one
    found = getattr(getattr(core, owner), member.name)
    assert list(inspect.signature(found).parameters) == arguments(member), member.name


def test_recorded_queries(stores: dict[str, ngram.NgramStore]) -> None:
    """Prevents a probability or back-off that differs from the published one by a bit."""
    copies = {name: pure.NgramStore.open(store.path) for name, store in stores.items()}
    for name, store in stores.items():
        for attribute in ("order", "is_exact", "num_nodes", "num_bytes", "vocab_size"):
            assert getattr(copies[name], attribute) == getattr(store, attribute)
        assert copies[name].level_sizes() == store.core.level_sizes()
    for query in QUERIES:
        tokens = np.array(query["tokens"], np.int32)
        probs, matched = copies[query["trie"]].probabilities(query["context"], tokens)
        assert probs.dtype == np.float32
        assert matched.dtype == np.int32
        assert probs.tolist() == query["prob"], query
        assert matched.tolist() == query["matched"], query


@pytest.mark.parametrize("bits", [8, 3])
def test_quantised_answers(tmp_path: Path, bits: int) -> None:
    """Prevents other codes, codebooks or ranges than the compiled core reads."""
    store = ngram.import_trie(CONFORMANCE / "ngram/small.trie", tmp_path / "x.ngram", bits=bits)
    copy = pure.NgramStore.open(store.path)
    assert not copy.is_exact
    assert copy.level_sizes() == store.core.level_sizes()
    for query in QUERIES[::3]:
        context = np.array(query["context"], np.int32)
        tokens = np.array([*query["tokens"], *range(0, 640, 7)], np.int32)
        expected = store.core.probabilities(context, tokens)
        found = copy.probabilities(context, tokens)
        assert [array.tolist() for array in found] == [array.tolist() for array in expected]


def test_pruned_stores_are_read_alike(tmp_path: Path) -> None:
    """Prevents trouble where suffixes are missing, so that a level is not remapped."""
    counts = {(): 9, (1,): 4, (2,): 0, (1, 1): 2, (1, 2): 3, (2, 1): 1, (1, 1, 2): 1, (1, 2, 2): 1}
    source = tmp_path / "pruned.trie"
    source.write_bytes(write_trie(3, counts))
    for exact in (True, False):
        store = ngram.import_trie(source, tmp_path / "pruned.ngram", exact=exact)
        assert [level.is_remapped for level in store.level_sizes()][2] is False
        assert store.probabilities([1, 1], [2])[1].tolist() == [2]
        assert outcome(pure, Path(store.path)) == outcome(native.core(), Path(store.path))


def test_counts(stores: dict[str, ngram.NgramStore]) -> None:
    """Prevents counts of other n-grams, also of the empty, the unknown and the too long."""
    grams: list[list[int]] = [[], [-1], [2**31 - 1], [0] * 9]
    grams += [query["context"] for query in QUERIES[:40]]
    for store in stores.values():
        copy = pure.NgramStore.open(store.path)
        for gram in grams:
            assert copy.count(gram) == store.counts(gram), gram


@pytest.mark.usefixtures("pure_core")
def test_recorded_search_cases(stores: dict[str, ngram.NgramStore]) -> None:
    """Prevents a tree that differs from the published search."""
    suite = load_json("search_cases.json")["cases"]
    copies = {name: ngram.NgramStore.open(store.path) for name, store in stores.items()}
    assert isinstance(copies["small.trie"].core, pure.NgramStore)
    with np.load(CONFORMANCE / "search_cases.npz") as data:
        arrays = dict(data)
    for case in suite:
        recorded = {
            name.split(".", 1)[1]: array
            for name, array in arrays.items()
            if name.startswith(case["id"] + ".")
        }
        tree = search.search_tree(
            recorded["topk_tokens"],
            recorded["topk_probs"],
            copies[case["trie"]],
            recorded["prompt_tokens"],
            eos_token=case["eos_token"],
            tree_size=case["remain_total"],
            beam_width=case["beam_width"],
            ngram_weight=case["ngram_weight"],
            level_weights=recorded["level_weights"],
            logit_weights=recorded["logit_weights"],
        )
        assert tree.tokens.tolist() == recorded["draft_tokens"].tolist(), case["id"]
        assert tree.parents.tolist() == recorded["parents"].tolist(), case["id"]
        assert tree.scores is not None
        np.testing.assert_allclose(tree.scores, recorded["scores"], atol=1e-5, rtol=0)


@pytest.mark.usefixtures("pure_core")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"topk_probs": [[0.5, float("nan")]]}, r"topk_probs\[0, 1\] is nan"),
        ({"topk_probs": [[2.0, 0.5]]}, r"topk_probs\[0, 0\] is 2.000000"),
        ({"context": []}, "context is empty"),
        ({"beam_width": 10**6}, "beam_width is 1000000"),
        ({"ngram_weight": -1.0}, "ngram_weight is -1"),
        ({"level_weights": []}, "level_weights has 0 values"),
        ({"logit_weights": [float("nan")]}, "logit_weights is nan"),
    ],
)
def test_bad_input_is_named(change: dict, message: str) -> None:
    """Prevents checks that only the compiled search makes."""
    arguments = {"topk_tokens": [[2, 3]], "topk_probs": [[0.5, 0.5]], "store": None}
    arguments |= {"context": [1], "eos_token": None, "tree_size": 9, **change}
    with pytest.raises(ConfigError, match=message):
        search.search_tree(**arguments)


def outcome(core: ModuleType, path: Path) -> str:
    """How opening a file and looking around in it ends; damage must not do more than raise."""
    try:
        store = core.NgramStore.open(str(path))
        answers = []
        for context in ([], [1], [2], [1, 2], [2, 3], [3, 1], [7]):
            tokens = np.array([0, 1, 2, 3, 7, 9, -1], np.int32)
            probs, matched = store.probabilities(np.array(context, np.int32), tokens)
            assert ((probs >= 0) & (probs <= 1)).all()
            answers.append((probs.tolist(), matched.tolist()))
    except (NgramFormatError, CheckpointError) as error:
        return f"{type(error).__name__}: {error}"
    return str(answers)


def test_every_truncation_is_refused_alike(tmp_path: Path) -> None:
    """Prevents reading beyond the end of a file that was cut off in a download."""
    data = Path(ngram.build(TINY, 3, tmp_path / "tiny.ngram").path).read_bytes()
    path = tmp_path / "cut.ngram"
    for size in range(len(data)):
        path.write_bytes(data[:size])
        found = outcome(pure, path)
        assert found.startswith("NgramFormatError"), size
        assert found == outcome(native.core(), path)


@pytest.mark.parametrize(
    ("is_signed_again", "exact"), [(True, True), (True, False), (False, False)]
)
def test_every_flipped_byte_ends_alike(tmp_path: Path, is_signed_again: bool, exact: bool) -> None:
    """Prevents damage that one core refuses and the other follows, behind the checksum too."""
    store = ngram.build(TINY, 3, tmp_path / "tiny.ngram", exact=exact)
    data = Path(store.path).read_bytes()
    path = tmp_path / "damaged.ngram"
    for index in range(len(data)):
        damaged = bytearray(data)
        damaged[index] ^= 0x81
        if is_signed_again:
            checksum = _header_checksum(bytes(damaged[:HEADER_BYTES]))
            damaged[CHECKSUM_OFFSET : CHECKSUM_OFFSET + 8] = checksum.to_bytes(8, "little")
        path.write_bytes(damaged)
        theirs = outcome(native.core(), path)
        ours = outcome(pure, path)
        # Among siblings out of order either search may find what it wants first.
        if index < HEADER_BYTES or "Error" in theirs:
            assert ours == theirs, index


@pytest.mark.parametrize("path", sorted(SEEDS.iterdir()), ids=lambda path: path.name)
def test_fuzzing_seeds_open_alike(path: Path, tmp_path: Path) -> None:
    """Prevents trouble with stores of one level, or of none but the root; with found damage."""
    seed = path.read_bytes()
    store = tmp_path / "seed.ngram"
    store.write_bytes(seed[1 + seed[0] :] if seed else b"")  # behind the inputs of its searches
    ours, theirs = outcome(pure, store), outcome(native.core(), store)
    # Of two damages either may be met first.
    refused = "NgramFormatError"
    assert ours == theirs or (ours.startswith(refused) and theirs.startswith(refused))


@pytest.mark.usefixtures("pure_core")
def test_wrong_files_say_what_to_do(tmp_path: Path) -> None:
    """Prevents a bare system error where the user gave a wrong path, or upstream's file."""
    with pytest.raises(CheckpointError, match=r"missing\.ngram: cannot be opened .*expected.*;"):
        ngram.NgramStore.open(tmp_path / "missing.ngram")
    with pytest.raises(CheckpointError, match="is a directory"):
        ngram.NgramStore.open(tmp_path)
    path = tmp_path / "small.trie"
    path.write_bytes(write_trie(3, count_ngrams(TINY, 3)))
    with pytest.raises(NgramFormatError, match="python -m dart ngram import"):
        ngram.NgramStore.open(path)


def test_what_needs_the_extension_says_so(
    tmp_path: Path, pure_core: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents an AttributeError from greeting who makes a store without a compiler."""
    monkeypatch.undo()
    store = ngram.build(TINY, 3, tmp_path / "tiny.ngram")
    monkeypatch.setattr(ngram, "_core", pure)
    monkeypatch.setattr(build, "_core", pure)
    with pytest.raises(ExtensionError, match="Building .* needs the C\\+\\+ extension"):
        ngram.build(TINY, 3, tmp_path / "other.ngram")
    with pytest.raises(ExtensionError, match="Importing"):
        ngram.import_trie(CONFORMANCE / "ngram" / "small.trie", tmp_path / "other.ngram")
    copy = pickle.loads(pickle.dumps(ngram.NgramStore.open(store.path)))
    with pytest.raises(ExtensionError, match="Verifying"):
        copy.verify()
