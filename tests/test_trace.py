"""Traces: what the page is told of a race, and what is let in again."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace

import numpy as np
import pytest

from app import race_runs
from app.pieces import PieceStream, TokenTexts, sources
from app.race import Record
from app.race_runs import Request
from app.schema import problem
from app.settings import Settings
from app.trace import TraceWriter, to_lines
from app.trace_check import TraceError, check_trace, schema
from dart.decode import Step
from tests.fake_model import CODE, HOSTILE, STORY, FakeModel, fake_engine
from tests.support import make_tree

ALL = ["dart", "eagle3", "baseline"]


def record_race(prompt="story", decoders=ALL, mode="race", settings=None) -> dict:
    """A trace file of a whole race."""
    engine = fake_engine(FakeModel(delay=0.0005))
    asked = Request.checked(prompt, decoders, mode, settings or Settings(max_tokens=60))
    trace = race_runs.start(engine, asked)
    assert trace.race.join(20)
    return trace.file()


@pytest.fixture(scope="module")
def recorded() -> dict:
    return record_race()


@pytest.fixture
def trace(recorded) -> dict:
    return copy.deepcopy(recorded)


def of(trace: dict, kind: str, decoder: str | None = None) -> list[dict]:
    return [event for event in trace["events"] if event["kind"] == kind
            and (decoder is None or event["decoder"] == decoder)]  # fmt: skip


def text(trace: dict, decoder: str) -> str:
    steps = of(trace, "step", decoder)
    return "".join(token[1] for step in steps for token in step["tokens"])


# --- writing


def test_the_header_says_what_ran_on_what(recorded):
    """A number without its model, device and settings proves nothing."""
    assert recorded["schema"] == "dart-trace/1"
    assert recorded["decoders"] == ALL
    assert recorded["mode"] == "race"
    assert recorded["prompt"] == "story"
    assert recorded["prompt_tokens"] == len(FakeModel().encode([{"content": "story"}]))
    assert recorded["settings"] == {
        "temperature": 0.0, "top_p": 1.0, "top_k": 0, "seed": 0, "tree_size": None,
        "max_tokens": 60, "ngram": None, "score": None,
    }  # fmt: skip
    assert recorded["model"]["device"] == "CPU"
    assert set(recorded["versions"]) == {"dart", "torch", "transformers", "gradio", "python"}
    assert "kind" not in recorded


def test_events_tell_the_whole_race(recorded):
    """Live view, replay and export are one path: what is missing here is missing everywhere."""
    for name in ALL:
        steps, (end,) = of(recorded, "step", name), of(recorded, "end", name)
        ids = [token[0] for step in steps for token in step["tokens"]]
        assert end["figures"]["tokens"] == ids
        assert (end["reason"], len(ids)) == ("length", 60)
        assert [step["accept"] for step in steps[1:]] == end["figures"]["accept_lengths"]
        assert set(steps[0]["seconds"]) == {"prefill"}
        assert steps[0]["tree"] is None
        busy = np.cumsum([sum(step["seconds"].values()) for step in steps])
        assert [step["busy"] for step in steps] == pytest.approx(busy.tolist(), abs=1e-5)
    times = [event["t"] for event in recorded["events"][:-1]]
    assert times == sorted(times)
    summary = recorded["events"][-1]
    assert summary["kind"] == "summary"
    assert summary["wall"] == times[-1]
    busy = sum(of(recorded, "step", name)[-1]["busy"] for name in ALL)
    assert summary["busy"] == pytest.approx(busy, abs=1e-5)
    assert summary["overhead"] == pytest.approx(1 - busy / times[-1], abs=1e-3)


def test_all_decoders_have_the_same_text(recorded):
    """The claim that the race is there to show."""
    assert len({text(recorded, name) for name in ALL}) == 1
    assert STORY.startswith(text(recorded, "dart"))


@pytest.mark.parametrize(("prompt", "answer"), [("story", STORY), ("code", CODE),
                                                ("hostile", HOSTILE)])  # fmt: skip
def test_texts_are_whole_and_as_the_model_wrote_them(prompt, answer):
    """A character cut in two, or a text made safe by changing it, is not the model's text."""
    trace = record_race(prompt, settings=Settings(max_tokens=400))
    assert all(text(trace, name) == answer for name in ALL)
    assert "\N{REPLACEMENT CHARACTER}" not in text(trace, "dart")


def test_sources_say_who_had_foreseen_a_token():
    """The marks are the page's claim about where the speed comes from."""
    tree = make_tree([5, 6, 7, 8, 9], [-1, 0, 1, 0, 2])
    step = Step([6, 7, 4], 2, tree, [0, 1, 2], np.array([6, 7, 4, 0, 0]))
    assert sources(step) == ["d", "d", "t"]
    probs = np.array([0, 0, 0.5, 1, 1], np.float32)
    assert sources(replace(step, tree=replace(tree, ngram_probs=probs))) == ["d", "n", "t"]
    again = np.array([0, 1, 0, 0, 0], np.float32)
    both = replace(tree, ngram_probs=probs, context_probs=again)
    assert sources(replace(step, tree=both)) == ["n", "n", "t"]
    ended = Step([6, 7], 2, replace(tree, ngram_probs=probs), [0, 1, 2], finish_reason="eos")
    assert sources(ended) == ["d", "n"]
    assert sources(Step([3])) == ["t"]


def test_the_fake_race_has_all_sources(recorded):
    """Guards the tests of the page: marks that are never there cannot be wrong."""
    found = {name: {token[2] for step in of(recorded, "step", name) for token in step["tokens"]}
             for name in ALL}  # fmt: skip
    assert found == {"dart": {"d", "n", "t"}, "eagle3": {"d", "t"}, "baseline": {"t"}}


def test_trees_come_as_columns(recorded):
    """The tree's picture: who was drafted, with what odds, and what the target chose instead."""
    trees = [step["tree"] for step in of(recorded, "step", "dart") if step["tree"]]
    assert trees
    for step in of(recorded, "step", "dart"):
        tree = step["tree"]
        if tree is None:
            continue
        assert tree["path"][0] == 0
        assert len(tree["path"]) == step["accept"] + 1
        on_path = [tree["ids"][node] for node in tree["path"][1:]]
        bonus = tree["chosen"][tree["path"][-1]]
        assert [token[0] for token in step["tokens"]] == [*on_path, bonus]
        assert tree["texts"][0] != ""
        assert tree["scores"][0] == float(f"{math.log(0.625):.4g}")
    eagle3 = next(step["tree"] for step in of(recorded, "step", "eagle3") if step["tree"])
    for name in ("ngram", "matched", "context", "context_matched"):
        assert eagle3[name] is None
        assert any(trees[0][name]), name
    assert all(step["tree"] is None for step in of(recorded, "step", "baseline"))


def test_numbers_that_json_does_not_have_become_null():
    """One infinite score would make every line after it unreadable."""
    tree = make_tree([5, 6, 7], [-1, 0, 0])
    scores = np.array([0, -np.inf, 1 / 3], np.float32)
    step = Step([6, 7], 1, replace(tree, scores=scores), [0, 1], np.array([6, 7, 0]))
    writer = TraceWriter(["dart"], FakeModel().tokenizer, TokenTexts(FakeModel().tokenizer))
    (event,) = writer.events([Record("dart", 0.1234567891, 0.1, step)])
    assert event["tree"]["scores"] == [0.0, None, 0.3333]
    assert event["t"] == 0.123457
    assert json.loads(to_lines([event])) == event


def test_a_character_that_never_becomes_whole_is_shown_at_the_end():
    """Bytes that are held back for ever would make the pane's text shorter than the answer."""
    stream = PieceStream(FakeModel().tokenizer)
    assert [p.text for p in stream.push(Step([65, 0xF0]))] == ["A", ""]
    assert [p.text for p in stream.push(Step([0x9F], finish_reason="length"))] == ["\ufffd"]


def test_the_text_of_a_token_is_made_once_and_keeps_its_blank():
    """A tree shows a hundred tokens a step; and a lost blank makes two words of one."""

    class Sentencepiece:
        calls = 0

        def decode(self, tokens, **_options):
            self.calls += 1
            return "".join({1: " a", 2: "b"}[token] for token in tokens).lstrip()

    tokenizer = Sentencepiece()
    texts = TokenTexts(tokenizer)
    assert texts.of([1, 2, 1]) == [" a", "b", " a"]
    calls = tokenizer.calls
    assert texts.of([2, 1]) == ["b", " a"]
    assert tokenizer.calls == calls


def test_lines_are_one_event_each():
    """A newline inside an event would cut it in two for every reader."""
    events = [{"kind": "step", "text": "a\nb\u2028c\r"}, {"kind": "end"}]
    lines = to_lines(events).split("\n")
    assert [json.loads(line) for line in lines[:-1]] == events
    assert lines[-1] == ""


# --- checking


@pytest.mark.parametrize("mode", ["race", "back_to_back"])
def test_what_is_written_can_be_read(mode):
    """An export that its own import refuses is lost work; also through a file."""
    for prompt in ("story", "break eagle3", "hostile"):
        trace = record_race(prompt, mode=mode, settings=Settings(max_tokens=400, tree_size=9))
        check_trace(json.loads(json.dumps(trace)))


def test_a_stopped_trace_can_be_read():
    """The first part of a race is a trace as well."""
    engine = fake_engine(FakeModel(delay=0.001))
    live = race_runs.start(engine, Request.checked("endless", ALL, "race", Settings()))
    while len(live.race.records) < 10:
        pass
    live.race.stop.set()
    assert live.race.join(2)
    trace = live.file()
    assert [end["reason"] for end in of(trace, "end")] == ["stopped"] * 3
    check_trace(trace)
    trace["events"] = trace["events"][:5]
    check_trace(trace)


BAD = {
    "nothing": (lambda t: t.clear(), "'schema' is missing"),
    "another schema": (lambda t: t.update(schema="dart-trace/2"), "schema: expected one of"),
    "another mode": (lambda t: t.update(mode="x"), "mode: expected one of 'race'"),
    "an extra field": (lambda t: t.update(extra=1), "'extra' is not a field"),
    "a long prompt": (lambda t: t.update(prompt="x" * 20_000), "prompt: expected a length"),
    "an unknown decoder": (lambda t: t.update(decoders=["medusa"]), "decoders[0]"),
    "a decoder twice": (lambda t: t.update(decoders=["dart", "dart"]), "twice"),
    "no decoder": (lambda t: t.update(decoders=[]), "decoders: expected a length"),
    "a missing setting": (lambda t: t["settings"].pop("seed"), "settings: 'seed' is missing"),
    "a text as number": (lambda t: t["settings"].update(top_p="1"), "settings.top_p: expected"),
    "true as number": (lambda t: t["settings"].update(top_k=True), "settings.top_k: expected"),
    "one as true": (lambda t: t["model"].update(is_demo=1), "model.is_demo: expected boolean"),
    "a nan": (lambda t: t["events"][0].update(t=math.nan), "events[0].t: expected number"),
    "a negative time": (lambda t: t["events"][0].update(t=-1), "events[0].t: expected at least"),
    "events as text": (lambda t: t.update(events="x"), "events: expected array"),
    "an unknown event": (lambda t: t["events"][0].update(kind="x"), "events[0].kind: expected"),
    "an event without kind": (lambda t: t["events"][0].pop("kind"), "'kind' is missing"),
    "an odd token": (lambda t: t["events"][0]["tokens"][0].pop(), "events[0].tokens[0]: expected"),
    "an odd source": (lambda t: t["events"][0]["tokens"][0].__setitem__(2, "<b>"), "'<b>'"),
    "a long token": (
        lambda t: t["events"][0]["tokens"][0].__setitem__(1, "x" * 2000), "tokens[0][1]",
    ),
    "an unknown stage": (
        lambda t: t["events"][0]["seconds"].update(lunch=1), "'lunch' is not a field",
    ),
    "a decoder that does not run": (
        lambda t: t.update(decoders=["dart"]), "does not run, or has ended",
    ),
    "time that runs back": (lambda t: t["events"][2].update(t=0.0), "events[2].t"),
    "a step behind the end": (
        lambda t: t["events"].insert(-1, t["events"][0] | {"t": t["events"][-1]["wall"]}),
        "does not run, or has ended",
    ),
    "something behind the summary": (
        lambda t: t["events"].append(t["events"][-1]), "behind the summary",
    ),
    "too much accepted": (lambda t: t["events"][0].update(accept=9), "accept: 9 of"),
}  # fmt: skip
BAD_TREE = {
    "a short column": (lambda tree: tree["scores"].pop(), "scores: "),
    "no column": (lambda tree: tree.pop("ranks"), "'ranks' is missing"),
    "a parent behind its child": (lambda tree: tree["parents"].__setitem__(1, 2), "parents[1]"),
    "a root with a parent": (lambda tree: tree["parents"].__setitem__(0, 0), "parents[0]"),
    "a path off the tree": (lambda tree: tree.update(path=[0, 999]), "path: "),
    "a path that jumps": (lambda tree: tree.update(path=[0, len(tree["ids"]) - 1]), "path: "),
    "a path from elsewhere": (lambda tree: tree.update(path=[1]), "path: "),
    "no root": (lambda tree: tree.update(ids=[]), "ids: expected a length"),
    "a float id": (lambda tree: tree["ids"].__setitem__(0, 1.5), "ids[0]: expected integer"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_trace_is_refused_by_field(trace, name):
    """An imported file is a stranger's: whatever is wrong in it must be said, not drawn."""
    spoil, message = BAD[name]
    spoil(trace)
    with pytest.raises(TraceError) as refused:
        check_trace(trace)
    assert message in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("name", BAD_TREE)
def test_a_bad_tree_is_refused_by_column(trace, name):
    """A cycle or a path into nowhere would hang or break the drawing."""
    tree = max((e["tree"] for e in trace["events"] if e.get("tree")), key=lambda t: len(t["path"]))
    spoil, message = BAD_TREE[name]
    spoil(tree)
    with pytest.raises(TraceError) as refused:
        check_trace(trace)
    assert message in str(refused.value)


@pytest.mark.parametrize("junk", [None, [], "x", 1, {"events": None}])
def test_something_else_is_no_trace(junk):
    """A wrong file is the commonest mistake."""
    with pytest.raises(TraceError):
        check_trace(junk)


def test_the_schema_uses_only_what_its_reader_knows():
    """A keyword that is passed over would be a check that is not made."""

    def walk(node: dict) -> None:
        problem(None, node, schema())  # KeyError for an unknown keyword
        for name in ("properties", "$defs"):
            for each in node.get(name, {}).values():
                walk(each)
        for name in ("allOf", "anyOf", "prefixItems"):
            for each in node.get(name, []):
                walk(each)
        for name in ("items", "if", "then"):
            if name in node:
                walk(node[name])

    walk(schema())
    with pytest.raises(KeyError):
        problem(1, {"multipleOf": 2})


def test_the_schema_s_limits_are_the_app_s(recorded):
    """A prompt that may be asked must be one that may be saved."""
    from app.settings import MAX_PROMPT_CHARS, RANGES

    fields = schema()["properties"]
    assert fields["prompt"]["maxLength"] == MAX_PROMPT_CHARS
    settings = fields["settings"]["properties"]
    for name, (least, most) in RANGES.items():
        assert settings[name]["minimum"] <= least
        assert settings[name]["maximum"] >= most
    assert set(recorded) == set(fields)
