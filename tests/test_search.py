import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dart import ngram, pure
from dart.context_store import ContextStore
from dart.errors import ConfigError
from dart.search import default_weights, search_tree
from dart.tree import DraftTree
from tests.conformance import CONFORMANCE, load_json
from tests.reference import ngram as reference_ngram

SUITE = load_json("search_cases.json")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ngram.NgramStore]:
    folder = tmp_path_factory.mktemp("stores")
    return {
        name: ngram.import_trie(CONFORMANCE / "ngram" / name, folder / f"{name}.ngram", exact=True)
        for name in {case["trie"] for case in SUITE["cases"]}
    }


@pytest.fixture(scope="module")
def arrays() -> dict[str, np.ndarray]:
    with np.load(CONFORMANCE / "search_cases.npz") as data:
        return dict(data)


def paths_of(tree: DraftTree) -> list[tuple[int, ...]]:
    paths: list[tuple[int, ...]] = [()]
    for token, parent in zip(tree.tokens[1:].tolist(), tree.parents[1:].tolist(), strict=True):
        paths.append((*paths[parent], token))
    return paths


def assert_well_formed(tree: DraftTree) -> None:
    """Root first, parents before children, siblings distinct, scores falling along paths."""
    nodes = np.arange(1, len(tree.tokens))
    assert tree.parents[0] == -1
    assert (tree.parents[1:] >= 0).all()
    assert (tree.parents[1:] < nodes).all()
    assert len(set(paths_of(tree))) == len(tree.tokens)
    assert tree.scores is not None
    assert (tree.scores[1:] <= tree.scores[tree.parents[1:]]).all()


@pytest.mark.parametrize("case", SUITE["cases"], ids=lambda case: case["id"])
def test_recorded_cases(
    case: dict[str, Any], stores: dict[str, ngram.NgramStore], arrays: dict[str, np.ndarray]
) -> None:
    """Prevents any tree that differs from the published search: nodes, order, parents, scores."""
    recorded = {
        name.split(".", 1)[1]: array
        for name, array in arrays.items()
        if name.startswith(case["id"] + ".")
    }
    tree = search_tree(
        recorded["topk_tokens"],
        recorded["topk_probs"],
        stores[case["trie"]],
        recorded["prompt_tokens"],
        eos_token=case["eos_token"],
        tree_size=case["remain_total"],
        beam_width=case["beam_width"],
        ngram_weight=case["ngram_weight"],
        level_weights=recorded["level_weights"],
        logit_weights=recorded["logit_weights"],
    )
    assert tree.tokens.tolist() == recorded["draft_tokens"].tolist()
    assert tree.parents.tolist() == recorded["parents"].tolist()
    assert tree.depths.tolist() == recorded["tree_position_ids"].tolist()
    expected = {tuple(entry["path"]): entry["score"] for entry in case["paths"]}
    assert tree.scores is not None
    np.testing.assert_allclose(tree.scores, recorded["scores"], atol=1e-5, rtol=0)
    found = dict(zip(paths_of(tree)[1:], tree.scores[1:].tolist(), strict=True))
    assert found.keys() == expected.keys()
    for path, score in expected.items():
        assert found[path] == pytest.approx(score, abs=1e-5)


def test_default_weights() -> None:
    """Prevents defaults computed in float32, which differ from upstream's in the last bit."""
    level, logit = default_weights(len(SUITE["default_level_weights"]))
    assert level.tolist() == SUITE["default_level_weights"]
    assert logit.tolist() == SUITE["default_logit_weights"]


# Few distinct values, exact powers of two and 0, 1 among them: many exact ties.
PROBABILITIES = st.sampled_from([0.0, 0.125, 0.25, 0.3, 0.5, 0.75, 1.0])


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    levels, width = draw(st.integers(0, 4)), draw(st.integers(0, 5))
    size = levels * width
    tokens = draw(st.lists(st.integers(-1, 4), min_size=size, max_size=size))
    probs = draw(st.lists(PROBABILITIES, min_size=size, max_size=size))
    weights = st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=levels, max_size=levels)
    return {
        "topk_tokens": np.array(tokens, np.int64).reshape(levels, width),
        "topk_probs": np.array(probs, np.float32).reshape(levels, width),
        "context": draw(st.lists(st.integers(-1, 4), min_size=1, max_size=5)),
        "eos_token": draw(st.lists(st.integers(0, 4), max_size=2, unique=True)),
        "tree_size": draw(st.integers(0, 40)),
        "beam_width": draw(st.integers(1, 8)),
        "ngram_weight": draw(st.sampled_from([0.0, 0.5, 1.0])),
        "level_weights": draw(st.just(default_weights(levels)[0].tolist()) | weights),
        "logit_weights": draw(st.just(default_weights(levels)[1].tolist()) | weights),
        "order": draw(st.integers(1, 4)),
        "sequences": draw(st.lists(st.lists(st.integers(0, 4), max_size=12), max_size=3)),
        "has_store": draw(st.booleans()),
        "acceptance": draw(st.none() | acceptance_models(levels)),
        "text": draw(st.none() | st.lists(st.integers(0, 5), max_size=24)),
        "context_order": draw(st.integers(1, 4)),
        "context_acceptance": draw(acceptance_models(levels)),
        "min_probability": draw(st.sampled_from([0.0, 0.1, 0.4])),
    }


@st.composite
def acceptance_models(draw: st.DrawFn, levels: int) -> np.ndarray:
    """Round coefficients, so that there are ties here, too."""
    shape = (levels, draw(st.integers(1, 4)), 3)
    values = st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0])
    flat = draw(st.lists(values, min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    return np.array(flat, np.float32).reshape(shape)


FIELDS = [field.name for field in dataclasses.fields(DraftTree)]


class Counts:
    """n-gram counts in a dict, as the search in Python takes them."""

    def __init__(self, sequences: list[list[int]], order: int) -> None:
        self.order = order
        self.counts = reference_ngram.count_ngrams(sequences, order)

    def probabilities(self, context: Any, tokens: Any) -> tuple[np.ndarray, np.ndarray]:
        found = [
            reference_ngram.probability(self.counts, self.order, context, token)
            for token in tokens.tolist()
        ]
        q, matched = zip(*found, strict=True)
        return np.array(q, np.float32), np.array(matched, np.int32)


def check_against_reference(problem: dict[str, Any], folder: Path) -> None:
    """Search in C++, in Python, and in Python from counts in a dict: every number must be equal."""
    problem = dict(problem)
    order, sequences = problem.pop("order"), problem.pop("sequences")
    stores: list[Any] = [None, None, None]
    if problem.pop("has_store"):
        store = ngram.build(sequences, order, folder / "search.ngram", exact=True)
        stores = [store, pure.NgramStore.open(store.path), Counts(sequences, order)]
    text, context_order = problem.pop("text", None), problem.pop("context_order", 1)
    texts: list[Any] = [None, None]
    if text is not None:
        texts = [ContextStore(context_order), pure.ContextStore(context_order)]
        texts[0].append(text)
        texts[1].append(np.array(text, np.int32))
    if text is None or problem["acceptance"] is None:
        problem["context_acceptance"] = None
    tree = search_tree(store=stores[0], context_store=texts[0], **problem)
    assert_well_formed(tree)
    assert tree.tokens[0] == problem["context"][-1]
    problem["context_store"] = texts[1]
    assert_same_tree(tree, pure_search_tree(store=stores[1], **problem))
    everything = pure_search_tree(store=stores[2], **{**problem, "tree_size": 10**6})
    assert_same_tree(tree, best_part(everything, problem["tree_size"]))


def pure_search_tree(store: Any, eos_token: list[int], **problem: Any) -> DraftTree:
    """The search in Python, given what dart.search.search_tree takes."""
    for name, dtype in (
        *(("topk_tokens", np.int32), ("context", np.int32), ("topk_probs", np.float32)),
        *(("level_weights", np.float32), ("logit_weights", np.float32)),
    ):
        problem[name] = np.array(problem[name], dtype)
    least = problem.pop("min_probability", 0.0)
    problem["min_score"] = math.log(least) if least else -math.inf
    for name in ("acceptance", "context_store", "context_acceptance"):
        problem.setdefault(name, None)
    return DraftTree(*pure.search_tree(store=store, eos_tokens=eos_token, **problem))


def best_part(tree: DraftTree, tree_size: int) -> DraftTree:
    """The tree cut to its best nodes; of equal ones those that come first in it."""
    assert tree.scores is not None
    falling = np.argsort(-tree.scores[1:], kind="stable")[:tree_size]
    kept = np.concatenate([[0], 1 + np.sort(falling)])
    index_of = dict(zip([-1, *kept.tolist()], range(-1, len(kept)), strict=True))
    columns = {name: getattr(tree, name)[kept] for name in FIELDS}
    columns["parents"] = np.array([index_of[parent] for parent in columns["parents"].tolist()])
    return DraftTree(**columns)


def assert_same_tree(tree: DraftTree, other: DraftTree) -> None:
    """Every field of both, its type included."""
    for name in FIELDS:
        mine, theirs = getattr(tree, name), getattr(other, name)
        assert mine.dtype == theirs.dtype, name
        assert mine.tolist() == theirs.tolist(), name


def test_scores_with_a_model_are_log_probabilities(stores) -> None:
    """A score that is no probability would cut nodes that are worth their place."""
    model = np.array([[[1, 2, 0], [0, 0.5, 1], [-1, 0, 0.25]]] * 2, np.float32)
    store = next(iter(stores.values()))
    tokens, probs = np.array([[3, 5, 7], [2, 3, 4]]), np.array([[0.6, 0.3, 0.1]] * 2)
    options = {"eos_token": None, "tree_size": 12, "acceptance": model}
    tree = search_tree(tokens, probs, store, [3, 5], **options)
    assert tree.scores is not None
    assert len(tree) == 13
    for node in range(1, 13):
        path = tree.path_to(node)
        share = 1.0
        for step in path[1:]:
            level, context = int(tree.depths[step]) - 1, [3, 5, *tree.tokens[path[1:]].tolist()]
            context = context[: 2 + level]
            q, matched = store.probabilities(context, [int(tree.tokens[step])])
            length = min(int(matched[0]), 2)
            a, b, c = model[level, length].tolist()
            p = float(probs[level, tree.ranks[step]]) if tree.ranks is not None else 0.0
            z = a + b * math.log(p) + (c * math.log(q[0]) if length else 0)
            share *= 1 / (1 + math.exp(-z))
        assert math.exp(tree.scores[node]) == pytest.approx(share, rel=1e-4)
    cut = search_tree(tokens, probs, store, [3, 5], min_probability=0.05, **options)
    worth = np.exp(tree.scores) >= 0.05
    assert 1 < len(cut) < 13
    assert cut.tokens.tolist() == tree.tokens[worth].tolist()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"acceptance": np.zeros((1, 2, 3))}, "each of 2 levels"),
        ({"acceptance": np.zeros((2, 3))}, "shape"),
        ({"acceptance": np.full((2, 2, 3), np.nan)}, "acceptance holds nan"),
        ({"min_probability": 1.5}, "min_probability is 1.5"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(changes, words) -> None:
    """Coefficients read out of bounds would draft at random."""
    probs = np.full((2, 3), 0.3)
    with pytest.raises(ConfigError, match=words):
        search_tree(np.ones((2, 3), int), probs, None, [1], eos_token=None, tree_size=4, **changes)


@settings(max_examples=300, deadline=None)
@given(problem=problems())
def test_equals_reference(
    tmp_path_factory: pytest.TempPathFactory, problem: dict[str, Any]
) -> None:
    """Prevents errors on ties, duplicates, EOS, tiny beams, empty levels; shrinks to one case."""
    check_against_reference(problem, tmp_path_factory.getbasetemp())


@pytest.mark.parametrize("seed", range(60))
def test_equals_reference_on_larger_problems(seed: int, tmp_path: Path) -> None:
    """Prevents errors that need full beams and many contexts, and from skipping hopeless nodes."""
    random = np.random.default_rng(seed)
    levels, width, vocab = random.integers([2, 3, 6], [7, 9, 14]).tolist()
    probs = random.random((levels, width))
    if seed % 3 == 0:  # many exact ties
        probs = 2.0 ** -np.floor(4 * probs)
    text = random.integers(vocab, size=(8, 20))
    text[1::2, :12] = text[::2, 4:16]  # repeated phrases, so that long contexts match
    coefficients = random.choice([-1, 0, 0.5, 1], (levels, 3, 3)).astype(np.float32)
    check_against_reference(
        {
            "topk_tokens": random.integers(-1, vocab, size=(levels, width)),
            "topk_probs": probs.astype(np.float32),
            "context": random.integers(-1, vocab, size=6).tolist(),
            "eos_token": random.integers(vocab, size=seed % 4).tolist(),
            "tree_size": int(random.integers(1, 80)),
            "beam_width": int(random.integers(1, 25)),
            "ngram_weight": [0.5, 0.5, 0.1, 0.0][seed % 4],
            "level_weights": default_weights(levels)[0].tolist(),
            "logit_weights": default_weights(levels)[1].tolist(),
            "order": 1 + seed % 5,
            "sequences": text.tolist(),
            "has_store": seed % 7 > 0,
            "acceptance": coefficients if seed % 2 else None,
            "text": text[0].tolist() + text[1].tolist() if seed % 4 < 3 else None,
            "context_order": 1 + seed % 6,
            "context_acceptance": coefficients[:, ::-1] if seed % 4 < 3 else None,
        },
        tmp_path,
    )


def test_what_a_least_score_leaves_out_keeps_its_place(tmp_path: Path) -> None:
    """Prevents an EOS from entering the beam where a hopeless member's extensions would fill it."""
    problem = {
        "topk_tokens": np.array([[0, 0, 1], [0, 0, 0], [0, 1, 2], [0, 0, 0]]),
        "topk_probs": np.array([[0, 0, 0.125], *[[0, 0, 0]] * 3], np.float32),
        "context": [0],
        "eos_token": [0],
        "tree_size": 8,
        "beam_width": 3,
        "ngram_weight": 0.0,
        "level_weights": default_weights(4)[0].tolist(),
        "logit_weights": [0.5, 0.0, 0.0, 0.0],
        "order": 1,
        "sequences": [],
        "has_store": False,
        "min_probability": 0.1,
    }
    check_against_reference(problem, tmp_path)


def test_exact_ties_keep_parents(tmp_path: Path) -> None:
    """Prevents a cut through equal scores from keeping a child and dropping its parent."""
    store = ngram.build([[1, 2, 3, 4, 5, 6]], 3, tmp_path / "chain.ngram", exact=True)
    tokens = [[2, 9], [3, 9], [4, 9], [5, 9], [6, 9]]
    probs = [[1.0, 0.0]] * 5
    for tree_size in range(12):
        tree = search_tree(tokens, probs, store, [1], eos_token=None, tree_size=tree_size)
        assert_well_formed(tree)
        assert len(tree.tokens) == tree_size + 1
        assert tree.tokens[: min(tree_size, 2) + 1].tolist() == [1, 2, 3][: tree_size + 1]


def test_duplicates_in_a_level_become_one_node() -> None:
    """Prevents siblings with one token, which a path of tokens cannot tell apart."""
    tree = search_tree([[5, 5, 6]], [[0.25, 0.5, 0.25]], None, [1], eos_token=None, tree_size=60)
    assert tree.tokens.tolist() == [1, 5, 6]
    assert tree.ranks is not None
    assert tree.ranks.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("levels", "width", "tree_size"), [(0, 0, 9), (3, 0, 9), (3, 4, 0)])
def test_nothing_to_draft_gives_the_root(levels: int, width: int, tree_size: int) -> None:
    """Prevents a failure where there is nothing to search."""
    tree = search_tree(
        np.ones((levels, width), np.int64),
        np.full((levels, width), 0.5),
        None,
        [8, 3],
        eos_token=0,
        tree_size=tree_size,
    )
    assert tree.tokens.tolist() == [3]
    assert tree.parents.tolist() == [-1]
    assert tree.draft_probs is not None
    assert tree.draft_probs.tolist() == [1]


def test_eos_forms_are_equal() -> None:
    """Prevents several end tokens from being treated unlike a single one."""
    tokens, probs = [[2, 3], [4, 5]], [[0.9, 0.1], [0.5, 0.5]]

    def paths(eos_token: Any) -> list[tuple[int, ...]]:
        tree = search_tree(tokens, probs, None, [1], eos_token=eos_token, tree_size=9, beam_width=1)
        return paths_of(tree)

    assert (2, 4) in paths(None)
    assert (2, 4) not in paths(2)
    assert paths(2) == paths([2]) == paths((2, 77)) == paths(np.int64(2))
    assert (2, 4) in paths([2, 3])


def test_dtypes_and_shapes_of_the_result() -> None:
    """Prevents silent dtype changes that break the model's inputs."""
    tree = search_tree([[2, 3]], [[0.5, 0.5]], None, [1], eos_token=None, tree_size=9)
    dtypes = {
        "tokens": np.int64,
        "parents": np.int64,
        "scores": np.float32,
        "draft_probs": np.float32,
        "ngram_probs": np.float32,
        "matched_lengths": np.int32,
        "ranks": np.int32,
    }
    for name, dtype in dtypes.items():
        assert getattr(tree, name).dtype == dtype, name
        assert getattr(tree, name).shape == (3,), name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"topk_probs": [[0.5, float("nan")]]}, r"topk_probs\[0, 1\] is nan"),
        ({"topk_probs": [[0.5, float("inf")]]}, r"topk_probs\[0, 1\] is inf"),
        ({"topk_probs": [[-0.5, 0.5]]}, "topk_probs"),
        ({"topk_probs": [[2.0, 0.5]]}, "topk_probs"),
        ({"topk_probs": [[0.5]]}, "shape"),
        ({"topk_tokens": [[0.5, 1.0]]}, "integer"),
        ({"topk_tokens": [2, 3], "topk_probs": [0.5, 0.5]}, "two dimensions"),
        ({"context": []}, "context is empty"),
        ({"tree_size": -1}, "tree_size is -1"),
        ({"beam_width": 0}, "beam_width is 0"),
        ({"beam_width": 10**6}, "beam_width is 1000000"),
        ({"ngram_weight": -1.0}, "ngram_weight is -1"),
        ({"ngram_weight": float("nan")}, "ngram_weight is"),
        ({"level_weights": []}, "level_weights has 0 values"),
        ({"logit_weights": [float("inf")]}, "logit_weights is inf"),
    ],
)
def test_bad_input_is_named(change: dict[str, Any], message: str) -> None:
    """Prevents NaN from spoiling the sorts, and errors that do not say which argument is wrong."""
    arguments: dict[str, Any] = {
        "topk_tokens": [[2, 3]],
        "topk_probs": [[0.5, 0.5]],
        "store": None,
        "context": [1],
        "eos_token": None,
        "tree_size": 9,
        **change,
    }
    with pytest.raises(ConfigError, match=message):
        search_tree(**arguments)
