"""Where the recorded data of the published implementation is, and how its pieces are read.

DART_CONFORMANCE names another folder of the same shape; nothing here knows how many cases it has.
"""

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dart.config import GenerationConfig
from dart.decode import generate
from dart.drafter import Drafter
from dart.target import TargetModel

CONFORMANCE = Path(os.environ.get("DART_CONFORMANCE", Path(__file__).parent / "data/conformance"))


def load_json(name: str) -> dict[str, Any]:
    return json.loads((CONFORMANCE / name).read_text())


def load_sequences() -> tuple[list[np.ndarray], int]:
    """The conversations the .trie files were built from; how many the order-4 file used."""
    with np.load(CONFORMANCE / "ngram/ngram_sequences.npz") as data:
        tokens, offsets = data["tokens"], data["offsets"]
        used = int(data["order4_conversations"])
    return [tokens[a:b] for a, b in pairwise(offsets)], used


def check_generation(
    target: TargetModel, drafter: Drafter, entry: dict[str, Any], name: str
) -> None:
    """Decode an entry of generate.json: tokens, first tree and accept lengths, step by step."""
    config = GenerationConfig(
        max_new_tokens=entry["max_new_tokens"], eos_token_ids=target.eos_token_ids
    )
    steps = list(generate(target, drafter, entry["prompt"], config))
    assert [token for step in steps for token in step.tokens] == entry["ar"]
    tree, recorded = steps[1].tree, entry[name]["first_tree"]
    assert tree is not None
    assert tree.scores is not None
    assert tree.tokens.tolist() == recorded["tokens"]
    assert tree.parents.tolist() == recorded["parents"]
    assert tree.depths.tolist() == recorded["depths"]
    np.testing.assert_allclose(tree.scores, recorded["scores"], atol=1e-4)
    # Upstream counts the step's root and runs on past the limit; we stop exactly there.
    upstream = [length - 1 for length in entry[name]["accept_lengths"]]
    ours = [step.accept_length for step in steps[1:]]
    assert ours[:-1] == upstream[: len(ours) - 1]
    assert ours[-1] <= upstream[len(ours) - 1]
