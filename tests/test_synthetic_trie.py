"""The generator of large .trie files makes what counting its text gives."""

from pathlib import Path

import numpy as np
import pytest

from dart import ngram
from tests import synthetic_trie
from tests.reference.ngram import count_ngrams, read_trie


def test_file_has_the_counts_of_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents a demonstration on a file that is none, or whose counts are not a text's."""
    monkeypatch.setattr(synthetic_trie, "PIECE", 300)  # several
    text = synthetic_trie.draw_text(20, 50, seed=3)
    path = tmp_path / "x.trie"
    nodes = synthetic_trie.write_trie(text, path)
    order, counts = read_trie(path.read_bytes())
    assert order == 3
    assert counts == count_ngrams(text.tolist(), 3)
    assert nodes == len(counts)
    synthetic_trie.check(text, ngram.import_trie(path, tmp_path / "x.ngram", exact=True), 50, 0)


def test_ids_are_in_order_of_occurrence(tmp_path: Path) -> None:
    """Prevents a file that is easier to import than upstream's."""
    text = np.array([[5, 7, 5, 0]], np.int32)
    path = tmp_path / "x.trie"
    assert synthetic_trie.write_trie(text, path) == 9
    data = path.read_bytes()
    tokens, at = [], 16
    for _ in range(9):
        tokens.append(int.from_bytes(data[at : at + 4], "little"))
        at += 24 + 12 * int.from_bytes(data[at + 16 : at + 24], "little")
    # The root; 5, 5 7, 5 7 5; 7, 7 5, 7 5 0; 5 0, as 5 is known by then; 0.
    assert tokens == [0, 5, 7, 5, 7, 5, 0, 0, 0]
