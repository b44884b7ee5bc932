"""`python -m dart info`: versions, device, extension, and what the model flags load."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dart.cli.common import Parser, add_model_arguments, load_model
from dart.cli.ngram_facts import describe

if TYPE_CHECKING:
    from dart.model.dart_model import DartModel


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    made = Parser(prog="python -m dart info", description="Show what is installed and loaded.")
    made.add_argument("--json", action="store_true", help="print one JSON object")
    add_model_arguments(made)
    return made


def main(argv: Sequence[str]) -> int:
    """Run the command; its exit code."""
    args = parser().parse_args(argv)
    facts = environment()
    is_demo = args.base_model_name_or_path is None
    if not is_demo or _has_demo():
        model = load_model(args)
        facts["model"] = {"name": args.base_model_name_or_path or "embedded demo", **sizes(model)}
    else:
        facts["model"] = None
    if args.json:
        print(json.dumps(facts))
        return 0
    for key, value in facts.items():
        if isinstance(value, dict):
            print(f"{key}:")
            for name, part in value.items():
                print(f"  {name}: {_readable(part)}")
        else:
            print(f"{key}: {_readable(value)}")
    if facts["model"] is None:
        print("no model: this copy holds no embedded demo; give --base-model-name-or-path")
    return 0


def environment() -> dict[str, Any]:
    """What is installed here."""
    import torch
    import transformers

    import dart
    from dart import native

    fallback = native.fallback_reason()
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "dart": dart.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
        "extension": fallback is None,
        "fallback": fallback,
        "gpus": gpus,
        "threads": torch.get_num_threads(),
    }


def sizes(model: DartModel) -> dict[str, Any]:
    """Sizes of what is loaded."""
    target = model.target
    store = model.store
    return {
        "class": type(target.model).__name__,
        "device": str(model.device),
        "dtype": str(target.dtype).removeprefix("torch."),
        "parameters": target.num_parameters,
        "layers": len(target.layers),
        "hidden_size": target.hidden_size,
        "vocab_size": target.vocab_size,
        "context": target.max_positions,
        "decoders": list(model.decoders),
        "dart_head_parameters": getattr(model.dart_head, "num_parameters", None),
        "eagle3_head_parameters": getattr(model.eagle3_head, "num_parameters", None),
        "ngram_store": None if store is None else describe(store),
    }


def _has_demo() -> bool:
    from dart.model.dart_model import DEMO

    return DEMO.is_dir()


def _readable(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value == []:
        return "none"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{key} {_readable(part)}" for key, part in value.items())
    return str(value)
