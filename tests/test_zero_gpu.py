"""Decoding in a forked process, whose records come back as pickles."""

from __future__ import annotations

import argparse
import contextvars
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from gradio.context import LocalContext

from app import lanes, zero_gpu
from app.engine import Task
from app.race import Batches, Race, Record
from app.settings import Settings
from app.zero_gpu import gpu_seconds, load_on_cpu, on_gpu
from dart.decode import Step
from dart.errors import DeviceError
from tests import fake_spaces
from tests.fake_model import FakeModel, fake_loaded

ROOT = Path(__file__).parents[1]
ONE = ("dart",)
IDS = FakeModel().tokenizer.encode("story")


def scripted(delay: float = 0.001, silence: float = 0.0) -> Callable[..., Batches]:
    """The fake model's decoding; its first record says in which process."""
    model = FakeModel(delay)

    def decode(task: Task) -> Batches:
        yield [Record("dart", 0.0, 0.0, Step([os.getpid()]))]
        time.sleep(silence)
        options = task.settings.stream_options()
        steps = {name: partial(model.stream, task.prompt_ids, name, **options) for name in ONE}
        yield from lanes.decode(steps)

    return decode


def task(max_tokens: int = 256) -> Task:
    return Task(IDS, ONE, "race", Settings(max_tokens=max_tokens))


def ask(decode: Callable[[Task], Batches], asked: Task | None = None) -> Batches:
    return on_gpu(decode, zero_gpu.gpu_decorator())(asked or task())


def ended(race: Race) -> list[Record]:
    assert race.join(20)
    return race.records


@pytest.fixture(autouse=True)
def spaces(monkeypatch):
    """The fake in the place of the package, with nothing remembered."""
    monkeypatch.setitem(sys.modules, "spaces", fake_spaces)
    fake_spaces.scheduled.clear()
    fake_spaces.processes.clear()
    return fake_spaces


def test_records_come_whole_and_in_order_from_another_process():
    """Prevents records that are lost, doubled or cannot be pickled, and decoding without a GPU."""
    got = [record for batch in ask(scripted()) for record in batch]
    expected = ended(Race(ONE, scripted()(task()), threading.Lock()))
    assert got[0].step is not None
    assert got[0].step.tokens != [os.getpid()]
    steps = [record.step for record in got if record.step is not None]
    wanted = [record.step for record in expected if record.step is not None]
    assert [step.tokens for step in steps[1:]] == [step.tokens for step in wanted[1:]]
    last, same = steps[-1], wanted[-1]
    assert last.tree is not None
    assert same.tree is not None
    assert last.tree.tokens.tolist() == same.tree.tokens.tolist()
    assert last.tree.depths.tolist() == same.tree.depths.tolist()
    assert (got[-1].step, got[-1].reason) == (None, "eos")


def test_steps_come_in_batches():
    """Prevents a pickle and two context switches for every step."""
    batches = [batch for batch in ask(scripted(delay=0.002)) if batch]
    assert sum(map(len, batches)) > 3 * len(batches)


def test_what_is_derived_from_a_tree_stays_there():
    """Prevents a pickle that is mostly the tree's mask."""
    step = next(s for s in FakeModel(0).stream(IDS, temperature=0, max_new_token_num=9) if s.tree)
    before = len(pickle.dumps(step))
    assert step.tree is not None
    assert step.tree.mask.any()
    assert len(pickle.dumps(step)) == before


def test_batches_come_while_nothing_happens():
    """Prevents a stop during a long prefill from being seen at its end only."""
    pieces = ask(scripted(silence=1.5))
    began = time.monotonic()
    assert len([record for _ in range(12) for record in next(pieces)]) == 1
    assert time.monotonic() - began < 1.4
    pieces.close()
    assert not fake_spaces.processes[0].is_alive()


def test_closing_stops_the_process_over_there():
    """Prevents a closed tab from burning the visitor's quota."""
    pieces = ask(scripted(delay=0.01), task(4096))
    while len(next(pieces)) == 0:
        pass
    began = time.monotonic()
    pieces.close()
    assert time.monotonic() - began < 1.0
    assert fake_spaces.processes[0].exitcode == 0


def test_errors_of_zero_gpu_are_for_the_visitor(monkeypatch):
    """Prevents "Decoding failed (Error)" where the quota is used up."""
    with pytest.raises(DeviceError, match="ZeroGPU: RuntimeError"):
        list(ask(breaks))
    monkeypatch.setattr(fake_spaces, "MOST_SECONDS", 5)
    with pytest.raises(DeviceError, match="ZeroGPU: You have exceeded your quota"):
        list(ask(scripted()))


def breaks(_task: Task) -> Batches:
    raise RuntimeError("CUDA")


def test_a_worker_that_dies_is_noticed():
    """Prevents a page that waits for ever where the process was killed for its memory."""

    def dies(_task: Task) -> Batches:
        yield [Record("dart", 0.1, 0.1, Step([1]))]
        time.sleep(0.2)
        os._exit(9)

    records = ended(Race(ONE, ask(dies), threading.Lock()))
    assert [record.step is None for record in records] == [False, True], "what came stays"
    assert records[-1].reason == "error"
    assert records[-1].error == "ZeroGPU: GPU task aborted"


def test_the_quota_is_that_of_who_asked():
    """Prevents calls without a request, which ZeroGPU counts as the Space's own and refuses."""
    races = []

    def event() -> None:
        LocalContext.request.set("the visitor's")  # type: ignore[arg-type]
        races.append(Race(ONE, ask(scripted(), task(40)), threading.Lock()))

    contextvars.copy_context().run(event)
    ended(races[0])
    assert fake_spaces.scheduled == [("the visitor's", gpu_seconds(40))]


def test_nothing_starts_before_the_first_batch_is_taken():
    """Prevents a GPU that is asked for while another visitor's text is being decoded."""
    pieces = ask(scripted())
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
