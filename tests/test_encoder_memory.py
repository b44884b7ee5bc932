"""The encoder's memory, which its callers promise to bound."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dart import native
from dart.ngram import NgramStore

MEMORY = 64 << 20
SLACK = 8 << 20  # stacks of threads, the allocator's leftovers

ENCODE = """
import sys
from dart import native

def kilobytes(name):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))

core = native.core()
open("/proc/self/clear_refs", "w").write("5")  # VmHWM begins anew
before = kilobytes("VmRSS")
prefix, destination, exact, memory = sys.argv[1:]
core.encode_levels(prefix, 3, 1000, destination, exact=bool(int(exact)), bits=8,
                   memory=int(memory), progress=None)
print(1024 * (kilobytes("VmHWM") - before))
"""


@pytest.fixture(scope="module")
def levels(tmp_path_factory) -> str:
    """Level columns of 7 million trigrams and shorter: 120 MB, and all have their suffixes."""
    prefix = str(tmp_path_factory.mktemp("levels") / "level-")
    vocab, followers = 3000, 600
    first = np.arange(vocab)
    after = np.sort((7 * first[:, None] + 5 * np.arange(followers)) % vocab, axis=1)
    places = (first % 200)[:, None] + np.array([0, 200, 400])
    tokens = [first, after, np.concatenate([after[after[a]][:, places[a]] for a in first])]
    for depth, level in enumerate(tokens, 1):
        path = Path(f"{prefix}{depth}")
        size = level.size
        level.astype(np.int32).tofile(path.with_suffix(".tokens"))
        counts = 1 + np.arange(size, dtype=np.uint64) * 2654435761 % 1000
        counts.tofile(path.with_suffix(".counts"))
        each = {1: followers, 2: 3}.get(depth, 0)
        ends = np.arange(size + 1 if each else 0, dtype=np.uint64) * np.uint64(each)
        ends.tofile(path.with_suffix(".children"))
    return prefix


@pytest.mark.skipif(
    not hasattr(native.core(), "NgramStore") or not sys.platform.startswith("linux"),
    reason="reads /proc",
)
@pytest.mark.parametrize("exact", [False, True])
def test_peak_memory(levels, tmp_path, exact):
    """Prevents an encoder that needs more the more n-grams there are."""
    destination = tmp_path / "x.ngram"
    run = [sys.executable, "-c", ENCODE, levels, destination, str(int(exact)), str(MEMORY)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 0 < int(done.stdout) < MEMORY + SLACK
    store = NgramStore.open(destination)
    assert store.num_nodes > 7_000_000
    assert store.level_sizes()[2].is_remapped
    store.verify()
