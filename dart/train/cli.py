"""The training command line: corpus, tokenizer, target, and what follows them.

python -m dart train corpus --out runs/demo
python -m dart train tokenizer --out runs/demo
python -m dart train target --out runs/demo --minutes 90
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tqdm import tqdm

from dart.train import corpus, pairs, score_cli, synthetic
from dart.train.dataset import (
    Shard,
    encode,
    fitting,
    load_shards,
    make_shard,
    merge_shards,
    read_documents,
    save_shards,
    write_documents,
)
from dart.train.pairs import Document
from dart.train.tokenizer import chat_prefix, load_tokenizer, save_tokenizer, train_tokenizer

INTERRUPTED = 130  # exit status of a run that was stopped and can be resumed


def main(argv: Sequence[str] | None = None) -> int:
    """Run one step of the training; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="dart train", description="Train a target model or a draft head."
    )
    add_steps(parser)
    args = parser.parse_args(argv)
    if args.threads:
        import torch

        torch.set_num_threads(args.threads)
    return args.run(args)


def add_steps(parser: argparse.ArgumentParser) -> None:
    """Add the steps as subcommands."""
    steps = parser.add_subparsers(required=True, metavar="STEP")

    def step(name: str, run, text: str) -> argparse.ArgumentParser:
        sub = steps.add_parser(name, help=text, description=text)
        sub.add_argument("--out", type=Path, required=True, help="the run's folder")
        sub.add_argument("--seed", type=int, default=1)
        sub.add_argument("--threads", type=int, default=0, help="0: torch's default")
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
    add_length(sub)
    sub.add_argument("--no-compile", action="store_true")
    sub.add_argument("--hidden-size", type=int, default=192)
    sub.add_argument("--intermediate-size", type=int, default=512)
    sub.add_argument("--heads", type=int, default=6)
    sub.add_argument("--rows", type=int, default=16)
    sub.add_argument("--length", type=int, default=384)
    sub = step("continuations", run_continuations, "let the target answer training prompts")
    sub.add_argument("--tokens", type=int, default=1_000_000)
    sub = step("dart", run_dart, "train or resume the DART head on the target")
    add_length(sub)
    sub.add_argument("--no-compile", action="store_true")
    sub = step("eagle3", run_eagle3, "train or resume the EAGLE3 head on the target")
    add_length(sub)
    sub.add_argument("--no-compile", action="store_true")
    sub.add_argument("--unrolled", type=int, default=6, help="steps of the training-time test")
    sub = step("ngram", run_ngram, "count n-grams of the corpus and of the target's own answers")
    sub.add_argument("--order", type=int, default=4)
    sub.add_argument(
        "--pools",
        nargs="+",
        default=["synthetic", "short", "own"],
        help="what is counted: synthetic, short, long, plain, own",
    )
    score_cli.add_steps(step)
    sub = step("evaluate", run_evaluate, "measure how often answers parse, end and loop, and tau")
    sub.add_argument("--prompts", type=int, default=200, help="held-out prompts")
    sub = step("assets", run_assets, "write the model, prompts and model card into a folder")
    sub.add_argument("--assets", type=Path, default=Path("assets/demo"))


def add_length(sub: argparse.ArgumentParser) -> None:
    """Add the two ways to say how long a run is."""
    sub.add_argument("--minutes", type=float, default=0.0, help="length of the run in wall time")
    sub.add_argument("--steps", type=int, default=0, help="length in steps, instead of minutes")


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
    save_tokenizer(tokenizer, args.out / "tokenizer")
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
    """Train the target in target-run/ and write it, rounded to 16 bits, to target/."""
    from dart.train.target import TargetTraining, save_target, train_target

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
    if model is None:
        return INTERRUPTED
    save_target(model, tokenizer, args.out / "target")
    return 0


def run_continuations(args: argparse.Namespace) -> int:
    """Write own.npz: the target's answers to training prompts and to held-out ones."""
    from dart.train.continuations import continuations
    from dart.train.target import load_target

    model, tokenizer = load_target(args.out / "target"), load_tokenizer(args.out / "tokenizer")
    shards = {}
    for name, file, tokens in (
        ("own", "train.jsonl", args.tokens),
        ("heldout", "heldout.jsonl", args.tokens // 25),
    ):
        documents = read_documents(args.out / "corpus" / file)
        made = continuations(
            model,
            tokenizer,
            _demo_prompts(documents, args.seed),
            tokens=tokens,
            seed=args.seed,
        )
        limit = model.config.max_position_embeddings
        shards[name] = make_shard([(ids, start) for ids, start in made if len(ids) <= limit])
    save_shards(shards, args.out / "own.npz")
    return 0


def _demo_prompts(documents: Sequence[Document], seed: int) -> list[str]:
    """Return chat prompts, half of them synthetic, as the demo is used."""
    synthetic_ones = [d.prompt for d in documents if d.prompt and d.package == synthetic.PACKAGE]
    others = [d.prompt for d in documents if d.prompt and d.package != synthetic.PACKAGE]
    random.Random(seed).shuffle(others)
    return synthetic_ones + others[: len(synthetic_ones)]


def run_dart(args: argparse.Namespace) -> int:
    """Train the DART head in dart-run/ and write it, rounded to 16 bits, to dart/."""
    import torch

    from dart.checkpoint import save_dart_head
    from dart.train.dart import DartTraining, train_dart
    from dart.train.target import load_target

    settings = DartTraining(**_loop_settings(args))
    shards, held_out = _head_shards(args.out, settings.length)
    target = load_target(args.out / "target")
    head = train_dart(settings, target, shards, held_out, args.out / "dart-run")
    if head is None:
        return INTERRUPTED
    save_dart_head(head, args.out / "dart", dtype=torch.float16)
    return 0


def run_eagle3(args: argparse.Namespace) -> int:
    """Train the EAGLE3 head in eagle3-run/ and write it, rounded to 16 bits, to eagle3/."""
    import torch

    from dart.checkpoint import save_eagle3_head
    from dart.train.eagle3 import Eagle3Training, train_eagle3
    from dart.train.target import load_target

    settings = Eagle3Training(unrolled=args.unrolled, **_loop_settings(args))
    shards, held_out = _head_shards(args.out, settings.length)
    target = load_target(args.out / "target")
    head = train_eagle3(settings, target, shards, held_out, args.out / "eagle3-run")
    if head is None:
        return INTERRUPTED
    save_eagle3_head(head, args.out / "eagle3", dtype=torch.float16)
    return 0


def _loop_settings(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "minutes": args.minutes,
        "steps": args.steps,
        "seed": args.seed,
        "compile": not args.no_compile,
    }


def _head_shards(folder: Path, length: int) -> tuple[dict[str, Shard], dict[str, Shard]]:
    """What every head is trained on, and what it is checked on."""
    train, own = load_shards(folder / "train.npz"), load_shards(folder / "own.npz")
    corpus_shard = merge_shards([train["synthetic"], train["short"]])
    shards = {"own": fitting(own["own"], length), "corpus": corpus_shard}
    return shards, {"own": fitting(own["heldout"], length)}


def run_ngram(args: argparse.Namespace) -> int:
    """Write ngram/demo.ngram."""
    from dart.ngram import build

    folder = args.out / "ngram"
    folder.mkdir(parents=True, exist_ok=True)
    pools = load_shards(args.out / "train.npz") | load_shards(args.out / "own.npz")
    shards = [pools[name] for name in args.pools]
    sequences = (shard.document(index) for shard in shards for index in range(len(shard)))
    store = build(tqdm(sequences, desc="n-grams"), args.order, folder / "demo.ngram")
    report = {
        "pools": args.pools,
        "order": store.order,
        "nodes": store.num_nodes,
        "bytes": store.num_bytes,
    }
    (args.out / "ngram.json").write_text(json.dumps(report) + "\n", encoding="utf-8")
    return 0


def run_evaluate(args: argparse.Namespace) -> int:
    """Write rates.json and answers.jsonl, measured on the target, its heads and its store."""
    from dart.train.assets import held_out_prompts, read_examples
    from dart.train.evaluate import acceptance, judge_prompts, rates, to_json
    from dart.train.target import load_target

    model, tokenizer = load_target(args.out / "target"), load_tokenizer(args.out / "target")
    documents = read_documents(args.out / "corpus" / "heldout.jsonl")
    held_out = held_out_prompts(documents, count=args.prompts, seed=args.seed)
    is_synthetic = {d.prompt for d in held_out if d.package == synthetic.PACKAGE}
    prompts = [d.prompt for d in held_out]
    torch_seed(args.seed)
    judged = {
        "examples": judge_prompts(model, tokenizer, read_examples()),
        "held out": judge_prompts(model, tokenizer, prompts),
        "held out, T=0.7": judge_prompts(model, tokenizer, prompts, temperature=0.7),
    }
    greedy = judged["held out"]
    report: dict[str, object] = {name: rates(answers) for name, answers in judged.items()}
    report["held out, synthetic"] = rates([a for a in greedy if a.prompt in is_synthetic])
    report["held out, corpus"] = rates([a for a in greedy if a.prompt not in is_synthetic])
    heads = {name: args.out / name for name in ("dart", "eagle3") if (args.out / name).exists()}
    if heads:
        from dart.model.dart_model import DartModel

        drafting = DartModel.from_pretrained(
            args.out / "target",
            heads.get("dart"),
            args.out / "ngram",
            heads.get("eagle3"),
        )
        report["tau"] = {
            f"{decoder.upper()}, {name}, T={temperature:g}, {size} nodes": acceptance(
                drafting, some, decoder=decoder, temperature=temperature, tree_size=size
            )
            for name, some in (("examples", read_examples()), ("held out", prompts[::5]))
            for temperature, size in ((0.0, 20), (0.0, 60), (0.7, 20))
            for decoder in heads
        }
    (args.out / "rates.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    with (args.out / "answers.jsonl").open("w", encoding="utf-8") as file:
        for name, answers in judged.items():
            file.writelines(json.dumps({"set": name, **row}) + "\n" for row in to_json(answers))
    return 0


def run_assets(args: argparse.Namespace) -> int:
    """Write the demo's assets."""
    from dart.train.assets import write_assets

    write_assets(args.out, args.assets, seed=args.seed)
    return 0


def torch_seed(seed: int) -> None:
    """Seed torch's sampling."""
    import torch

    torch.manual_seed(seed)
