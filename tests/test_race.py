"""The race: fair, stoppable, and one decoder's trouble is its own."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import closing
from functools import partial
from itertools import pairwise

import pytest

from app import race_runs
from app.engine import Engine
from app.lanes import Mode, decode
from app.pump import pump
from app.race import Race, Record
from app.race_runs import RaceHandlers, Request, Visit
from app.settings import Settings
from dart.decode import Step
from dart.errors import ConfigError, DartError, DeviceError
from tests.fake_model import STORY, FakeModel, fake_engine

ALL = ["dart", "eagle3", "baseline"]
GREEDY = Settings()


def lane(seconds: list[float], closed: list[str] | None = None, name: str = "") -> Callable:
    """Steps that say they took so long, and take no time."""

    def steps() -> Generator[Step, None, None]:
        try:
            for index, spent in enumerate(seconds):
                stage = "verify" if index else "prefill"
                reason = "length" if index == len(seconds) - 1 else None
                yield Step([index], seconds={stage: spent}, finish_reason=reason)
        finally:
            if closed is not None:
                closed.append(name)

    return steps


def finished(lanes: dict, mode: Mode = "race") -> list[Record]:
    race = Race(list(lanes), decode(lanes, mode), threading.Lock())
    assert race.join(10)
    return race.records


def request(prompt: str, decoders=ALL, mode="race", settings=GREEDY) -> Request:
    return Request.checked(prompt, decoders, mode, settings)


def run(engine: Engine, visit: Visit, asked: Request) -> list[dict]:
    """What the page sees of a race, from the click to the end."""
    handlers = RaceHandlers(engine)
    handlers.prepare(visit, asked)
    try:
        return [view for view in handlers.run(visit) if view is not None]
    finally:
        handlers.settle(visit)


# --- fairness


@pytest.mark.parametrize(
    "speeds", [(0.01, 0.03, 0.002), (1.0, 1.0, 1.0), (0.5, 0.001, 0.02)], ids=str
)
def test_all_decoders_have_used_equal_time_at_every_moment(speeds):
    """A pane that got more of the device would seem faster than it is."""
    lanes = {
        name: lane([20 * speed, *[speed * (1 + step % 3) for step in range(60)]])
        for name, speed in zip(ALL, speeds, strict=True)
    }
    longest = {name: 20 * speed for name, speed in zip(ALL, speeds, strict=True)}
    busy = dict.fromkeys(ALL, 0.0)
    running = set(ALL)
    for record in finished(lanes):
        if record.step is None:
            running.discard(record.decoder)
            continue
        assert record.busy >= busy[record.decoder]
        busy[record.decoder] = record.busy
        if running == set(ALL):
            apart = max(busy.values()) - min(busy.values())
            assert apart <= max(longest.values()) + 1e-9
            # Whoever stepped had used no more than any other before.
            before = record.busy - sum(record.step.seconds.values())
            assert all(before <= other + 1e-9 for other in busy.values())
    assert running == set()


def test_back_to_back_runs_one_after_another():
    """Clean numbers: no decoder's caches are disturbed by another's."""
    records = finished({name: lane([0.5, 0.1, 0.1]) for name in ALL}, "back_to_back")
    assert [record.decoder for record in records] == [name for name in ALL for _ in range(4)]
    assert [record.reason for record in records] == [None, None, None, "length"] * 3


def test_the_prefill_counts_as_time_used():
    """A decoder with a slow prefill must not be given its first steps for free."""
    records = finished({"dart": lane([1.0, 0.1, 0.1]), "baseline": lane([0.1] * 5)})
    order = [record.decoder for record in records if record.step is not None]
    assert order == ["dart", *["baseline"] * 5, "dart", "dart"]


def test_interleaved_texts_are_those_of_each_decoder_alone():
    """Decoders that share a model must not write into each other's text."""
    engine = fake_engine(FakeModel(delay=0.001))
    visit = Visit()
    run(engine, visit, request("story"))
    assert visit.trace is not None
    texts = defaultdict(list)
    for record in visit.trace.race.records:
        texts[record.decoder] += record.step.tokens if record.step is not None else []
    assert set(texts) == set(ALL)
    assert len({tuple(tokens) for tokens in texts.values()}) == 1


# --- ends


def test_an_error_ends_one_decoder_and_the_others_go_on():
    """One head that runs out of memory must not take the race from the other panes."""

    def broken() -> Generator[Step, None, None]:
        yield Step([1], seconds={"prefill": 0.1})
        raise DeviceError("out of memory")

    records = finished({"dart": broken, "eagle3": lambda: 1 / 0, "baseline": lane([0.1] * 4)})
    ends = {record.decoder: record for record in records if record.step is None}
    assert (ends["dart"].reason, ends["dart"].error) == ("error", "out of memory")
    assert ends["eagle3"].error == "Decoding failed (ZeroDivisionError); the log has more."
    assert ends["baseline"].reason == "length"
    assert sum(record.step is not None for record in records) == 1 + 4


def test_every_generator_is_closed_before_the_lock_is_free():
    """Each holds a cache; the next visitor's must not come on top of it."""
    closed: list[str] = []
    lock = threading.Lock()
    lanes = {name: lane([1e-6] * 10**6, closed, name) for name in ALL}
    race = Race(ALL, decode(lanes), lock)
    while len(race.records) < 30:
        time.sleep(0.001)
    race.stop.set()
    assert race.join(2)
    assert sorted(closed) == sorted(ALL)
    assert not lock.locked()
    assert [record.reason for record in race.records[-3:]] == ["stopped"] * 3


def test_stop_takes_less_than_a_second_also_while_waiting():
    """A race that cannot be stopped before its turn holds a place it does not want."""
    model = FakeModel(delay=0.01)
    engine = fake_engine(model)
    ids = model.encode([{"content": "endless"}])
    first = engine.start_race(ids, ALL, "race", GREEDY)
    second = engine.start_race(ids, ALL, "back_to_back", GREEDY)
    while not first.records:
        time.sleep(0.005)
    assert (first.state, second.state) == ("running", "waiting")
    for race in (second, first):
        race.stop.set()
        assert race.join(1)
        assert race.state == "finished"
        assert [each.reason for each in race.records if each.step is None] == ["stopped"] * 3
    assert second.records[0].wall == 0
    assert model.open_streams == 0


def test_closing_the_page_s_generator_frees_the_engine():
    """A closed tab must not keep the model busy for those who wait."""
    model = FakeModel(delay=0.01)
    engine, visit = fake_engine(model), Visit()
    handlers = RaceHandlers(engine)
    handlers.prepare(visit, request("endless"))
    views = handlers.run(visit)
    while model.open_streams < 3:
        next(views)
    views.close()
    assert model.open_streams == 0
    handlers.settle(visit)
    assert run(engine, Visit(), request("story"))[-1]["state"] == "finished"


# --- the page's view


def test_the_view_only_grows_and_ends_with_everything():
    """Gradio sends what a string grew by; a lost end would leave panes that never finish."""
    visit = Visit()
    views = run(fake_engine(), visit, request("story"))
    lines = [view["lines"] for view in views]
    assert all(after.startswith(before) for before, after in pairwise(lines))
    assert len({view["run"] for view in views}) == 1
    assert views[0]["lines"].startswith('{"kind":"header"')
    assert views[-1]["state"] == "finished"
    assert '"kind":"summary"' in lines[-1].splitlines()[-1]
    assert visit.view() == views[-1]


def test_the_page_is_updated_at_most_ten_times_a_second():
    """Every look costs the decoders time, through the interpreter's lock."""
    visit, handlers = Visit(), RaceHandlers(fake_engine(FakeModel(delay=0.001)), hz=60)
    handlers.prepare(visit, request("endless"))
    began, shown = time.monotonic(), 0
    with closing(handlers.run(visit)) as views:
        for view in views:
            shown += view is not None
            if time.monotonic() - began > 0.8:
                break
    assert shown <= 10 * (time.monotonic() - began) + 2


def test_a_long_race_is_looked_at_less_often(monkeypatch):
    """A browser turns the whole trace over at every look: at a steady rate it falls behind."""
    monkeypatch.setattr("app.pump.MAX_CHARACTERS_A_SECOND", 50_000)
    visit, handlers = Visit(), RaceHandlers(fake_engine(FakeModel(delay=0.001)))
    handlers.prepare(visit, request("endless"))
    sizes, times = [], []
    with closing(handlers.run(visit)) as views:
        for view in views:
            assert view is not None, "Gradio sends all of the value behind a view that is skipped"
            sizes.append(len(view["lines"]))
            times.append(time.monotonic())
            if len(times) > 2 and times[-1] - times[-2] > 0.4:
                break
    for size, before, after in zip(sizes[1:], times[1:], times[2:], strict=False):
        assert after - before >= min(size / 50_000, 1.0) - 0.01


def test_the_rest_between_two_looks_ends_with_the_race(monkeypatch):
    """A pause after a large value must delay neither the stop button nor the last view."""
    monkeypatch.setattr("app.pump.MAX_REST_SECONDS", 30.0)
    race = Race(["dart"], decode({"dart": lane([1e-6] * 10**6)}), threading.Lock())
    with closing(pump(race, lambda: race.state, hz=10, size=lambda _: 10**9)) as looks:
        states = [next(looks), next(looks)]
        threading.Timer(0.2, race.stop.set).start()
        began = time.monotonic()
        states += [state for state in looks if state is not None]
    assert states[-1] == "finished"
    assert len(states) <= 4
    assert time.monotonic() - began < 10


def test_a_second_race_of_one_visitor_waits_for_the_first_to_be_settled():
    """Two races into one value would be drawn over each other."""
    visit, handlers = Visit(), RaceHandlers(fake_engine())
    handlers.prepare(visit, request("story"))
    with pytest.raises(ConfigError, match="A race is on"):
        handlers.prepare(visit, request("story"))
    first = visit.view()
    assert (first["state"], first["lines"]) == ("waiting", "")
    assert "Waiting for a turn" in first["note"]
    assert handlers.settle(visit)
    assert not handlers.settle(visit)
    assert visit.view()["note"] == "The race was stopped before it began."
    handlers.prepare(visit, request("story"))
    assert visit.view()["run"] > first["run"]


def test_what_all_decoders_refuse_is_said_once():
    """Three panes with the same error hide that the request was at fault."""
    visit = Visit()
    with pytest.raises(DartError, match="too <b>hot|too hot"):
        run(fake_engine(), visit, request("story", settings=Settings(temperature=2)))
    assert visit.view()["state"] == "finished"
    assert not visit.is_busy


def test_one_failed_pane_is_no_toast():
    """The other panes have run to their ends; the reason stands in the pane."""
    visit = Visit()
    views = run(fake_engine(), visit, request("break eagle3"))
    assert "ran out of <i>memory</i>" in views[-1]["lines"]
    assert views[-1]["state"] == "finished"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt": " "}, "empty"),
        ({"prompt": None}, "empty"),
        ({"decoders": []}, "at least one"),
        ({"decoders": None}, "at least one"),
        ({"decoders": "dart"}, "at least one"),
        ({"decoders": ["dart", "medusa"]}, "medusa"),
        ({"mode": "relay"}, "expected race or back_to_back"),
        ({"mode": None}, "expected race or back_to_back"),
        ({"settings": Settings(max_tokens=10**6)}, "max tokens"),
        ({"settings": Settings(max_tokens=0)}, "max tokens"),
    ],
)
def test_a_request_that_cannot_be_run_is_refused_by_name(change, message):
    """A form may send anything, and a program does."""
    given = {"prompt": "story", "decoders": ALL, "mode": "race", "settings": GREEDY, **change}
    with pytest.raises(ConfigError, match=message):
        Request.checked(**given)


def test_a_pane_without_a_head_is_left_out_with_a_word():
    """A page that has just opened offers all panes; a click on Run must not be an error."""
    model, visit = FakeModel(), Visit()
    model.decoders = ("dart", "baseline")
    view = run(fake_engine(model), visit, request("story"))[-1]
    assert visit.trace is not None
    assert {record.decoder for record in visit.trace.race.records} == {"dart", "baseline"}
    assert "EAGLE3" in view["note"]
    with pytest.raises(ConfigError, match="can run dart, baseline"):
        run(fake_engine(model), Visit(), request("story", ["eagle3"]))


def test_panes_keep_their_order():
    """The same decoder stands in the same place whatever order the boxes were ticked in."""
    assert request("x", ["baseline", "dart"]).decoders == ("dart", "baseline")


# --- many visitors


def test_ten_visitors_get_their_own_texts():
    """One model, one lock, ten pages: nobody's text may be lost, cut or another's."""
    engine = fake_engine(FakeModel(delay=0.0005))
    names = [f"Visitor{chr(ord('a') + index)}" for index in range(10)]
    seen: dict[str, str] = {}
    others: list[str] = []

    def race(name: str) -> None:
        visit = Visit()
        run(engine, visit, request(f"a story of one named {name}"))
        assert visit.trace is not None
        tokens = defaultdict(list)
        for record in visit.trace.race.records:
            tokens[record.decoder] += record.step.tokens if record.step is not None else []
        texts = {engine.loaded.model.tokenizer.decode(ids) for ids in tokens.values()}
        assert len(texts) == 1
        seen[name] = texts.pop()

    def talk(name: str) -> None:
        job = engine.start(engine.loaded.encode([{"content": f"named {name}"}]), GREEDY)
        assert job.join(30)
        others.append(job.snapshot().text)

    threads = [threading.Thread(target=partial(race, name)) for name in names]
    threads += [threading.Thread(target=partial(talk, "Chat"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
        assert not thread.is_alive()
    assert seen == {name: STORY.replace("dog", name) for name in names}
    assert others == [STORY.replace("dog", "Chat")]
    assert not engine._decoding.locked()


def test_no_memory_of_a_race_is_kept_once_its_visitor_is_gone():
    """A server that keeps every trace runs out of memory in a day."""
    import gc
    import weakref

    engine, visit = fake_engine(FakeModel(delay=0.0)), Visit()
    run(engine, visit, request("story"))
    assert visit.trace is not None
    race = weakref.ref(visit.trace.race)
    del visit
    gc.collect()
    assert race() is None


def test_the_pump_s_first_look_does_not_wait():
    """A click that shows nothing for a while looks as if it had been missed."""
    race = Race(["dart"], decode({"dart": lane([0.0])}), threading.Lock())
    began = time.monotonic()
    with closing(pump(race, lambda: race.state, hz=1)) as looks:
        next(looks)
    assert time.monotonic() - began < 0.5
    assert race_runs.MAX_HZ <= 10
