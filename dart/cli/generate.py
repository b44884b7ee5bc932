"""`python -m dart generate`: one prompt, one answer: text as it comes, or one JSON object."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from dart.cli.common import (
    Parser,
    add_model_arguments,
    add_sampling_arguments,
    encode_messages,
    load_model,
    stream_options,
    writer,
)
from dart.errors import ConfigError
from dart.stats import RunStatistics


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    made = Parser(prog="python -m dart generate", description="Answer one prompt.")
    made.add_argument("--prompt", required=True, help="the user's message; - reads it from stdin")
    made.add_argument(
        "--decoder", default="dart", help="dart (default), eagle3 or baseline; all give one text"
    )
    made.add_argument("--json", action="store_true", help="print one JSON object at the end")
    add_sampling_arguments(made, max_new_tokens=512)
    add_model_arguments(made)
    return made


def main(argv: Sequence[str]) -> int:
    """Run the command; its exit code."""
    args = parser().parse_args(argv)
    prompt = _read_prompt(args.prompt)
    model = load_model(args)
    from dart.text import TextStream

    prompt_ids = encode_messages(model, [{"role": "user", "content": prompt}], args.template_name)
    statistics = RunStatistics()
    pieces = TextStream(model.tokenizer)
    write = (lambda _text: None) if args.json else writer(sys.stdout)
    text = ""
    for step in model.stream(prompt_ids, args.decoder, **stream_options(args)):
        statistics.add(step)
        piece = pieces.push(step.tokens)
        text += piece
        write(piece)
    rest = pieces.flush()
    text += rest
    if args.json:
        result = {
            "text": text,
            "prompt_tokens": len(prompt_ids),
            "decoder": args.decoder,
            **statistics.as_dict(),
        }
        print(json.dumps(result, ensure_ascii=False))
        return 0
    write(rest + "\n")
    print(summary(statistics), file=sys.stderr)
    return 0


def _read_prompt(argument: str) -> str:
    try:
        prompt = sys.stdin.read().removesuffix("\n") if argument == "-" else argument
        prompt.encode()  # bytes that are no UTF-8 come as lone surrogates
    except UnicodeError as error:
        raise ConfigError(f"the prompt is not valid UTF-8: {error}") from error
    return prompt


def summary(statistics: RunStatistics) -> str:
    """One line about a finished text."""
    parts = [f"{len(statistics.tokens)} tokens"]
    if statistics.tau is not None:
        parts.append(f"tau {statistics.tau:.2f} tokens per target forward")
    if statistics.tokens_per_second is not None:
        parts.append(f"{statistics.tokens_per_second:.1f} tokens/s")
    return "[" + ", ".join(parts) + "]"
