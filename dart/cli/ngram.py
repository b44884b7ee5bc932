"""`python -m dart ngram build|import|info`: n-gram stores from texts or published tries."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dart.cli.common import Parser, memory_size
from dart.errors import ConfigError
from dart.hub import HUBS

if TYPE_CHECKING:
    from dart.ngram import NgramStore


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    made = Parser(prog="python -m dart ngram", description="Build, import and inspect stores.")
    actions = made.add_subparsers(required=True, metavar="ACTION")

    build = actions.add_parser("build", help="count the n-grams of texts")
    build.add_argument(
        "--input",
        nargs="+",
        required=True,
        metavar="FILE",
        help='.jsonl with {"text"}, {"messages"} or {"prompt"} a line; any other file is one text',
    )
    build.add_argument("--tokenizer", required=True, metavar="NAME", help="folder or hub id")
    build.add_argument("--order", type=int, default=3, help="longest n-gram (default 3)")
    build.add_argument("--output", required=True, metavar="FILE", help="the store to write")
    _add_precision(build)
    build.add_argument("--hub", choices=("huggingface", "modelscope"), default="huggingface")
    build.set_defaults(run=_build)

    imported = actions.add_parser("import", help="convert a published .trie file")
    imported.add_argument(
        "source", metavar="TRIE", help="the file, or a folder or hub id that holds it"
    )
    imported.add_argument("destination", metavar="FILE", help="the store to write")
    _add_precision(imported)
    imported.add_argument(
        "--full",
        action="store_true",
        help="of a folder or repository full.trie, not small.trie",
    )
    imported.add_argument(
        "--memory",
        type=memory_size,
        default=4 << 30,
        metavar="SIZE",
        help="what the process may take beyond the interpreter, such as 512M or 4G, at least 64M "
        "(default 4G); a file that needs more is taken apart in FILE.import, which takes about as "
        "much room as the .trie file and is removed at the end. Stopped or killed, the same "
        "command goes on",
    )
    imported.add_argument("--hub", choices=HUBS, default=HUBS[0], help="for hub ids")
    imported.set_defaults(run=_import)

    info = actions.add_parser("info", help="show what a store holds")
    info.add_argument("path", metavar="FILE")
    info.add_argument("--verify", action="store_true", help="read and check every byte of it")
    info.add_argument("--json", action="store_true", help="print one JSON object")
    info.set_defaults(run=_info)
    return made


def _add_precision(action: argparse.ArgumentParser) -> None:
    action.add_argument("--exact", action="store_true", help="keep counts, not probabilities")
    action.add_argument(
        "--bits", type=int, default=8, help="of a rounded probability, 2 to 8 (default 8)"
    )


def main(argv: Sequence[str]) -> int:
    """Run the command; its exit code."""
    args = parser().parse_args(argv)
    return args.run(args)


def _build(args: argparse.Namespace) -> int:
    from transformers import AutoTokenizer

    from dart.hub import resolve
    from dart.ngram import build

    missing = [name for name in args.input if not Path(name).is_file()]
    if missing:
        raise ConfigError(f"--input {missing[0]} is no file.")
    folder = resolve(args.tokenizer, hub=args.hub, patterns=["tokenizer*", "*.json", "*.txt"])
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder} holds no tokenizer that can be loaded: {error}") from error
    sequences = (ids for name in args.input for ids in _sequences(Path(name), tokenizer))
    store = build(sequences, args.order, args.output, exact=args.exact, bits=args.bits)
    _show(store, as_json=False)
    return 0


def _import(args: argparse.Namespace) -> int:
    from dart.hub import resolve
    from dart.imported import trie_name
    from dart.ngram import import_trie
    from dart.progress import ProgressLine

    name = trie_name(is_small=not args.full)
    source = Path(args.source)
    if source.suffix != ".trie":  # else a file, there or not, and no name to ask a hub for
        source = resolve(args.source, hub=args.hub, patterns=[name])
        source = source / name if source.is_dir() else source
    with ProgressLine(sys.stderr) as progress:
        store = import_trie(
            source,
            args.destination,
            exact=args.exact,
            bits=args.bits,
            memory=args.memory,
            progress=progress,
        )
    _show(store, as_json=False)
    return 0


def _info(args: argparse.Namespace) -> int:
    from dart.ngram import NgramStore

    store = NgramStore.open(args.path)
    if args.verify:
        store.verify()  # raises and names the damage
    _show(store, as_json=args.json)
    if args.verify and not args.json:
        print("verified: every checksum and invariant holds")
    return 0


def describe(store: NgramStore) -> dict[str, Any]:
    """What is known of a store without reading it."""
    return {
        "path": str(store.path),
        "order": store.order,
        "num_nodes": store.num_nodes,
        "num_bytes": store.num_bytes,
        "exact": store.is_exact,
    }


def _show(store: NgramStore, *, as_json: bool) -> None:
    facts = describe(store)
    levels = store.level_sizes()
    if as_json:
        print(json.dumps(facts | {"levels": [asdict(level) for level in levels]}))
        return
    size, nodes = facts["num_bytes"], max(facts["num_nodes"], 1)
    kind = "counts" if store.is_exact else "rounded probabilities"
    print(
        f"{facts['path']}: order {facts['order']}, {facts['num_nodes']:,} n-grams with {kind}, "
        f"{size / 2**20:.1f} MiB, {size / nodes:.2f} bytes each"
    )
    print(f"{'length':>6} {'n-grams':>14} {'tokens':>8} {'children':>8} {'values':>8}  bytes each")
    for length, level in enumerate(levels, start=1):
        parts = (level.tokens, level.children, level.values)
        shares = " ".join(f"{part / max(level.nodes, 1):8.3f}" for part in parts)
        numbering = "tokens numbered by the suffix's" if level.is_remapped else "plain tokens"
        print(f"{length:6} {level.nodes:14,} {shares}  {level.value_bits}-bit values, {numbering}")


def _sequences(path: Path, tokenizer: Any) -> Iterator[list[int]]:
    """The ids of each document of a file."""
    for text in _texts(path, tokenizer):
        yield tokenizer(text, add_special_tokens=False)["input_ids"]


def _texts(path: Path, tokenizer: Any) -> Iterator[str]:
    if path.suffix != ".jsonl":
        yield path.read_text(encoding="utf-8")
        return
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield _text_of(json.loads(line), tokenizer)
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError(
                    f"{path}, line {number}: expected a JSON object with text, messages or prompt "
                    f"({error})."
                ) from error


def _text_of(document: dict[str, Any], tokenizer: Any) -> str:
    messages = document.get("messages")
    if messages is not None:
        if getattr(tokenizer, "chat_template", None) is None:
            return "\n".join(str(message["content"]) for message in messages)
        return tokenizer.apply_chat_template(messages, tokenize=False)
    text = document["text"] if "text" in document else document["prompt"]
    if not isinstance(text, str):
        raise TypeError(f"a text is {type(text).__name__}")
    return text
