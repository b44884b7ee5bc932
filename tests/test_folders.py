"""Locks between processes."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from dart.errors import CheckpointError
from dart.folders import only_one
from dart.ngram_build.work_folder import WorkFolder


def test_who_may_not_wait_is_refused_at_once(tmp_path: Path) -> None:
    """Prevents a poll, and "waiting" told, where the caller wants to know whether it is free."""
    waits: list[None] = []
    with only_one(tmp_path / "lock"):
        with (
            pytest.raises(TimeoutError, match="held by another"),
            only_one(tmp_path / "lock", seconds=0, on_wait=lambda: waits.append(None)),
        ):
            raise AssertionError("two hold it")
        assert waits == []
    with only_one(tmp_path / "lock", seconds=0):
        pass


def test_waiting_is_told_once_and_ends(tmp_path: Path) -> None:
    """Prevents a line at every poll, and a lock that its holder's end does not free."""
    waits: list[None] = []
    waiting, entered = threading.Event(), threading.Event()

    def tell() -> None:
        waits.append(None)
        waiting.set()

    def wait() -> None:
        with only_one(tmp_path / "lock", on_wait=tell):
            entered.set()

    thread = threading.Thread(target=wait)
    with only_one(tmp_path / "lock"):
        thread.start()
        assert waiting.wait(10)
        assert not entered.wait(0.5)  # some polls
    assert entered.wait(10)
    thread.join()
    assert waits == [None]


def test_systems_without_locks_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents an ImportError on Windows, where there is no fcntl."""
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with only_one(tmp_path / "lock"), only_one(tmp_path / "lock", seconds=0):
        pass


def test_late_work_is_not_another_process(tmp_path: Path) -> None:
    """Prevents a disk or network that times out from being reported as a folder in use."""
    with (
        pytest.raises(CheckpointError, match="expected an existing folder"),
        WorkFolder.open(tmp_path / "x.ngram", {}, []),
    ):
        raise TimeoutError(110, "Connection timed out")
