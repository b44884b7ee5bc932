"""`python -m dart ngram build|import|info|bench`: n-gram stores from texts or published tries."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from dart.cli import ngram_bench, ngram_build
from dart.cli.common import Parser, add_hub_argument
from dart.cli.ngram_facts import add_memory, add_precision, show


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    made = Parser(prog="python -m dart ngram", description="Build, import and inspect stores.")
    actions = made.add_subparsers(required=True, metavar="ACTION")

    ngram_build.add_parser(actions)

    imported = actions.add_parser("import", help="convert a published .trie file")
    imported.add_argument(
        "source", metavar="TRIE", help="the file, or a folder or hub id that holds it"
    )
    imported.add_argument("destination", metavar="FILE", help="the store to write")
    add_precision(imported)
    imported.add_argument(
        "--full",
        action="store_true",
        help="of a folder or repository full.trie, not small.trie",
    )
    add_memory(
        imported,
        "what the process may take beyond the interpreter; a file that needs more is taken apart "
        "in FILE.import, which takes about as much room as the .trie file and is removed at the "
        "end. Stopped or killed, the same command goes on",
    )
    add_hub_argument(imported)
    imported.set_defaults(run=_import)

    info = actions.add_parser("info", help="show what a store holds")
    info.add_argument("path", metavar="FILE")
    info.add_argument("--verify", action="store_true", help="read and check every byte of it")
    info.add_argument("--json", action="store_true", help="print one JSON object")
    info.set_defaults(run=_info)

    ngram_bench.add_parser(actions)
    return made


def main(argv: Sequence[str]) -> int:
    """Run the command; its exit code."""
    args = parser().parse_args(argv)
    args.command = ["ngram", *argv]  # for what is written to files
    return args.run(args)


def _import(args: argparse.Namespace) -> int:
    from dart.imported import find_source
    from dart.ngram import import_trie
    from dart.progress import ProgressLine

    source = find_source(args.source, is_small=not args.full, hub=args.hub, only_trie=True)
    with ProgressLine(sys.stderr) as progress:
        store = import_trie(
            source,
            args.destination,
            exact=args.exact,
            bits=args.bits,
            memory=args.memory,
            progress=progress,
        )
    show(store, as_json=False)
    return 0


def _info(args: argparse.Namespace) -> int:
    from dart.ngram import NgramStore

    store = NgramStore.open(args.path)
    if args.verify:
        store.verify()  # raises and names the damage
    show(store, as_json=args.json)
    if args.verify and not args.json:
        print("verified: every checksum and invariant holds")
    return 0
