"""Start the app: `python app/app.py`, with upstream's flags; without any, the embedded demo."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

# The package `app` and an uninstalled `dart` are both found from the repository, wherever the
# command is given. In front of the script's own folder, where `app` would mean this file.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

if TYPE_CHECKING:
    from app.engine import Engine


def parser() -> argparse.ArgumentParser:
    """The flags."""
    from dart.cli.common import Parser, add_model_arguments

    flags = Parser(prog="app/app.py", description=__doc__)
    add_model_arguments(flags)
    chat = flags.add_argument_group("chat")
    chat.add_argument(
        "--template-name", metavar="NAME", help="chat template (default: the tokenizer's own)"
    )
    chat.add_argument("--max-new-tokens", type=int, default=256, metavar="N", help="at first")
    chat.add_argument("--max-length", type=int, metavar="N", help="prompt and new tokens together")
    chat.add_argument(
        "--compare-eagle3",
        action="store_true",
        help="load the head of --eagle3-model-name-or-path too (the demo brings its own)",
    )
    page = flags.add_argument_group("page")
    page.add_argument("--server-port", type=int, metavar="PORT", help="default: 7860 or a free one")
    page.add_argument("--listen", action="store_true", help="be reachable from other machines too")
    page.add_argument("--share", action="store_true", help="a public link through Gradio's servers")
    page.add_argument("--hz", type=float, default=20.0, help="page updates a second (default: 20)")
    return flags


def reach(args: argparse.Namespace) -> dict[str, Any]:
    """Who can reach the page: this machine alone, unless asked for more or on a Space."""
    is_space = bool(os.environ.get("SPACE_ID"))
    return {
        "server_name": "0.0.0.0" if args.listen or is_space else "127.0.0.1",
        "share": args.share and not is_space,  # a Space has a public address of its own
    }


def start_engine(args: argparse.Namespace) -> Engine:
    """The engine with its model: loading in the background, or, on ZeroGPU, loaded.

    raises  on ZeroGPU, NotReadyError where the model cannot be loaded: only a restart could help
    """
    from app.engine import Engine
    from app.loading import load
    from app.zero_gpu import gpu_decorator, is_zero_gpu, load_on_cpu, on_gpu

    if is_zero_gpu():
        gpu = gpu_decorator()  # first: nothing above imports torch, which it patches
        engine = Engine(partial(load_on_cpu, load, args), partial(on_gpu, gpu=gpu))
        engine.load_now()
    else:
        engine = Engine(partial(load, args))
        engine.load()
    return engine


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until interrupted; the exit code."""
    flags = parser()
    if argv is None:
        # A Space starts this file without flags and lets its owner set variables.
        argv = [*shlex.split(os.environ.get("DART_FLAGS", "")), *sys.argv[1:]]
    args = flags.parse_args(argv)
    if not 1 <= args.hz <= 60:
        flags.error(f"--hz is {args.hz}; expected 1 to 60")
    if args.max_new_tokens < 1:
        flags.error(f"--max-new-tokens is {args.max_new_tokens}; expected at least 1")
    # Both packages read these when they are imported.
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

    from app.layout import build_ui, launch_options
    from dart.errors import DartError

    try:
        engine = start_engine(args)
        demo = build_ui(engine, max_new_tokens=args.max_new_tokens, hz=args.hz)
        demo.launch(
            server_port=args.server_port,
            **reach(args),
            **launch_options(),
        )
    except (DartError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - a command's last words
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
