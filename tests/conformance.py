"""Where the recorded data of the published implementation is, and how its pieces are read.

DART_CONFORMANCE names another folder of the same shape; nothing here knows how many cases it has.
"""

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

CONFORMANCE = Path(os.environ.get("DART_CONFORMANCE", Path(__file__).parent / "data/conformance"))


def load_json(name: str) -> dict[str, Any]:
    return json.loads((CONFORMANCE / name).read_text())


def load_sequences() -> tuple[list[np.ndarray], int]:
    """The conversations the .trie files were built from; how many the order-4 file used."""
    with np.load(CONFORMANCE / "ngram/ngram_sequences.npz") as data:
        tokens, offsets = data["tokens"], data["offsets"]
        used = int(data["order4_conversations"])
    return [tokens[a:b] for a, b in pairwise(offsets)], used
