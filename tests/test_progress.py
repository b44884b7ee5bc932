"""Progress lines: what is written when."""

from __future__ import annotations

import argparse
import io

import pytest

from dart.cli.common import memory_size
from dart.progress import ProgressLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def run(stream: io.StringIO, seconds: list[float], before: float = 0.0) -> list[str]:
    """The pieces written where the job stands at 0, 1, 2 ... percent more at those seconds."""
    clock = Clock()
    pieces: list[str] = []
    with ProgressLine(stream, clock) as progress:
        for step, second in enumerate(seconds):
            clock.now = 100.0 + second
            at = stream.tell()
            progress("sorting", before + step, 100)
            pieces.append(stream.getvalue()[at:])
    return pieces


def test_plain_lines_come_now_and_then() -> None:
    """Prevents a log of a thousand lines, and one that says nothing for an hour."""
    stream = io.StringIO()
    pieces = run(stream, [0, 0.5, 1.5, 3.0, 11.4, 11.5, 12.0])
    assert [bool(piece) for piece in pieces] == [False, False, True, False, False, True, False]
    assert stream.getvalue() == "[  2%] sorting, 1:14 left\n[  5%] sorting, 3:38 left\n"


def test_a_terminal_has_one_line() -> None:
    """Prevents a terminal full of lines, and a prompt behind the last one."""
    stream = Terminal()
    pieces = run(stream, [0, 0.1, 0.3, 2.0])
    assert [bool(piece) for piece in pieces] == [True, False, True, True]
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().endswith("\n")
    assert all(len(piece) == 79 for piece in pieces if piece)


def test_a_new_detail_is_no_new_stage() -> None:
    """Prevents a line a second in the log of a benchmark, whose details change with every text."""
    stream, clock = io.StringIO(), Clock()
    with ProgressLine(stream, clock) as progress:
        for second in range(25):
            clock.now = 100.0 + second
            progress("decoding", second, 100, f"dart: {second} tokens/s")
    assert stream.getvalue().splitlines() == [
        "[  1%] decoding, 1:39 left; dart: 1 tokens/s",
        "[ 11%] decoding, 1:29 left; dart: 11 tokens/s",
        "[ 21%] decoding, 1:19 left; dart: 21 tokens/s",
    ]


def test_a_resumed_job_knows_its_speed() -> None:
    """Prevents an estimate that counts what an earlier run has done as done in no time."""
    assert run(io.StringIO(), [0, 50.0], before=80)[1] == "[ 81%] sorting, 15:50 left\n"


def test_a_short_job_is_silent() -> None:
    """Prevents noise around what takes no time."""
    assert run(io.StringIO(), [0, 0.2, 0.4, 0.9]) == [""] * 4


@pytest.mark.parametrize(
    ("text", "size"), [("123456789", 123456789), ("512M", 512 << 20), ("4G", 4 << 30),
                       ("1.5g", 3 << 29), ("64MB", 64 << 20), ("2GiB", 2 << 30), ("1T", 1 << 40)]
)  # fmt: skip
def test_memory_sizes(text: str, size: int) -> None:
    """Prevents a bound a thousand times too small."""
    assert memory_size(text) == size


@pytest.mark.parametrize("text", ["", "G", "four", "4X", "-1G", "1e400", "nan"])
def test_wrong_memory_sizes(text: str) -> None:
    """Prevents a traceback, or a bound nobody meant."""
    with pytest.raises(argparse.ArgumentTypeError, match="expected bytes"):
        memory_size(text)
