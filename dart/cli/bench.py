"""`python -m dart bench`: decoders against each other on a file of prompts."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dart.bench.variants import Variant, read_variant
from dart.cli.common import (
    Parser,
    add_json_argument,
    add_model_arguments,
    add_sampling_arguments,
    encode_messages,
    load_model,
    stream_options,
    write_json,
)
from dart.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from dart.bench.run import Decode
    from dart.decode import Step
    from dart.model.dart_model import DartModel

STOCK = "hf_generate"


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    made = Parser(
        prog="python -m dart bench",
        description="Run decoders interleaved, prompt by prompt, after a warm-up.",
    )
    made.add_argument(
        "--decoders",
        default="baseline,dart",
        help="comma-separated: baseline, dart, eagle3; dart[:SOURCES][:SCORE][:SIZE] is dart with "
        "its own --ngram, --score and --tree-size, like dart:static or dart:both:upstream:32",
    )
    made.add_argument(
        "--prompts",
        required=True,
        nargs="+",
        metavar="FILE",
        help='JSONL of {"prompt"} or {"messages"}; several files are one benchmark',
    )
    made.add_argument("--limit", type=int, metavar="N", help="only the first N prompts of a file")
    made.add_argument("--repeats", type=int, default=1, metavar="N")
    made.add_argument("--warm-up", type=int, default=1, metavar="N", help="prompts run untimed")
    made.add_argument(
        "--hf-generate",
        action="store_true",
        help="also time transformers' own generate on a stock copy of the model (greedy only)",
    )
    add_json_argument(made)
    add_sampling_arguments(made, max_new_tokens=256)
    add_model_arguments(made)
    return made


def main(argv: Sequence[str]) -> int:
    """Run the command; its exit code."""
    args = parser().parse_args(argv)
    variants = _check(args)
    from dart.bench.prompts import read_prompts

    prompts = [prompt for path in args.prompts for prompt in read_prompts(path, args.limit)]
    model = load_model(args)
    from dart.bench.report import SCHEMA, provenance, summarize, table
    from dart.bench.run import run_benchmark
    from dart.progress import ProgressLine

    decoders = {name: _decode(model, each, args) for name, each in variants.items()}
    if args.hf_generate:
        decoders[STOCK] = _stock(model)
    prompt_ids = [encode_messages(model, prompt.messages, args.template_name) for prompt in prompts]
    with ProgressLine(sys.stderr) as progress:
        runs = run_benchmark(
            decoders,
            prompt_ids,
            max_new_tokens=args.max_new_tokens,
            repeats=args.repeats,
            warm_up=args.warm_up,
            progress=progress,
        )
    summary = summarize(
        runs, [prompt.name for prompt in prompts], [prompt.task for prompt in prompts]
    )
    print(table(summary))
    if args.json:
        settings = {
            **{key: value for key, value in vars(args).items() if key != "json"},
            "device": str(model.device),
            "dtype": str(model.target.dtype).removeprefix("torch."),
        }
        result = {
            "schema": SCHEMA,
            **summary,
            "settings": settings,
            "provenance": provenance(["bench", *argv]),
        }
        write_json(args.json, result)
    return 0


def _check(args: argparse.Namespace) -> dict[str, Variant]:
    """Refuse before the model is loaded what cannot end well; the decoders by name."""
    names = [name.strip() for name in args.decoders.split(",") if name.strip()]
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"--decoders is {args.decoders!r}; expected different names, by commas.")
    for flag, value, least in (
        ("--limit", args.limit, 1),
        ("--repeats", args.repeats, 1),
        ("--warm-up", args.warm_up, 0),
    ):
        if value is not None and value < least:
            raise ConfigError(f"{flag} is {value}; expected at least {least}.")
    if args.hf_generate and args.temperature > 0:
        raise ConfigError("--hf-generate compares greedy texts; leave --temperature at 0.")
    return {name: read_variant(name) for name in names}


def _decode(model: DartModel, variant: Variant, args: argparse.Namespace) -> Decode:
    options = variant.options(stream_options(args))
    drafting = {name: options[name] for name in ("tree_size", "ngram", "score")}
    model.new_drafter(variant.decoder, **drafting)  # a missing head is reported before any run

    def decode(ids: list[int], max_new_tokens: int) -> Iterator[Step]:
        limit = {"max_new_token_num": max_new_tokens}
        return model.stream(ids, variant.decoder, **{**options, **limit})

    return decode


def _stock(model: DartModel) -> Decode:
    """A second copy of the target as transformers loads it, so that nothing of ours is in it."""
    from transformers import AutoModelForCausalLM

    from dart.bench.run import stock_generate

    target = model.target
    try:
        copy = AutoModelForCausalLM.from_pretrained(
            target.model.config._name_or_path,
            dtype=target.dtype,
            device_map=None if model.device.type == "cpu" else str(model.device),
            attn_implementation="sdpa",
            trust_remote_code=False,
        )
    except (OSError, ValueError) as error:
        raise CheckpointError(f"--hf-generate cannot load the stock copy: {error}") from error
    return stock_generate(copy.eval(), target.eos_token_ids)
