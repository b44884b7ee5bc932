"""How fast an n-gram store answers: opening, searching, and single contexts; warm and cold."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dart import native
from dart.bench import page_cache
from dart.bench.store_queries import Query
from dart.ngram import NgramStore
from dart.search import search_tree

SCHEMA = 1
OPENINGS = 200
Timed = Callable[[NgramStore], NDArray[np.float64]]  # seconds of every query
CURVE = (10, 100, 1000)  # searches after which the cold curve is read


def measure(
    path: str,
    queries: Sequence[Query],
    *,
    tree_size: int = 60,
    beam_width: int = 20,
    passes: int = 5,
    rounds: int = 100,
    residence: str = "mapped",
) -> dict[str, Any]:
    """Every figure of a store; seconds and bytes. The cold ones are None where nobody can tell.

    queries    all searched in every pass, so that the processor's caches hold another one's data
    passes     warm ones, behind one that is not counted
    rounds     repetitions of a lookup inside the core
    residence  as NgramStore.open takes it
    """

    def search(store: NgramStore, query: Query) -> None:
        search_tree(
            query.tokens,
            query.probabilities,
            store,
            query.context,
            eos_token=None,
            tree_size=tree_size,
            beam_width=beam_width,
        )

    def timed(store: NgramStore) -> NDArray[np.float64]:
        seconds = np.zeros(len(queries))
        for i, query in enumerate(queries):
            begin = time.perf_counter()
            search(store, query)
            seconds[i] = time.perf_counter() - begin
        return seconds

    gc.collect()
    gc.disable()
    try:
        cold = _cold(path, timed, residence) if page_cache.is_supported() else None
        opened = [_open_seconds(path, residence) for _ in range(OPENINGS)]
        store = NgramStore.open(path, residence=residence)
        timed(store)
        warm = np.stack([timed(store) for _ in range(passes)])
        memory_use = _memory(path, store, timed) if page_cache.is_supported() else None
        contexts = np.stack([query.context for query in queries])
        candidates = np.stack([np.sort(query.tokens[0]) for query in queries])
        first, repeated, empty = native.core().time_lookups(
            store.core, contexts, candidates, rounds
        )
    finally:
        gc.enable()
    return {
        "store": {
            "order": store.order,
            "num_nodes": store.num_nodes,
            "num_bytes": store.num_bytes,
            "exact": store.is_exact,
            "bytes_per_node": store.num_bytes / max(store.num_nodes, 1),
        },
        "open_seconds": {"cold": cold and cold.pop("open_seconds"), "warm": quantiles(opened)},
        "search_seconds": {
            "warm": quantiles(warm),
            # Of each query the fastest pass: without what else ran on the machine.
            "warm_undisturbed": quantiles(warm.min(axis=0)),
            "cold": cold,
        },
        "context_seconds": {
            "first": quantiles(first * 1e-9),
            "repeated": quantiles(repeated * 1e-9),
            # A search looks up the empty context once a level, for all others.
            "repeated_empty": quantiles(empty * 1e-9),
            "repeated_without_empty": quantiles((repeated - empty) * 1e-9),
        },
        "memory": memory_use,
    }


def quantiles(values: Sequence[float] | NDArray[np.float64]) -> dict[str, float]:
    """Median, 99th percentile and maximum."""
    array = np.asarray(values, np.float64)
    return {
        "median": float(np.median(array)),
        "p99": float(np.quantile(array, 0.99)),
        "max": float(array.max()),
    }


def _open_seconds(path: str, residence: str) -> float:
    begin = time.perf_counter()
    store = NgramStore.open(path, residence=residence)
    seconds = time.perf_counter() - begin
    del store
    return seconds


def _cold(path: str, timed: Timed, residence: str) -> dict[str, Any]:
    """The same searches with the file out of the page cache: the first 10, 100, 1000 of them."""
    still_cached = page_cache.drop(path)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    begin = time.perf_counter()
    store = NgramStore.open(path, residence=residence)
    open_seconds = time.perf_counter() - begin
    seconds = timed(store)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt - faults
    return {
        "open_seconds": open_seconds,
        "cached_share_before": still_cached,
        "cached_share_after": page_cache.cached_share(path),
        "major_faults": faults,
        "first": {
            str(count): {**quantiles(seconds[:count]), "total": float(seconds[:count].sum())}
            for count in CURVE
            if count <= len(seconds)
        },
    }


def _memory(path: str, store: NgramStore, timed: Timed) -> dict[str, int]:
    """Bytes of the file in this process after the searches, and bytes of the pages these read.

    The system maps neighbours of a page along with it, where it has them: the first is more.
    """
    resident = page_cache.resident(path)
    page_cache.forget_references()
    timed(store)
    touched = page_cache.resident(path).referenced
    return {
        "file_bytes": store.num_bytes,
        "resident_bytes": resident.resident,
        "huge_page_bytes": resident.huge,
        "touched_bytes": touched,
    }
