"""Write the seed corpora of the fuzzers: python csrc/fuzz/make_seeds.py (from the repository root).

Small valid files of several orders; the fuzzers find the damaged ones themselves.
"""

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from reference.ngram import count_ngrams, write_trie  # noqa: E402

from dart import ngram  # noqa: E402

CORPORA = {
    "empty": [],
    "tiny": [[1, 2, 3, 1, 2], [2, 3], [7]],
    "loop": [[5, 5, 5, 6] * 3],
    "wide": [[1, token, 2] for token in range(3, 30)],  # a range that is searched by jumping
}


def main() -> None:
    """Write two stores and one .trie seed per corpus and order."""
    search_inputs = bytes([1, 2, 3, 7, 5, 6, 255, 254, 1, 2])
    for name, sequences in CORPORA.items():
        for order in (1, 2, 4):
            for kind in ("exact", "quantised"):
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder) / "seed.ngram"
                    store = ngram.build(sequences, order, path, exact=kind == "exact", bits=3)
                    data = Path(store.path).read_bytes()
                seed = bytes([len(search_inputs)]) + search_inputs + data
                (ROOT / f"tests/data/fuzz/store/{name}-{order}-{kind}").write_bytes(seed)
            trie = write_trie(order, {(): 0, **count_ngrams(sequences, order)})
            (ROOT / f"tests/data/fuzz/trie/{name}-{order}").write_bytes(trie)


if __name__ == "__main__":
    main()
