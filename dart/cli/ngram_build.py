"""`python -m dart ngram build`: the flags, and what is said before, meanwhile and afterwards."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from dart.cli.common import add_hub_argument
from dart.cli.ngram_facts import add_memory, add_precision, show
from dart.errors import ConfigError

if TYPE_CHECKING:
    from dart.ngram_build.build import Engine
    from dart.progress import Progress

# Small enough for all cores to have some of a small input; on Ray each is a task to keep in mind.
SHARD_BYTES = {"local": 16 << 20, "ray": 64 << 20}


def add_parser(actions: Any) -> None:
    """Add the action to those of `ngram`."""
    build = actions.add_parser("build", help="count the n-grams of texts, however many")
    build.add_argument(
        "--input",
        nargs="+",
        required=True,
        metavar="FILE",
        help="files, folders, globs or URLs: .jsonl (also .gz, .zst) and .parquet with text, "
        "messages, content or prompt; any other file is one text",
    )
    build.add_argument(
        "--text-column", metavar="NAME", help="the field that has the text or the messages"
    )
    build.add_argument(
        "--skip-broken", action="store_true", help="leave out what cannot be read, and count it"
    )
    build.add_argument("--tokenizer", required=True, metavar="NAME", help="folder or hub id")
    add_hub_argument(build)
    build.add_argument("--order", type=int, default=3, help="longest n-gram (default 3)")
    build.add_argument(
        "--min-count",
        nargs="+",
        type=int,
        default=[1],
        metavar="N",
        help="drop rarer n-grams; several numbers are for lengths 1, 2 and so on, the last one for "
        "all longer ones (default 1)",
    )
    build.add_argument("--output", required=True, metavar="FILE", help="the store to write")
    add_precision(build)
    add_memory(
        build,
        "for counting, merging and encoding, all threads together; the interpreter with the "
        "tokenizer and the texts at hand come on top, some 400M",
    )
    build.add_argument("--workers", type=int, metavar="N", help="threads (default: all cores)")
    build.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="ray: count and merge with Ray Data on many machines, which need this package and the "
        "inputs; --memory is that of each task, and of this machine (needs the extra 'ray')",
    )
    build.add_argument(
        "--ray-address",
        metavar="HOST:PORT",
        help="of the cluster; auto: the one this machine belongs to (default: start one here, "
        "which other machines cannot reach)",
    )
    build.add_argument(
        "--restart",
        action="store_true",
        help="drop the unfinished work of an earlier call; else it is taken up where it stopped",
    )
    build.add_argument("--json", action="store_true", help="print one JSON object")
    build.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from dart.ngram import NgramStore
    from dart.ngram_build.build import build_from_shards
    from dart.ngram_build.config import (
        StoreConfig,
        available_cores,
        check_memory,
        check_workers,
    )
    from dart.ngram_build.shards import list_shards
    from dart.ngram_build.text_encoder import TextEncoder
    from dart.progress import ProgressLine

    config = StoreConfig(
        order=args.order, min_counts=tuple(args.min_count), exact=args.exact, bits=args.bits
    )
    workers = available_cores() if args.workers is None else args.workers
    if args.engine == "ray" and args.workers is not None:
        raise ConfigError("--workers is for --engine local; Ray uses the cores of its cluster.")
    if args.engine != "ray" and args.ray_address is not None:
        raise ConfigError("--ray-address needs --engine ray.")
    check_memory(args.memory)
    check_workers(workers)
    shards = list_shards(
        args.input, text_column=args.text_column, shard_bytes=SHARD_BYTES[args.engine]
    )
    encoder = TextEncoder.load(args.tokenizer, args.hub)
    start = time.monotonic()
    with ProgressLine(sys.stderr) as progress:
        summary = build_from_shards(
            shards,
            encoder,
            config,
            args.output,
            _engine(args, workers, progress),
            skip_broken=args.skip_broken,
            restart=args.restart,
            on_resume=lambda done: _say(f"Going on: {done} of {len(shards)} shards are counted."),
        )
    seconds = time.monotonic() - start
    if summary.broken:
        _say(f"Left out {summary.broken:,} broken documents; the first: {summary.first_broken}")
    facts = {"documents": summary.documents, "tokens": summary.tokens, "broken": summary.broken}
    if not summary.resumed_shards:  # else the time is not that of all of it
        facts |= {"seconds": seconds, "tokens_per_second": summary.tokens / seconds}
    show(NgramStore.open(args.output), as_json=args.json, more=facts)
    if not args.json:
        speed = f" in {seconds:.0f} s, {summary.tokens / seconds:,.0f} tokens/s"
        print(
            f"counted {summary.tokens:,} tokens of {summary.documents:,} documents"
            + ("" if summary.resumed_shards else speed)
        )
    return 0


def _engine(args: argparse.Namespace, workers: int, progress: Progress) -> Engine:
    if args.engine == "ray":
        from dart.ngram_build.ray_engine import OWN_CLUSTER, RayEngine

        return RayEngine(
            memory=args.memory,
            address=OWN_CLUSTER if args.ray_address is None else args.ray_address,
            tell=progress,
        )
    from dart.ngram_build.local_engine import LocalEngine

    return LocalEngine(memory=args.memory, workers=workers, tell=progress)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
