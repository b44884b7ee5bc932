"""`python -m dart chat`: a conversation in the terminal, accepted draft tokens in colour."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dart.cli.common import (
    Parser,
    add_model_arguments,
    add_sampling_arguments,
    encode_messages,
    load_model,
    printable,
    stream_options,
)
from dart.cli.generate import summary
from dart.errors import ConfigError, DartError
from dart.stats import RunStatistics

if TYPE_CHECKING:
    from dart.decode import Step
    from dart.model.dart_model import DartModel
    from dart.text import TextStream

ACCEPTED = "\x1b[32m"  # green: drafted, and the target agreed
FAINT = "\x1b[2m"
RESET = "\x1b[0m"
HELP = "/reset forgets the conversation, /decoder NAME changes the decoder, /quit ends (or Ctrl-D)"


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    made = Parser(
        prog="python -m dart chat",
        description="Chat in the terminal. Tokens that the drafter guessed right are green.",
    )
    made.add_argument("--decoder", default="dart", help="dart (default), eagle3 or baseline")
    made.add_argument("--system", metavar="TEXT", help="system prompt")
    add_sampling_arguments(made, max_new_tokens=512)
    add_model_arguments(made)
    return made


def main(argv: Sequence[str]) -> int:
    """Run the command; its exit code."""
    args = parser().parse_args(argv)
    model = load_model(args)
    # A decoder without its head is reported now.
    model.new_drafter(args.decoder, args.tree_size, args.ngram, args.score)
    _enable_line_editing()
    colours = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    chat = Chat(model, args, paint if colours else plain)
    print(HELP)
    while True:
        try:
            line = input("> ").strip()
        except EOFError:
            print()
            return 0
        if line == "/quit":
            return 0
        try:
            chat.take(line)
        except DartError as error:
            print(f"error: {error}", file=sys.stderr)


def paint(text: str, accepted: bool) -> str:
    """Text for a terminal, green where it was drafted."""
    return f"{ACCEPTED}{text}{RESET}" if accepted else text


def plain(text: str, accepted: bool) -> str:
    """Text without colours."""
    return text


def pieces_of(step: Step, stream: TextStream) -> list[tuple[str, bool]]:
    """The step's text by token, and whether that token was an accepted draft token.

    A character spread over several tokens belongs to the last of them.
    """
    return [
        (stream.push([token]), index < step.accept_length)
        for index, token in enumerate(step.tokens)
    ]


class Chat:
    """The conversation so far and what to do with the next line."""

    def __init__(
        self, model: DartModel, args: argparse.Namespace, style: Callable[[str, bool], str]
    ) -> None:
        self.model = model
        self.decoder: str = args.decoder
        self.options = stream_options(args)
        self.template_name = args.template_name
        self.style = style
        self.system = [{"role": "system", "content": args.system}] if args.system else []
        self.messages = list(self.system)

    def take(self, line: str) -> None:
        """Follow a command or answer a message."""
        if line == "/reset":
            self.messages = list(self.system)
        elif line.startswith("/decoder"):
            name = line.removeprefix("/decoder").strip()
            drafting = (self.options[key] for key in ("tree_size", "ngram", "score"))
            self.model.new_drafter(name, *drafting)
            self.decoder = name
        elif line.startswith("/"):
            raise ConfigError(f"{line.split()[0]} is no command; {HELP}.")
        elif line:
            self.answer(line)

    def answer(self, line: str) -> None:
        """Stream the answer to one message; Ctrl-C ends it and keeps what is there."""
        from dart.text import TextStream

        messages = [*self.messages, {"role": "user", "content": line}]
        prompt_ids = encode_messages(self.model, messages, self.template_name)
        statistics, stream, text = RunStatistics(), TextStream(self.model.tokenizer), ""
        steps = self.model.stream(prompt_ids, self.decoder, **self.options)
        with contextlib.suppress(KeyboardInterrupt):
            for step in steps:
                statistics.add(step)
                for piece, accepted in pieces_of(step, stream):
                    text += piece
                    if piece:
                        sys.stdout.write(self.style(printable(piece), accepted))
                sys.stdout.flush()
        rest = stream.flush()
        print(printable(rest))
        print(self._faint(f"{self.decoder}: {summary(statistics)}"))
        # Only now: a message that raised is not part of the conversation.
        self.messages = [*messages, {"role": "assistant", "content": text + rest}]

    def _faint(self, text: str) -> str:
        return text if self.style is plain else f"{FAINT}{text}{RESET}"


def _enable_line_editing() -> None:
    with contextlib.suppress(ImportError):  # not on every platform; typing works without
        import readline  # noqa: F401 - arrow keys and history for input()
