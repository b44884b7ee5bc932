"""Decoding in a forked process, whose records come back as pickles."""

from __future__ import annotations

import argparse
import contextvars
import os
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from app import zero_gpu
from app.zero_gpu import gpu_seconds, load_on_cpu, on_gpu
from dart.errors import ConfigError, DeviceError
from tests import fake_spaces
from tests.fake_model import FakeModel, fake_loaded

ROOT = Path(__file__).parents[1]


class Scripted:
    """A job that records where it ran, what it was given, and the steps of the fake model."""

    def __init__(self, prompt: str, delay: float = 0.0, silence: float = 0.0) -> None:
        self.records: list = []
        self.state = "running"
        self.stop = threading.Event()
        self._finished = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(prompt, delay, silence))
        self._thread.start()

    def _run(self, prompt: str, delay: float, silence: float) -> None:
        model = FakeModel(delay)
        self.stop.wait(silence)
        self.records.append(os.getpid())
        ids = model.tokenizer.encode(prompt)
        for step in model.stream(ids, "dart", temperature=0, max_new_token_num=200):
            if self.stop.is_set():
                break
            self.records.append(step)
        self.state = "finished"
        self._finished.set()

    def wait_end(self, timeout: float) -> bool:
        return self._finished.wait(timeout)

    def join(self, timeout: float | None = None) -> bool:
        self._thread.join(timeout)
        return not self._thread.is_alive()


@pytest.fixture(autouse=True)
def spaces(monkeypatch):
    """The fake in the place of the package, with nothing remembered."""
    monkeypatch.setitem(sys.modules, "spaces", fake_spaces)
    fake_spaces.scheduled.clear()
    fake_spaces.processes.clear()
    return fake_spaces


def remote(start: Any = Scripted, duration: Any = lambda *args, **kwargs: 10) -> Any:
    return on_gpu(start, zero_gpu.gpu_decorator(), duration)


def test_records_come_whole_and_in_order_from_another_process():
    """Prevents records that are lost, doubled or cannot be pickled, and decoding without a GPU."""
    got = [record for batch in remote()("a story", delay=0.001) for record in batch]
    expected = Scripted("a story")
    assert expected.join(20)
    pid, *steps = got
    assert pid != os.getpid()
    assert [step.tokens for step in steps] == [step.tokens for step in expected.records[1:]]
    assert steps[-1].finish_reason == "eos"
    assert steps[-1].tree.tokens.tolist() == expected.records[-1].tree.tokens.tolist()


def test_steps_come_in_batches():
    """Prevents a pickle and two context switches for every step."""
    lists = [batch for batch in remote()("a story", delay=0.002) if batch]
    assert sum(map(len, lists)) > 3 * len(lists)


def test_batches_come_while_nothing_happens():
    """Prevents a stop during a long prefill from being seen at its end only."""
    pieces = remote()("a story", silence=30.0)
    began = time.monotonic()
    for _ in range(6):
        assert next(pieces) == []
    assert time.monotonic() - began < 2.0
    pieces.close()
    assert time.monotonic() - began < 4.0
    assert not fake_spaces.processes[0].is_alive()


def test_closing_stops_the_job_over_there():
    """Prevents a closed tab from burning the visitor's quota."""
    pieces = remote()("endless", delay=0.01)
    while len(next(pieces)) == 0:
        pass
    began = time.monotonic()
    pieces.close()
    assert time.monotonic() - began < 2.0
    assert fake_spaces.processes[0].exitcode == 0


def test_our_errors_keep_their_text():
    """Prevents "ZeroGPU worker error: ConfigError" where the message says what to do."""

    def refuses(prompt: str) -> Scripted:
        raise ConfigError(f"prompt is {prompt!r}; expected another one.")

    with pytest.raises(ConfigError, match="expected another one"):
        list(remote(refuses)("this"))


def test_errors_of_zero_gpu_are_for_the_visitor():
    """Prevents "Decoding failed (Error)" where the quota is used up."""

    def breaks(prompt: str) -> Scripted:
        raise RuntimeError("CUDA")

    with pytest.raises(DeviceError, match="ZeroGPU: RuntimeError"):
        list(remote(breaks)("this"))

    def no_quota(*args):
        raise gr.Error("You have exceeded your quota", title="ZeroGPU quota exceeded")

    with pytest.raises(DeviceError, match="exceeded your quota"):
        list(remote(duration=no_quota)("this"))


def test_a_worker_that_dies_is_noticed():
    """Prevents a page that waits for ever where the process was killed for its memory."""

    def dies(prompt: str) -> Scripted:
        os._exit(9)

    with pytest.raises(DeviceError, match="aborted"):
        list(remote(dies)("this"))


def test_the_quota_is_that_of_who_asked():
    """Prevents calls without a request, which ZeroGPU counts as the Space's own and refuses."""
    call = remote(duration=lambda prompt, delay=0.0: 7 if prompt == "a story" else 0)
    made = []

    def event() -> None:
        fake_spaces.request.set("the visitor's")
        made.append(call("a story", delay=0.0))

    contextvars.copy_context().run(event)
    thread = threading.Thread(target=lambda: list(made[0]))  # that of the job
    thread.start()
    thread.join(20)
    assert fake_spaces.scheduled == [("the visitor's", 7)]


def test_nothing_starts_before_the_first_batch_is_taken():
    """Prevents a GPU that is asked for while another visitor's text is being decoded."""
    pieces = remote()("a story")
    assert fake_spaces.scheduled == []
    with closing(pieces):
        pass
    assert fake_spaces.processes == []


def test_seconds_asked_for_grow_and_end():
    """Prevents short answers that need a whole minute of quota, and requests beyond any quota."""
    assert gpu_seconds(1) < gpu_seconds(256) < gpu_seconds(256, decoders=3) <= 90
    assert gpu_seconds(10**6) == 90


@pytest.mark.parametrize(
    ("value", "expected"), [("true", True), ("1", True), ("", False), ("false", False)]
)
def test_where_it_is_on(monkeypatch, value, expected):
    """Prevents another idea of ZeroGPU than the package's own."""
    monkeypatch.setenv("SPACES_ZERO_GPU", value)
    assert zero_gpu.is_zero_gpu() is expected


def test_nothing_of_it_is_needed_elsewhere():
    """Prevents an app that does not start without `spaces`, or that touches CUDA at import."""
    code = (
        "import sys; sys.modules['spaces'] = None; from app import app, zero_gpu; "
        "assert 'torch' not in sys.modules, 'spaces has to be imported first'; "
        "import app.layout, torch; sys.exit(torch.cuda.is_initialized())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_all_computing_is_done_before_the_weights_move():
    """Prevents a forward on a GPU that is not there, and a question for its memory."""
    happened = []

    class Movable(FakeModel):
        def to(self, device: str) -> None:
            happened.append(f"to {device}")

    def load(args: argparse.Namespace, report):
        happened.append(f"load on {args.device} as {args.dtype}")
        return replace(fake_loaded(Movable()), memory=memory)

    def memory() -> tuple[int, str]:
        happened.append("memory")
        return 1, "resident"

    args = argparse.Namespace(device=None, dtype=None)
    loaded = load_on_cpu(load, args, lambda stage: None)
    assert happened == ["load on cpu as bfloat16", "memory", "to cuda"]
    assert loaded.memory() == (1, "resident")
    assert loaded.device == "ZeroGPU"
    assert args.device is None
    assert happened[-1] == "to cuda"
