"""The app as app.py builds it on ZeroGPU; a fork stands in for the process with the GPU."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from app import app, layout
from app.chat import ChatHandlers, Conversation
from app.engine import Engine, NotReadyError
from app.race import Record
from app.race_runs import RaceHandlers, Request, Visit
from app.settings import Settings
from app.trace_check import check_trace
from app.zero_gpu import gpu_seconds
from dart.errors import CheckpointError, DartError
from dart.model.dart_model import DartModel
from tests import fake_spaces
from tests.fake_model import STORY, FakeModel, fake_engine, fake_loaded

ROOT = Path(__file__).parents[1]
ALL = ("dart", "eagle3", "baseline")


class Movable(FakeModel):
    """Says where its weights are."""

    device = "cpu"

    def to(self, device: str) -> None:
        self.device = device


@pytest.fixture(autouse=True)
def on_zero_gpu(monkeypatch):
    """The variable and the package that are there, with nothing remembered."""
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    monkeypatch.setitem(sys.modules, "spaces", fake_spaces)
    fake_spaces.scheduled.clear()
    fake_spaces.processes.clear()


@pytest.fixture
def start(monkeypatch):
    """Starts the app's engine, with the fake model in the place of what the flags name."""

    def start(delay: float = 0.001) -> Engine:
        model = Movable(delay)
        monkeypatch.setattr("app.loading.load", lambda args, report: fake_loaded(model))
        engine = app.start_engine(app.parser().parse_args([]))
        assert engine.status.state == "ready", "loaded before the page is launched"
        assert model.device == "cuda"
        return engine

    return start


def race(engine: Engine, prompt: str, decoders: Sequence[str] = ALL) -> Visit:
    """A race on the page, from the click to the end."""
    handlers, visit = RaceHandlers(engine), Visit()
    handlers.prepare(visit, Request.checked(prompt, decoders, "race", Settings()))
    try:
        for _ in handlers.run(visit):
            pass
    finally:
        handlers.settle(visit)
    return visit


def chat(engine: Engine, prompt: str) -> str:
    handlers, conversation = ChatHandlers(engine), Conversation()
    handlers.ask(conversation, prompt, Settings())
    try:
        for _ in handlers.answer(conversation):
            pass
    finally:
        handlers.settle(conversation)
    return conversation.turns[-1].text


def tokens(records: Sequence[Record]) -> dict[str, list[int]]:
    found = defaultdict(list)
    for record in records:
        found[record.decoder] += record.step.tokens if record.step is not None else []
    return dict(found)


def records_of(visit: Visit) -> list[Record]:
    assert visit.trace is not None
    return visit.trace.race.records


# --- the same answers


def test_races_and_chats_are_those_of_the_local_page(start):
    """Prevents records that get lost between two processes, and an engine that serves once."""
    engine = start()
    local = tokens(records_of(race(fake_engine(Movable()), "story")))
    for _ in range(2):
        visit = race(engine, "story")
        assert tokens(records_of(visit)) == local
        ends = [record.reason for record in records_of(visit) if record.step is None]
        assert ends == ["eos"] * 3
        assert visit.view()["state"] == "finished"
        assert chat(engine, "story") == STORY
    assert len(fake_spaces.processes) == 4
    assert [process.exitcode for process in fake_spaces.processes] == [0] * 4


def test_programs_get_the_same_and_pay_for_themselves(start):
    """Prevents an API that hangs in the page's process, and quota taken from the Space."""
    gradio_client = pytest.importorskip("gradio_client")
    demo = layout.build_ui(start())
    _, url, _ = demo.launch(
        prevent_thread_lock=True, quiet=True, server_name="127.0.0.1", **layout.launch_options()
    )
    try:
        client = gradio_client.Client(url, verbose=False)
        trace = client.predict("story", max_tokens=200, api_name="/race")
        answer = client.predict("story", "baseline", max_tokens=200, api_name="/generate")
    finally:
        demo.close()
    check_trace(trace)
    ends = {each["decoder"]: each for each in trace["events"] if each["kind"] == "end"}
    assert set(ends) == set(ALL)
    assert [each["figures"]["tokens"] for each in ends.values()] == [answer["tokens"]] * 3
    assert answer["text"] == STORY
    requests, seconds = zip(*fake_spaces.scheduled, strict=True)
    assert seconds == (gpu_seconds(200, 3), gpu_seconds(200, 1))
    assert all(request.headers["host"] in url for request in requests)


def test_the_demo_model_decodes_in_a_fork_of_where_it_was_loaded(monkeypatch):
    """Prevents a fork that waits for its parent's threads or locks, and records full of tensors."""
    monkeypatch.setattr(DartModel, "to", lambda self, device: self)  # ZeroGPU makes believe, too
    argv = ["--dtype", "float32", "--compare-eagle3"]
    engine = app.start_engine(app.parser().parse_args(argv))
    loaded = engine.loaded
    here = Engine(lambda report: loaded)
    here.load_now()
    ids, _ = engine.prompt_ids([{"role": "user", "content": "Write `clamp`."}], 32)
    asked = ids, loaded.model.decoders, "race", Settings(max_tokens=32)
    there = engine.start_race(*asked)
    assert there.join(60)
    local = here.start_race(*asked)
    assert local.join(60)
    assert tokens(there.records) == tokens(local.records)
    assert len({tuple(text) for text in tokens(there.records).values()}) == 1
    pickles = [pickle.dumps(record) for record in there.records]
    assert max(map(len, pickles)) < 8_000
    assert not any(b"torch" in each for each in pickles)


# --- ends


@pytest.mark.parametrize("how", ["stop", "closed page"])
def test_the_process_ends_within_a_second(start, how):
    """Prevents a GPU that decodes for nobody, on the visitor's quota."""
    engine = start(delay=0.01)
    handlers, visit = RaceHandlers(engine), Visit()
    handlers.prepare(visit, Request.checked("endless", ALL, "race", Settings()))
    views = handlers.run(visit)
    while visit.trace is None or len(records_of(visit)) < 30:
        next(views)
    (process,) = fake_spaces.processes
    assert process.is_alive()
    began = time.monotonic()
    if how == "stop":
        handlers.halt(visit)
        assert [view for view in views if view is not None][-1]["state"] == "finished"
    else:
        views.close()
    assert time.monotonic() - began < 1.0
    assert process.exitcode == 0
    handlers.settle(visit)
    assert [record.reason for record in records_of(visit)[-3:]] == ["stopped"] * 3
    assert chat(engine, "story") == STORY


def test_a_race_that_is_stopped_before_its_turn_asks_for_no_gpu(start):
    """Prevents quota spent on what nobody waits for any more."""
    engine = start(delay=0.01)
    ids = engine.loaded.encode([{"content": "endless"}])
    first, second = (engine.start_race(ids, ALL, "race", Settings()) for _ in range(2))
    while not first.records:
        time.sleep(0.005)
    assert (first.state, second.state) == ("running", "waiting")
    for each in (second, first):
        each.stop.set()
        assert each.join(1)
    assert len(fake_spaces.scheduled) == 1


def test_an_error_over_there_arrives_with_its_text(start):
    """Prevents "ZeroGPU worker error" where the message says what to do."""
    engine = start()
    ends = {r.decoder: r for r in records_of(race(engine, "break eagle3")) if r.step is None}
    assert ends["eagle3"].error == "the device ran out of <i>memory</i>."
    assert [ends[name].reason for name in ("dart", "baseline")] == ["eos", "eos"]
    with pytest.raises(DartError, match="ran out of <i>memory</i>"):
        chat(engine, "fail")


def test_a_visitor_without_quota_is_told_so(start, monkeypatch):
    """Prevents a page that says nothing, or "the log has more" to who cannot read it."""
    engine = start()
    with monkeypatch.context() as limits:
        limits.setattr(fake_spaces, "MOST_SECONDS", 5)
        with pytest.raises(DartError, match=r"exceeded your quota .* vs\. 5s left"):
            race(engine, "story")
        with pytest.raises(DartError, match="exceeded your quota"):
            chat(engine, "story")
    assert chat(engine, "story") == STORY


def test_a_model_that_cannot_be_loaded_ends_the_start(monkeypatch, capsys):
    """Prevents a page with a button for another try, which cannot succeed there."""

    def load(args, report):
        raise CheckpointError("there is no such folder.")

    monkeypatch.setattr("app.loading.load", load)
    with pytest.raises(NotReadyError, match="no such folder"):
        app.start_engine(app.parser().parse_args([]))
    monkeypatch.delenv("DART_FLAGS", raising=False)
    assert app.main([]) == 1
    assert "error: There is no model to run: there is no such folder." in capsys.readouterr().err


# --- the package


def main_in_a_process(code: str, **variables: str) -> str:
    """What `code` and then the app's main print, with no model and no server."""
    lines = [
        "import sys",
        code,
        "from app import app, loading",
        "import gradio",
        "from dart.errors import DartError",
        "def load(args, report): raise DartError('enough seen')",
        "loading.load = load",
        "gradio.Blocks.launch = lambda self, **options: print('launched')",
        "sys.exit(app.main([]))",
    ]
    environment = {**os.environ, "DART_FLAGS": "", "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_the_package_comes_before_torch(tmp_path):
    """Prevents a torch that is imported before it can be patched."""
    (tmp_path / "spaces.py").write_text(
        "import sys\n"
        "def GPU(task, *, duration):\n"
        "    print('late' if 'torch' in sys.modules else 'in time')\n"
        "    return task\n"
    )
    code = f"sys.path.append({str(tmp_path)!r})"
    said = main_in_a_process(code, SPACES_ZERO_GPU="true")
    assert said.split("\n")[:2] == ["in time", "error: There is no model to run: enough seen"], said


def test_the_app_starts_where_there_is_no_such_package():
    """Prevents a dependency that only ZeroGPU has."""
    said = main_in_a_process("sys.modules['spaces'] = None", SPACES_ZERO_GPU="")
    assert said == "launched\n"
