"""The training command line: corpus, tokenizer, target, and what follows them.

python -m dart.train corpus --out runs/demo
python -m dart.train tokenizer --out runs/demo
python -m dart.train target --out runs/demo --minutes 90
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from dart.train import corpus, pairs, synthetic
from dart.train.dataset import encode, load_shards, read_documents, save_shards, write_documents
from dart.train.tokenizer import chat_prefix, load_tokenizer, train_tokenizer


def main(argv: Sequence[str] | None = None) -> int:
    """Run one step of the training; return the exit status."""
    parser = argparse.ArgumentParser(prog="dart train", description=__doc__.splitlines()[0])
    add_steps(parser)
    args = parser.parse_args(argv)
    return args.run(args)


def add_steps(parser: argparse.ArgumentParser) -> None:
    """Add the steps as subcommands."""
    steps = parser.add_subparsers(required=True, metavar="STEP")

    def step(name: str, run, text: str) -> argparse.ArgumentParser:
        sub = steps.add_parser(name, help=text, description=text)
        sub.add_argument("--out", type=Path, required=True, help="the run's folder")
        sub.add_argument("--seed", type=int, default=1)
        sub.set_defaults(run=run)
        return sub

    sub = step(
        "corpus", run_corpus, "read the installed Python sources into chat pairs and plain code"
    )
    sub.add_argument(
        "--synthetic-copies", type=int, default=3, help="requests per synthetic function"
    )
    sub = step("tokenizer", run_tokenizer, "train the tokenizer and tokenise the corpus")
    sub.add_argument("--vocab-size", type=int, default=4096)
    sub.add_argument("--max-length", type=int, default=384, help="longest document, in tokens")
    sub.add_argument("--two-turn-share", type=float, default=0.12)
    sub = step("target", run_target, "train or resume the target")
    sub.add_argument("--minutes", type=float, default=0.0, help="length of the run in wall time")
    sub.add_argument(
        "--steps", type=int, default=0, help="length of the run in steps, instead of minutes"
    )
    sub.add_argument("--no-compile", action="store_true")
    sub.add_argument("--hidden-size", type=int, default=192)
    sub.add_argument("--intermediate-size", type=int, default=512)
    sub.add_argument("--heads", type=int, default=6)
    sub.add_argument("--rows", type=int, default=16)
    sub.add_argument("--length", type=int, default=384)
    sub.add_argument("--threads", type=int, default=0)


def run_corpus(args: argparse.Namespace) -> int:
    """Write corpus/train.jsonl, corpus/heldout.jsonl and corpus/sources.json."""
    folder = args.out / "corpus"
    folder.mkdir(parents=True, exist_ok=True)
    functions, packages = corpus.build_corpus()
    made = synthetic.build_synthetic(seed=args.seed)
    documents = [d for f in functions for d in pairs.documents(f, seed=args.seed, copies=1)]
    documents += [
        d for f in made for d in pairs.documents(f, seed=args.seed, copies=args.synthetic_copies)
    ]
    # A function held out must not be met in training under another wording: the split is by the
    # function's identity.
    write_documents((d for d in documents if not d.is_held_out), folder / "train.jsonl")
    write_documents((d for d in documents if d.is_held_out), folder / "heldout.jsonl")
    sources = {
        "packages": [asdict(package) for package in packages],
        "documented_functions": corpus.shares(functions),
        "functions": len(functions),
        "synthetic_functions": len(made),
        "documents": dict(Counter(d.kind for d in documents)),
        "held_out_documents": sum(d.is_held_out for d in documents),
    }
    (folder / "sources.json").write_text(json.dumps(sources, indent=1) + "\n", encoding="utf-8")
    return 0


def run_tokenizer(args: argparse.Namespace) -> int:
    """Write tokenizer/ and the shards train.npz and heldout.npz."""
    folder = args.out / "corpus"
    train, held_out = (
        read_documents(folder / "train.jsonl"),
        read_documents(folder / "heldout.jsonl"),
    )
    texts = (chat_prefix(d.prompt) + d.answer if d.prompt else d.answer for d in train)
    tokenizer = train_tokenizer(texts, size=args.vocab_size)
    tokenizer.save_pretrained(args.out / "tokenizer")
    report = {}
    for name, documents in (("train", train), ("heldout", held_out)):
        share = args.two_turn_share if name == "train" else 0.0
        shards = encode(
            tokenizer,
            documents,
            max_length=args.max_length,
            two_turn_share=share,
            seed=args.seed,
        )
        save_shards(shards, args.out / f"{name}.npz")
        report[name] = {
            pool: {"documents": len(s), "tokens": len(s.tokens)} for pool, s in shards.items()
        }
    (args.out / "tokens.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


def run_target(args: argparse.Namespace) -> int:
    """Train the target in target-run/ and write it to target-fp32/."""
    import torch

    from dart.train.target import TargetTraining, train_target

    if args.threads:
        torch.set_num_threads(args.threads)
    settings = TargetTraining(
        minutes=args.minutes,
        steps=args.steps,
        seed=args.seed,
        compile=not args.no_compile,
        hidden_size=args.hidden_size,
        intermediate_size=args.intermediate_size,
        heads=args.heads,
        rows=args.rows,
        length=args.length,
    )
    tokenizer = load_tokenizer(args.out / "tokenizer")
    model = train_target(
        settings,
        load_shards(args.out / "train.npz"),
        load_shards(args.out / "heldout.npz"),
        tokenizer,
        len(tokenizer),
        args.out / "target-run",
    )
    model.save_pretrained(args.out / "target-fp32")
    tokenizer.save_pretrained(args.out / "target-fp32")
    return 0
