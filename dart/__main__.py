"""`python -m dart COMMAND ...`: finds the subcommand and turns errors into exit codes.

Exit codes: 0 done, 2 an error that the user can mend, 130 interrupted. Knows nothing about models:
the commands import them.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Sequence

from dart.errors import DartError

COMMANDS = {
    "generate": "answer one prompt",
    "chat": "talk in the terminal, accepted draft tokens in colour",
    "bench": "race decoders over a file of prompts",
    "ngram": "build, import and inspect n-gram stores",
    "train": "train a target model or a draft head",
    "info": "show versions, device, model and n-gram store",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the process's exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(arguments)
    except DartError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader has gone (`| head`); Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SystemExit as end:  # argparse
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 2


def _run(arguments: list[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        # Text that the terminal's encoding cannot show is escaped, not an error.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help"):
        print(_help())
        return 0 if arguments else 2
    if name == "--version":
        from dart import __version__

        print(f"dart {__version__}")
        return 0
    if name not in COMMANDS:
        return _fail(f"{name!r} is no command; expected one of {', '.join(COMMANDS)}.")
    # Training imports nothing of the other commands, so its own parser takes the whole line.
    home = "dart.train.cli" if name == "train" else f"dart.cli.{name}"
    return importlib.import_module(home).main(arguments[1:])


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = (f"  {name:<{width}}  {text}" for name, text in COMMANDS.items())
    return (
        "usage: python -m dart COMMAND [options]\n\n"
        "Lossless speculative decoding. Without model flags the embedded demo model is used.\n\n"
        + "\n".join(lines)
        + "\n\nEach command explains itself: python -m dart COMMAND --help"
    )


def _fail(message: str) -> int:
    """Say it on one line, whatever it holds."""
    print("error:", " ".join(message.split()), file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
