"""`python -m dart ngram bench`: how fast a store answers."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dart.cli.common import add_hub_argument, add_json_argument, add_residence_argument, write_json
from dart.errors import ConfigError
from dart.ngram import NgramStore

if TYPE_CHECKING:
    from dart.ngram_build.shards import Shard
    from dart.ngram_build.text_encoder import TextEncoder

SCHEMA = 1
_DEMO = Path(__file__).resolve().parents[2] / "assets" / "demo"
_LIMIT = 4_000_000  # characters of text that are read: enough to choose from


def add_parser(actions: Any) -> None:
    """Add `bench` to the actions of `python -m dart ngram`."""
    bench = actions.add_parser(
        "bench",
        help="measure how fast a store answers",
        description="Open, search and look up, warm and with the file out of the page cache; "
        "searches are given contexts of a text, with candidates that often come there.",
    )
    bench.add_argument("path", metavar="FILE")
    bench.add_argument(
        "--text",
        metavar="NAME",
        help="a file, folder, glob or URL, read as `build --input` does, the first 4 million "
        "characters of it (default: the demo's held-out prompts)",
    )
    bench.add_argument(
        "--tokenizer",
        metavar="NAME",
        help="the store's: a folder or hub id (default: the demo's)",
    )
    add_hub_argument(bench)
    bench.add_argument("--searches", type=int, default=1000, metavar="N", help="default 1000")
    bench.add_argument("--passes", type=int, default=5, metavar="N", help="over all (default 5)")
    bench.add_argument("--levels", type=int, default=8, metavar="N", help="default 8")
    bench.add_argument("--candidates", type=int, default=25, metavar="N", help="default 25")
    bench.add_argument("--beam-width", type=int, default=20, metavar="N", help="default 20")
    bench.add_argument("--tree-size", type=int, default=60, metavar="N", help="default 60")
    bench.add_argument("--seed", type=int, default=0, help="of the places in the text")
    add_residence_argument(bench)
    add_json_argument(bench)
    bench.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure and tell; the exit code."""
    for name in ("searches", "passes", "levels", "candidates", "beam_width", "tree_size"):
        if getattr(args, name) < 1:
            flag = "--" + name.replace("_", "-")
            raise ConfigError(f"{flag} is {getattr(args, name)}; expected at least 1.")
    NgramStore.open(args.path)  # what is no store is refused before a text is read
    load_before = os.getloadavg()
    from dart.bench.report import provenance
    from dart.bench.store import measure
    from dart.bench.store_queries import make_queries
    from dart.ngram_build.shards import list_shards
    from dart.ngram_build.text_encoder import TextEncoder

    # Not the flags' defaults: results would carry the path of this machine.
    shards = list_shards([args.text or str(_DEMO / "prompts" / "heldout.jsonl")])
    encoder = TextEncoder.load(args.tokenizer or str(_DEMO / "target"), args.hub)
    ids = _tokens(shards, encoder)
    queries = make_queries(
        ids, args.searches, levels=args.levels, candidates=args.candidates, seed=args.seed
    )
    figures = measure(
        args.path,
        queries,
        tree_size=args.tree_size,
        beam_width=args.beam_width,
        passes=args.passes,
        residence=args.ngram_memory,
    )
    print("\n".join(lines(figures)))
    if args.json:
        settings = {k: v for k, v in vars(args).items() if k not in ("json", "run")}
        result = {
            "schema": SCHEMA,
            **figures,
            "settings": settings | {"text_tokens": len(ids)},
            "load_average": {"before": load_before, "after": os.getloadavg()},
            "provenance": provenance(args.command),
        }
        write_json(args.json, result)
    return 0


def lines(figures: dict[str, Any]) -> Iterator[str]:
    """The figures for people."""
    store, memory = figures["store"], figures["memory"]
    yield (
        f"order {store['order']}, {store['num_nodes']:,} n-grams, "
        f"{store['num_bytes'] / 2**20:.1f} MiB, {store['bytes_per_node']:.2f} bytes each"
    )
    yield f"{'':34} {'median':>9} {'p99':>9} {'max':>9}"
    searches, contexts = figures["search_seconds"], figures["context_seconds"]
    yield _row("open", figures["open_seconds"]["warm"], "us")
    yield _row("search, warm", searches["warm"], "us")
    yield _row("search, warm, fastest pass of each", searches["warm_undisturbed"], "us")
    cold = searches["cold"]
    if cold is None:
        yield "cold page cache: not measured, this system does not tell what it holds"
    else:
        for count, spread in cold["first"].items():
            yield _row(f"search, cold, the first {count}", spread, "us")
    yield _row("one context, for the first time", contexts["first"], "ns")
    yield _row("one context, repeated", contexts["repeated"], "ns")
    yield _row("- of that, the empty context", contexts["repeated_empty"], "ns")
    yield _row("- of that, the rest", contexts["repeated_without_empty"], "ns")
    if cold is not None:
        yield (
            f"cold: {cold['cached_share_before']:.1%} of the file cached before, opened in "
            f"{figures['open_seconds']['cold'] * 1e3:.2f} ms, {cold['major_faults']} page faults "
            f"from disk, {cold['cached_share_after']:.1%} cached after"
        )
    if memory is not None:
        yield (
            f"in memory after the searches: {memory['resident_bytes'] / 2**20:.1f} MiB mapped, "
            f"{memory['huge_page_bytes'] / 2**20:.1f} MiB of it as huge pages; pages read: "
            f"{memory['touched_bytes'] / 2**20:.1f} MiB"
        )


def _row(name: str, spread: dict[str, float], unit: str) -> str:
    scale = {"us": 1e6, "ns": 1e9}[unit]
    numbers = " ".join(f"{spread[key] * scale:9.1f}" for key in ("median", "p99", "max"))
    return f"{name:34} {numbers} {unit}"


def _tokens(shards: Sequence[Shard], encoder: TextEncoder) -> NDArray[np.int32]:
    """The first ids of a text, int32 [n]."""
    texts = (text for shard in shards for text in shard.documents(encoder.render))
    pieces = [np.zeros(0, np.int32)]
    read = 0
    for ids, characters, _ in encoder.encode_documents(texts):
        pieces.append(ids)
        read += characters
        if read >= _LIMIT:
            break
    return np.concatenate(pieces)
