"""What the commands and the app share: the flags that choose a model, and its loader."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from dart.config import NGRAM_RESIDENCE, NGRAM_SOURCES, SCORES
from dart.errors import ConfigError, DeviceError
from dart.hub import HUBS

if TYPE_CHECKING:
    import torch

    from dart.model.dart_model import DartModel

DTYPES = ("float32", "bfloat16", "float16")


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, like every other error of the command line."""

    def error(self, message: str) -> NoReturn:
        """Print the message and leave with exit code 2."""
        self.exit(2, f"error: {message} (see {self.prog} --help)\n")


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that `load_model` reads."""
    group = parser.add_argument_group(
        "model", "folders or hub ids; without --base-model-name-or-path the embedded demo is used"
    )
    group.add_argument("--base-model-name-or-path", metavar="NAME", help="the target model")
    group.add_argument("--dart-model-name-or-path", metavar="NAME", help="its DART head")
    group.add_argument("--ngram-model-name-or-path", metavar="NAME", help="n-gram store")
    group.add_argument("--eagle3-model-name-or-path", metavar="NAME", help="its EAGLE3 head")
    group.add_argument(
        "--use-small-ngram",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="small.trie rather than full.trie where both are published (default: small)",
    )
    add_residence_argument(group)
    add_hub_argument(group)
    group.add_argument(
        "--device",
        help="cpu, cuda, cuda:1, mps, or auto to spread over all GPUs (default: a GPU if present)",
    )
    group.add_argument(
        "--dtype", choices=DTYPES, help="of the target (default: float32 on a CPU, else its own)"
    )


def add_hub_argument(group: Any) -> None:
    """Add the flag that says whose repositories hub ids are."""
    group.add_argument("--hub", choices=HUBS, default=HUBS[0], help="for hub ids")


def add_residence_argument(group: Any) -> None:
    """Add the flag that says how an n-gram store is kept in memory."""
    group.add_argument(
        "--ngram-memory",
        choices=NGRAM_RESIDENCE,
        default="preloaded",
        help="of the n-gram store: read where needed, read ahead from its start (default; at most "
        "half the machine's memory), or read ahead and kept there",
    )


def add_sampling_arguments(parser: argparse.ArgumentParser, max_new_tokens: int) -> None:
    """Add the flags that `stream_options` reads."""
    group = parser.add_argument_group("generation")
    group.add_argument("--max-new-tokens", type=int, default=max_new_tokens, metavar="N")
    group.add_argument("--max-length", type=int, metavar="N", help="prompt and new tokens together")
    group.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (default)")
    group.add_argument("--top-p", type=float, default=1.0)
    group.add_argument("--top-k", type=int, default=0, help="0 switches it off (default)")
    group.add_argument("--seed", type=int, default=0, help="same seed, same text, any decoder")
    group.add_argument(
        "--tree-size", type=int, metavar="N", help="drafted nodes a step (default: by device)"
    )
    group.add_argument(
        "--ngram",
        choices=NGRAM_SOURCES,
        help="where DART reads n-grams: the store, the text itself, both, nowhere (default: "
        "wherever an acceptance model knows what they are worth, else the store)",
    )
    group.add_argument(
        "--score",
        choices=SCORES,
        help="what DART's nodes are chosen by: upstream's fixed weights, or the fitted probability "
        "of their acceptance (default: fitted where the head brings a model for these n-grams)",
    )
    group.add_argument(
        "--template-name", metavar="NAME", help="chat template (default: the tokenizer's own)"
    )


def add_json_argument(parser: argparse.ArgumentParser) -> None:
    """Add --json OUT for `write_json`; what can never be written is refused before any work."""
    parser.add_argument(
        "--json",
        type=_new_file,
        metavar="OUT",
        help="write all figures and their provenance here",
    )


def _new_file(text: str) -> Path:
    path = Path(text)
    if not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: its folder does not exist")
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder; expected the name of a file")
    return path


def write_json(path: Path, result: Mapping[str, Any]) -> None:
    """All or nothing: an old result is not lost to half of a new one.

    raises  ConfigError where it cannot be written
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ConfigError(f"--json {path} cannot be written: {error}") from error


def memory_size(text: str) -> int:
    """Bytes from 512M, 4G, 1.5GiB or a plain number; for argparse's `type`."""
    found = re.fullmatch(r"(\d{1,18}(?:\.\d{1,6})?)([KMGT]?)(?:i?B)?", text, re.IGNORECASE)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r}: expected bytes, such as 512M or 4G")
    return int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " "))


def stream_options(args: argparse.Namespace) -> dict[str, Any]:
    """Keyword arguments of `DartModel.stream` from the sampling flags."""
    return {
        "temperature": args.temperature,
        "top_p": args.top_p,
        "top_k": args.top_k,
        "seed": args.seed,
        "max_new_token_num": args.max_new_tokens,
        "max_length": args.max_length,
        "tree_size": args.tree_size,
        "ngram": args.ngram,
        "score": args.score,
    }


def find_device(name: str | None) -> torch.device:
    """The device of that name, checked; None takes the first GPU if there is one.

    raises  DeviceError that says what this machine has
    """
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name is None:
        return torch.device("cuda" if gpus else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is not None:
        if device.type == "cpu":
            return device
        if device.type == "cuda" and (device.index or 0) < gpus:
            return device
        if device.type == "mps" and torch.backends.mps.is_available():
            return device
    if gpus:
        has = ", ".join(f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(gpus))
    else:
        has = "no CUDA device"
    raise DeviceError(
        f"{name} was asked for; this machine has {has}. Leave --device out, or use --device cpu."
    )


def load_model(args: argparse.Namespace) -> DartModel:
    """The model that the flags of `add_model_arguments` name; the embedded demo without any.

    raises  a DartError where a flag, a folder, a hub or the device does not answer
    """
    heads = {
        name: getattr(args, name)
        for name in (
            "dart_model_name_or_path",
            "ngram_model_name_or_path",
            "eagle3_model_name_or_path",
        )
    }
    base = args.base_model_name_or_path
    if base is None:
        for name, value in heads.items():
            if value is not None:
                flag = "--" + name.replace("_", "-")
                raise ConfigError(
                    f"{flag} needs --base-model-name-or-path, the model it belongs to."
                )
    # Before the slow imports: an impossible device is reported at once.
    spread = args.device == "auto"
    device = find_device(None if spread else args.device)

    from transformers.utils import logging

    from dart.model.dart_model import DartModel

    if not sys.stderr.isatty():
        logging.disable_progress_bar()
    logging.set_verbosity_error()  # what goes wrong comes as an exception
    on_gpu = device.type != "cpu"
    options: dict[str, Any] = {
        "device_map": ("auto" if spread and on_gpu else str(device) if on_gpu else None),
        "torch_dtype": args.dtype,
        "ngram_memory": args.ngram_memory,
    }
    if base is None:
        return DartModel.demo(**options)
    return DartModel.from_pretrained(
        base, **heads, **options, hub=args.hub, is_small_ngram=args.use_small_ngram
    )


def encode_messages(
    model: DartModel, messages: Sequence[dict[str, str]], template_name: str | None = None
) -> list[int]:
    """Prompt ids of a chat: by the named template, else as `DartModel.encode` does it."""
    if template_name is None:
        if len(messages) == 1 and messages[0]["role"] == "user":
            return model.encode(messages[0]["content"])
        return model.encode(messages)
    from dart.model.template import TEMPLATE_REGISTRY

    template = TEMPLATE_REGISTRY.get(template_name)
    if template is None:
        known = ", ".join(TEMPLATE_REGISTRY)
        raise ConfigError(f"--template-name is {template_name!r}; expected one of {known}.")
    return model.tokenizer(template.format(messages), add_special_tokens=False)["input_ids"]


def printable(text: str) -> str:
    """Text that cannot steer a terminal: control characters but newline and tab become visible."""
    return "".join(
        c if c in "\n\t" or c.isprintable() or (c.isspace() and c >= " ") else f"\\x{ord(c):02x}"
        for c in text
    )


def writer(stream: TextIO) -> Callable[[str], None]:
    """A function that writes model text to `stream` at once, harmless where it is a terminal."""
    is_terminal = stream.isatty()

    def write(text: str) -> None:
        if text:
            stream.write(printable(text) if is_terminal else text)
            stream.flush()

    return write
