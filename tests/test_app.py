"""The app without a browser: what its parts promise each other and the visitor."""

from __future__ import annotations

import re
import threading
import time
import warnings
from contextlib import closing
from dataclasses import replace
from itertools import pairwise

import pytest

from app import layout, queue_full, views
from app.app import main, parser
from app.chat import ChatHandlers, Conversation
from app.engine import Engine, NotReadyError
from app.events import has_moved_on, toast
from app.header import offer, status_view
from app.link import read_link
from app.presets import PRESETS
from app.pump import pump
from app.settings import MAX_PROMPT_CHARS, Settings, check_prompt
from app.trace_check import check_trace
from dart.errors import CheckpointError, ConfigError, DartError
from tests.fake_model import HOSTILE, STORY, FakeModel, fake_engine, fake_loaded

GREEDY = Settings()


def start(engine: Engine, prompt: str, settings: Settings = GREEDY):
    ids, _ = engine.prompt_ids([{"role": "user", "content": prompt}], settings.max_tokens)
    return engine.start(ids, settings)


def finished(engine: Engine, prompt: str, settings: Settings = GREEDY):
    job = start(engine, prompt, settings)
    assert job.join(20)
    return job.snapshot()


def chat(engine: Engine, conversation: Conversation, prompt: str, settings=GREEDY) -> None:
    handlers = ChatHandlers(engine)
    handlers.ask(conversation, prompt, settings)
    try:
        for _ in handlers.answer(conversation):
            pass
    finally:
        handlers.settle(conversation)


# --- pump and job


def test_pump_shows_a_fast_run_at_the_page_s_pace():
    """A page update per step would make the page lag by seconds and the decoder slow."""
    model = FakeModel(delay=0.001)
    job = start(fake_engine(model), "endless")
    began, snapshots = time.monotonic(), []
    with closing(pump(job, job.snapshot, hz=20)) as frames:
        for snapshot in frames:
            if snapshot is not None:
                snapshots.append(snapshot)
            if time.monotonic() - began > 0.6:
                break
    steps = job.snapshot().statistics["steps"]
    assert len(snapshots) <= 20 * (time.monotonic() - began) + 2
    assert steps > 2 * len(snapshots)
    assert all(a != b for a, b in pairwise(snapshots)), "a frame without news was sent"


@pytest.mark.parametrize("hz", [2, 20])
def test_pump_shows_the_start_and_the_end(hz):
    """A last frame that is dropped leaves an answer without its end."""
    job = start(fake_engine(), "story")
    frames = [frame for frame in pump(job, job.snapshot, hz) if frame is not None]
    assert frames[0].state != "finished"
    assert frames[-1].state == "finished"
    assert frames[-1].text == STORY
    assert frames[-1].reason == "eos"


@pytest.mark.parametrize("hz", [2, 20])
def test_pump_returns_often_while_nothing_happens(hz):
    """Gradio can only stop between two yields: a slow step must not hold it up."""
    job = start(fake_engine(FakeModel(delay=0.5)), "story")
    with closing(pump(job, job.snapshot, hz)) as frames:
        next(frames)
        for _ in range(4):
            began = time.monotonic()
            next(frames)
            assert time.monotonic() - began < 0.4


def test_closing_the_pump_stops_the_job_and_frees_the_engine():
    """A closed tab must not keep the model busy for those who wait."""
    model = FakeModel(delay=0.01)
    engine = fake_engine(model)
    job = start(engine, "endless")
    frames = pump(job, job.snapshot)
    while next(frames) is None or model.open_streams == 0:
        pass
    frames.close()
    assert model.open_streams == 0
    assert job.snapshot().reason == "stopped"
    assert finished(engine, "story").reason == "eos"


def test_one_text_at_a_time():
    """Two decodes at once on one model spoil each other's numbers, on a GPU also its memory."""
    model = FakeModel(delay=0.01)
    engine = fake_engine(model)
    first, second = start(engine, "endless"), start(engine, "story")
    time.sleep(0.2)
    assert model.open_streams == 1
    assert second.snapshot().state == "waiting"
    second.stop.set()
    assert second.join(2), "a job that waits for its turn cannot be stopped"
    first.stop.set()
    assert first.join(2)


def test_an_error_keeps_the_text_so_far():
    """Losing half an answer to an error is worse than the error."""
    snapshot = finished(fake_engine(), "fail")
    assert snapshot.reason == "error"
    assert snapshot.error == "the device ran out of <i>memory</i>."
    assert snapshot.text
    assert STORY.startswith(snapshot.text)


def test_an_unforeseen_error_is_logged_and_not_shown(caplog, monkeypatch):
    """A raw exception's text may hold paths or data that are not for visitors."""
    engine = fake_engine()
    monkeypatch.setattr(engine.loaded.model, "stream", lambda *_args, **_options: 1 / 0)
    snapshot = finished(engine, "story")
    assert snapshot.error is not None
    assert "ZeroDivisionError" in snapshot.error
    assert "division by zero" not in snapshot.error
    assert "division by zero" in caplog.text


# --- encoding


def test_encoding_survives_separators_in_the_text():
    """A model that writes the separators could forge tokens or cut the text."""
    pieces = [("d", "a\x1fb"), ("t", "c\x1ed\x1e\x1f"), ("t", ""), ("d", "\0\n\u20ac")]
    decoded = views.decode_pieces(views.encode_pieces(pieces))
    assert decoded == [("d", "a\u241fb"), ("t", "c\u241ed\u241e\u241f"), ("d", "\u2400\n\u20ac")]


def test_every_piece_has_the_source_of_its_token():
    """A character cut in two, or a colour on the wrong token, would tell a wrong story."""
    snapshot = finished(fake_engine(), "story")
    pieces = views.decode_pieces(snapshot.encoded)
    assert "".join(text for _, text in pieces) == snapshot.text == STORY
    assert "\N{REPLACEMENT CHARACTER}" not in snapshot.text
    assert "\N{DOG FACE}" in snapshot.text
    assert {source for source, _ in pieces} == {"d", "t"}
    baseline = finished(fake_engine(), "story", Settings(decoder="baseline"))
    assert {source for source, _ in views.decode_pieces(baseline.encoded)} == {"t"}
    assert baseline.text == snapshot.text


def test_the_encoding_only_grows():
    """Gradio sends what a string grew by; a string that changes is sent whole, every time."""
    job = start(fake_engine(), "code")
    with closing(pump(job, job.snapshot, hz=60)) as frames:
        encoded = [frame.encoded for frame in frames if frame is not None]
    for before, after in pairwise(encoded):
        assert after.startswith(before)


def test_hostile_text_reaches_the_page_as_data():
    """Nothing a model writes may be changed into HTML on the way, nor escaped twice."""
    conversation = Conversation()
    chat(fake_engine(), conversation, "hostile")
    turn = conversation.chat_view()["turns"][-1]
    text = "".join(text for _, text in views.decode_pieces(turn["s"]))
    assert text == HOSTILE.replace("\x1e", "\u241e").replace("\x1f", "\u241f")


# --- metrics


def test_metrics_come_from_the_decoder_s_own_clock():
    """Speeds that contain the page's time compare pages, not decoders."""
    model = FakeModel(delay=0.01)
    snapshot = finished(fake_engine(model), "story")
    shown = views.metrics(snapshot, GREEDY)
    assert shown["tau"] == pytest.approx((shown["tokens"] - 1) / shown["steps"])
    assert shown["accepted"] == sum(n * steps for n, steps in enumerate(shown["histogram"]))
    assert sum(shown["histogram"]) == shown["steps"]
    assert shown["speed"] == pytest.approx(shown["tau"] / model.delay, rel=1e-6)
    assert shown["prefill"] == pytest.approx(model.delay)
    assert shown["seconds"]["verify"] == pytest.approx(0.8 * model.delay * shown["steps"])
    assert shown["seconds"]["other"] == pytest.approx(
        snapshot.wall - shown["steps"] * model.delay, abs=1e-9
    )
    assert 0 <= shown["overhead"] < 1


def test_metrics_before_and_without_a_run():
    """The strip is drawn before there are any numbers."""
    assert views.metrics(None, None) == {"state": "idle"}
    snapshot = finished(fake_engine(), "story", Settings(max_tokens=1))
    shown = views.metrics(snapshot, Settings(max_tokens=1))
    assert (shown["tokens"], shown["steps"], shown["speed"], shown["tau"]) == (1, 0, None, None)


@pytest.mark.parametrize(
    ("value", "digits", "shown"), [(37 / 8, 2, "4.63"), (0.125, 2, "0.13"), (1.005, 2, "1.00"),
                                   (2, 2, "2.00"), (177.25, 1, "177.3")]
)  # fmt: skip
def test_numbers_under_an_answer_are_those_beside_it(value: float, digits: int, shown: str):
    """Prevents one tau shown as two: Python rounds a tie to even, JavaScript up."""
    assert views.fixed(value, digits) == shown


def test_the_page_says_why_nothing_is_marked():
    """No marks without a reason look like a defect."""
    assert "Baseline drafts nothing" in views.why_nothing_accepted(Settings("baseline"), 0, 0)
    assert views.why_nothing_accepted(GREEDY, 2, 0) == ""
    assert "agreed with none" in views.why_nothing_accepted(GREEDY, 9, 0)
    assert views.why_nothing_accepted(GREEDY, 9, 1) == ""


def test_comparison_speaks_only_where_the_texts_must_be_equal():
    """ "The same text" is the claim of the whole project: it must not be made by accident."""
    before = (Settings("baseline", temperature=0.7), "text", 10.0)
    now = Settings("dart", temperature=0.7, tree_size=9, ngram="none", score="upstream")
    same = "\u2713 the same text as Baseline, \u00d72.50 its speed"
    assert views.comparison("text", 25.0, now, before) == same
    assert "differs" in views.comparison("other", 25.0, now, before)
    assert views.comparison("text", 25.0, Settings("dart", temperature=0.7, seed=1), before) == ""
    assert views.comparison("text", 25.0, before[0], before) == ""
    assert views.comparison("text", 25.0, now, None) == ""


# --- input


@pytest.mark.parametrize("position", range(1, 7))
@pytest.mark.parametrize("value", [None, "7", float("nan"), True])
def test_a_cleared_or_odd_field_is_an_error_of_ours(position, value):
    """A cleared number arrives as None and would end in a TypeError deep inside."""
    values = ["dart", 0.0, 1.0, 0, 0, 0, 64]
    assert Settings.from_form(*values) == Settings(max_tokens=64)
    values[position] = value
    with pytest.raises(ConfigError, match="expected"):
        Settings.from_form(*values)


@pytest.mark.parametrize("prompt", ["", " \n ", "x" * (MAX_PROMPT_CHARS + 1)])
def test_a_prompt_that_cannot_be_one_changes_nothing(prompt):
    """The validator can be passed by with a request of one's own; the handler cannot."""
    conversation = Conversation()
    with pytest.raises(ConfigError, match="prompt"):
        ChatHandlers(fake_engine()).ask(conversation, prompt, GREEDY)
    assert conversation.turns == []
    assert not conversation.is_busy


def test_the_oldest_turns_make_room():
    """A long chat must not end in an error once it has outgrown the context."""
    engine = fake_engine()
    context = engine.loaded.context
    long = [{"role": "user", "content": "." * (context // 2)}] * 5
    ids, dropped = engine.prompt_ids(long, max_tokens=10)
    assert len(ids) <= context - 10
    assert dropped == 4
    _, dropped = engine.prompt_ids([{"role": "user", "content": "." * 2 * context}], 10)
    assert dropped == 0


# --- the conversation


def test_questions_and_answers_are_remembered_in_turn():
    """The model sees what was said, and nothing that is still to come."""
    conversation = Conversation()
    chat(fake_engine(), conversation, "story")
    ChatHandlers(fake_engine()).ask(conversation, " next ", GREEDY)
    assert conversation.messages() == [
        {"role": "user", "content": "story"},
        {"role": "assistant", "content": STORY},
        {"role": "user", "content": "next"},
    ]


def test_a_second_question_waits_for_the_first_answer():
    """Two answers into one conversation would be written into each other."""
    conversation, handlers = Conversation(), ChatHandlers(fake_engine())
    handlers.ask(conversation, "story", GREEDY)
    with pytest.raises(ConfigError, match="still being written"):
        handlers.ask(conversation, "another", GREEDY)
    with pytest.raises(ConfigError, match="still being written"):
        handlers.ask_again(conversation, GREEDY)
    handlers.settle(conversation)
    assert conversation.turns[-1].note == "stopped before it began"
    handlers.ask(conversation, "another", GREEDY)


def test_what_settles_an_answer_leaves_the_next_one_alone():
    """After a stop Gradio may say so twice, and the second time a new answer may be on."""
    conversation, handlers = Conversation(), ChatHandlers(fake_engine())
    assert not has_moved_on(conversation, 0)
    handlers.ask(conversation, "story", GREEDY)
    first = conversation.number
    assert not has_moved_on(conversation, first)
    handlers.settle(conversation)
    assert not has_moved_on(conversation, first)
    handlers.ask_again(conversation, GREEDY)
    assert has_moved_on(conversation, first)
    assert not has_moved_on(conversation, conversation.number)


def test_a_stopped_answer_keeps_its_text_and_the_chat_goes_on():
    """After Stop, Gradio closes the generator: what came so far is settled by another event."""
    model = FakeModel(delay=0.01)
    conversation, handlers = Conversation(), ChatHandlers(fake_engine(model))
    handlers.ask(conversation, "endless", GREEDY)
    frames = handlers.answer(conversation)
    while not conversation.turns[-1].text:
        next(frames)
    frames.close()
    assert model.open_streams == 0
    handlers.settle(conversation)
    handlers.settle(conversation)
    turn = conversation.turns[-1]
    assert turn.text
    assert turn.note.endswith("stopped")
    assert not conversation.is_busy


def test_a_late_frame_does_not_reopen_a_settled_answer():
    """Stop settles while the generator still holds a frame: the chat would stay busy for ever."""
    conversation, handlers = Conversation(), ChatHandlers(fake_engine(FakeModel(delay=0.01)))
    handlers.ask(conversation, "endless", GREEDY)
    frames = handlers.answer(conversation)
    next(frames)
    handlers.settle(conversation)
    for _ in frames:
        pass
    assert not conversation.is_busy


def test_regenerate_with_another_decoder_says_that_the_text_is_the_same():
    """The chat's own proof that drafting changes nothing but the speed."""
    engine, conversation = fake_engine(), Conversation()
    chat(engine, conversation, "story", Settings("baseline"))
    handlers = ChatHandlers(engine)
    handlers.ask_again(conversation, Settings("dart"))
    for _ in handlers.answer(conversation):
        pass
    handlers.settle(conversation)
    assert [turn.role for turn in conversation.turns] == ["user", "assistant"]
    assert "\u2713 the same text as Baseline" in conversation.turns[-1].note


def test_clear_forgets_and_stops():
    """Clear in the middle of an answer must free the model too."""
    model = FakeModel(delay=0.01)
    conversation, handlers = Conversation(), ChatHandlers(fake_engine(model))
    handlers.ask(conversation, "endless", GREEDY)
    frames = handlers.answer(conversation)
    while not model.open_streams:
        next(frames)
    handlers.clear(conversation)
    assert model.open_streams == 0
    assert conversation.chat_view() == {"turns": [], "busy": False}
    assert conversation.metrics_view() == {"state": "idle"}


def test_a_failed_answer_is_raised_after_its_text_was_shown():
    """The toast needs the message, the pane needs the text, and the chat must go on."""
    engine, conversation = fake_engine(), Conversation()
    with pytest.raises(DartError, match="memory"):
        chat(engine, conversation, "fail")
    assert conversation.turns[-1].text
    assert "failed" in conversation.turns[-1].note
    chat(engine, conversation, "story")


def test_a_question_without_an_answer_is_not_sent_again():
    """A prompt that was too long would make every later one too long as well."""
    engine, conversation = fake_engine(), Conversation()
    handlers = ChatHandlers(engine)
    chat(engine, conversation, "story")
    handlers.ask(conversation, "stopped at once", GREEDY)
    handlers.settle(conversation)
    handlers.ask(conversation, "next", GREEDY)
    assert [message["content"] for message in conversation.messages()] == ["story", STORY, "next"]


# --- loading


def test_a_run_before_the_model_is_there_is_refused_with_the_stage():
    """The page is up before the model is; a silent wait would look like a hang."""
    go = threading.Event()

    def load(report):
        report("Loading the weights")
        assert go.wait(10)
        return fake_loaded()

    engine = Engine(load)
    engine.load()
    engine.load()  # a second visitor's retry must not load twice
    while engine.status.text != "Loading the weights":
        time.sleep(0.005)
    conversation = Conversation()
    with pytest.raises(NotReadyError, match="loading the weights"):
        ChatHandlers(engine).ask(conversation, "story", GREEDY)
    assert conversation.turns == []
    go.set()
    while engine.status.state == "loading":
        time.sleep(0.005)
    assert engine.status.state == "ready"
    ChatHandlers(engine).ask(conversation, "story", GREEDY)


def test_a_failed_load_says_why_and_can_be_tried_again():
    """A wrong path must reach the page, not only the terminal."""
    attempts = []

    def load(report):
        attempts.append(1)
        if len(attempts) == 1:
            raise CheckpointError("no such folder")
        return fake_loaded()

    engine = Engine(load)
    for state in ("failed", "ready"):
        engine.load()
        while engine.status.state == "loading":
            time.sleep(0.005)
        assert engine.status.state == state
        if state == "failed":
            assert status_view(engine)["text"] == "no such folder"
            with pytest.raises(NotReadyError, match="no such folder"):
                _ = engine.loaded


# --- Gradio


def test_the_page_is_built_without_warnings_and_with_its_ids():
    """Gradio only warns about options that have moved, and then ignores them."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ResourceWarning)  # whatever other tests left behind
        demo = layout.build_ui(fake_engine())
    ids = {part["props"].get("elem_id") for part in demo.config["components"]}
    race, chat = {"prompt", "run", "stop", "race"}, {"chat-prompt", "chat-run", "chat-stop", "chat"}
    assert race | chat | {"metrics-chat", "settings"} <= ids
    names = [dep["api_name"] for dep in demo.config.get("dependencies", [])
             if dep["api_visibility"] == "public"]  # fmt: skip
    assert sorted(names) == ["generate", "race"]


def test_messages_are_escaped_before_gradio_renders_them():
    """Toasts are HTML to Gradio, and a message may quote what a visitor wrote."""
    error = toast(ConfigError("<img src=x onerror=alert(1)> & co"))
    assert error.message == "&lt;img src=x onerror=alert(1)&gt; &amp; co"


def test_nothing_is_fetched_from_outside():
    """Fonts from a CDN would tell a third party about every visitor."""
    sheets = [layout.theme()._get_theme_css()]
    sheets += [path.read_text("utf-8") for path in layout.launch_options()["css_paths"]]
    for css in sheets:
        assert not re.search(r"@import|url\(['\"]?(https?:)?//", css)
    assert layout.theme()._stylesheets == []


@pytest.mark.parametrize(
    ("flags", "server", "share"),
    [([], "127.0.0.1", False), (["--listen"], "0.0.0.0", False), (["--share"], "127.0.0.1", True)],
)
def test_the_app_is_reachable_only_as_far_as_asked(monkeypatch, flags, server, share):
    """A chat open to the network by default is a surprise nobody wants."""
    seen = {}
    monkeypatch.setattr("gradio.Blocks.launch", lambda _self, **options: seen.update(options))
    assert main(["--base-model-name-or-path", "/nowhere", "--server-port", "7999", *flags]) == 0
    assert (seen["server_name"], seen["share"], seen["server_port"]) == (server, share, 7999)
    assert (seen["ssr_mode"], seen["show_error"], seen["run_history"]) == (False, False, False)
    assert seen["enable_monitoring"] is False


@pytest.mark.parametrize("flags", [["--hz", "0"], ["--max-new-tokens", "0"], ["--nonsense"]])
def test_wrong_flags_end_with_a_message(capsys, flags):
    """A traceback is no answer to a typing error."""
    with pytest.raises(SystemExit) as ended:
        main(flags)
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_upstream_s_flags_are_understood():
    """Scripts written for upstream's app must start this one."""
    names = ("base-model", "dart-model", "ngram-model", "eagle3-model")
    given = [word for name in names for word in (f"--{name}-name-or-path", name)]
    args = parser().parse_args(
        [*given, "--template-name", "qwen", "--device", "cpu", "--max-new-tokens", "9",
         "--max-length", "99", "--use-small-ngram", "--compare-eagle3", "--listen", "--share"]
    )  # fmt: skip
    assert args.base_model_name_or_path == "base-model"
    assert (args.max_new_tokens, args.max_length, args.template_name) == (9, 99, "qwen")
    assert args.use_small_ngram
    assert args.compare_eagle3


@pytest.fixture(scope="module")
def client():
    gradio_client = pytest.importorskip("gradio_client")
    demo = layout.build_ui(fake_engine())
    _, url, _ = demo.launch(
        prevent_thread_lock=True, quiet=True, server_name="127.0.0.1", **layout.launch_options()
    )
    yield gradio_client.Client(url, verbose=False)
    demo.close()


def test_the_api_answers_with_text_and_figures(client):
    """Programs use the same engine as the page, under the names the command line uses."""
    result = client.predict("story", api_name="/generate")
    assert result["text"] == STORY
    assert result["decoder"] == "dart"
    assert result["finish_reason"] == "eos"
    assert result["tau"] > 1
    assert result["tokens_per_second"] > 0
    assert len(result["tokens"]) == 1 + sum(result["accept_lengths"]) + sum(
        1 for _ in result["accept_lengths"]
    )
    plain = client.predict("story", "baseline", api_name="/generate")
    assert plain["text"] == STORY
    assert plain["tau"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompt": " "}, "empty"),
        ({"prompt": "x" * (MAX_PROMPT_CHARS + 1)}, "at most"),
        ({"prompt": "story", "decoder": "medusa"}, "can run dart, eagle3, baseline"),
        ({"prompt": "story", "seed": "x"}, "expected a number"),
        ({"prompt": "story", "temperature": 2}, "&lt;b&gt;too hot&lt;/b&gt;"),
        ({"prompt": "fail"}, "out of"),
    ],
)
def test_the_api_refuses_bad_input_by_name_and_goes_on(client, arguments, message):
    """One bad request must not take the service from the others, nor leave without a reason."""
    with pytest.raises(Exception, match=message):
        client.predict(**arguments, api_name="/generate")
    assert client.predict("code", api_name="/generate")["text"]


def test_a_full_queue_is_refused_in_our_words(monkeypatch):
    """The page shows no words of a 503; clients know a full queue by nothing else."""
    httpx = pytest.importorskip("httpx")
    gradio_client = pytest.importorskip("gradio_client")
    monkeypatch.setattr(layout, "QUEUE_SIZE", 0)
    demo = layout.build_ui(fake_engine())
    _, url, _ = demo.launch(
        prevent_thread_lock=True, quiet=True, server_name="127.0.0.1", **layout.launch_options()
    )
    try:
        answers = [
            httpx.post(
                f"{url}gradio_api/queue/join",
                json={"data": ["story"], "fn_index": 0, "session_hash": "x"},
                headers={"x-gradio-user": who},
            )
            for who in ("app", "api")
        ]
        assert [answer.status_code for answer in answers] == [429, 503]
        assert [answer.json()["detail"] for answer in answers] == [queue_full.SENTENCE] * 2
        assert httpx.get(f"{url}no/such/page").status_code == 404
        with pytest.raises(gradio_client.utils.QueueError):
            gradio_client.Client(url, verbose=False).predict("story", api_name="/generate")
    finally:
        demo.close()


def test_the_api_s_race_answers_with_a_trace(client):
    """Programs get what the page gets: every step of every decoder, in the documented format."""
    trace = client.predict("story", api_name="/race")
    check_trace(trace)
    assert trace["decoders"] == ["dart", "eagle3", "baseline"]
    ends = {each["decoder"]: each for each in trace["events"] if each["kind"] == "end"}
    assert len({tuple(end["figures"]["tokens"]) for end in ends.values()}) == 1
    options = {"decoders": ["baseline", "dart"], "mode": "back_to_back", "max_tokens": 9}
    options |= {"ngram": "context", "score": "upstream"}
    trace = client.predict("story", **options, api_name="/race")
    assert trace["settings"]["ngram"] == "context"
    assert trace["settings"]["score"] == "upstream"
    order = [each["decoder"] for each in trace["events"][:-1]]
    assert order == sorted(order, key=["dart", "baseline"].index)
    assert [each["reason"] for each in trace["events"] if each["kind"] == "end"] == ["length"] * 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompt": " "}, "empty"),
        ({"decoders": []}, "at least one"),
        ({"decoders": ["medusa"]}, "expected some of dart, eagle3, baseline"),
        ({"mode": "relay"}, "expected race or back_to_back"),
        ({"temperature": 2}, "&lt;b&gt;too hot&lt;/b&gt;"),
        ({"max_tokens": 10**9}, "a race takes"),
        ({"seed": "x"}, "expected a number"),
        ({"ngram": "trie"}, "expected one of auto, static"),
        ({"score": "best"}, "expected one of auto, upstream"),
        ({"prompt": "fail at once"}, None),
    ],
)
def test_the_api_s_race_refuses_bad_input_by_name(client, arguments, message):
    """An error that ends one pane is in the trace; one that ends all is the caller's."""
    given = {"prompt": "story", **arguments}
    if message is None:
        trace = client.predict(**given, api_name="/race")
        assert all(e["reason"] == "error" for e in trace["events"] if e["kind"] == "end")
        return
    with pytest.raises(Exception, match=message):
        client.predict(**given, api_name="/race")


# --- what a link or a model may set


def test_a_link_sets_what_it_names():
    """A field that is lost on the way opens another race than the one that was sent."""
    query = {
        "prompt": "a & b", "decoders": "baseline,dart", "mode": "back_to_back",
        "temperature": "0.7", "top_p": "0.9", "top_k": "5", "seed": "9", "tree_size": "30",
        "max_tokens": "64", "ngram": "context", "score": "fitted", "__theme": "dark",
    }  # fmt: skip
    fields, note = read_link(query)
    assert note == ""
    assert fields == {
        "prompt": "a & b", "decoders": ["dart", "baseline"], "mode": "back_to_back",
        "temperature": 0.7, "top_p": 0.9, "top_k": 5, "seed": 9, "tree_size": 30, "max_tokens": 64,
        "ngram": "context", "score": "fitted",
    }  # fmt: skip
    assert read_link({}) == ({}, "")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prompt", "x" * (MAX_PROMPT_CHARS + 1)), ("decoders", ""), ("decoders", "dart,medusa"),
        ("mode", "relay"), ("temperature", "nan"), ("temperature", "-1"), ("temperature", "9"),
        ("top_p", "1e999"), ("top_k", "1.5"), ("seed", "-1"), ("seed", "9" * 5000),
        ("tree_size", "1000"), ("max_tokens", "0"), ("ngram", "trie"), ("ngram", ""),
        ("score", "best"),
    ],
)  # fmt: skip
def test_what_a_link_cannot_set_is_ignored_and_said(name, value):
    """Anybody can write a link; the page must open, and must not pretend."""
    fields, note = read_link({name: value, "seed": "3"} if name != "seed" else {name: value})
    assert name not in fields
    assert f"{name}=" in note
    assert len(note) < 150


def test_the_form_offers_what_the_model_can_do():
    """A limit above the context, or a decoder without a head, is an error in waiting."""
    model = FakeModel()
    model.decoders = ("dart", "baseline")
    engine = Engine(lambda report: replace(fake_loaded(model), context=512))
    engine.load()
    while engine.status.state == "loading":
        time.sleep(0.005)
    decoder, panes, tokens = offer(engine, "eagle3", ["dart", "eagle3", "baseline"], 2048)
    assert (decoder["value"], panes["value"]) == ("dart", ["dart", "baseline"])
    assert (tokens["maximum"], tokens["value"]) == (512, 512)
    assert all("value" not in each for each in offer(engine, "dart", ["baseline"], 64))


@pytest.mark.parametrize("title", [preset.title for preset in PRESETS])
def test_presets_are_prompts_that_may_be_asked(title):
    """A button that fills in an error."""
    preset = next(each for each in PRESETS if each.title == title)
    for prompt in (preset.prompt, preset.demo):
        assert check_prompt(prompt) == prompt
    assert preset.why.endswith(".")


def test_half_a_character_in_a_prompt_is_replaced():
    """JSON can hold what UTF-8 cannot; a tokenizer would fail with an error of its own."""
    assert check_prompt("a\ud800b") == "a\ufffdb"
    assert check_prompt("\ud83d\udc36") == "\N{DOG FACE}"


# --- retry, undo, edit


def test_an_edited_question_begins_again_from_there():
    """What was said after it answered another question."""
    engine, conversation = fake_engine(), Conversation()
    handlers = ChatHandlers(engine)
    for prompt in ("story", "code", "more code"):
        chat(engine, conversation, prompt)
    turn = conversation.turns[2]
    with pytest.raises(ConfigError, match="empty"):
        handlers.edit(conversation, turn.id, " ", GREEDY)
    with pytest.raises(ConfigError, match="no longer part"):
        handlers.edit(conversation, conversation.turns[1].id, "x", GREEDY)
    assert len(conversation.turns) == 6
    handlers.edit(conversation, turn.id, "another", GREEDY)
    assert [turn.text for turn in conversation.turns] == ["story", STORY, "another", ""]
    with pytest.raises(ConfigError, match="still being written"):
        handlers.undo(conversation)
    handlers.settle(conversation)


def test_an_earlier_answer_is_retried():
    """Only the last answer can be compared with the one it replaces."""
    engine, conversation = fake_engine(), Conversation()
    handlers = ChatHandlers(engine)
    chat(engine, conversation, "story", Settings("baseline"))
    chat(engine, conversation, "code", Settings("baseline"))
    handlers.ask_again(conversation, GREEDY, conversation.turns[1].id)
    assert [turn.text for turn in conversation.turns] == ["story", ""]
    for _ in handlers.answer(conversation):
        pass
    handlers.settle(conversation)
    assert conversation.turns[-1].text == STORY
    assert "the same text" not in conversation.turns[-1].note


def test_undo_drops_the_last_question_and_hands_it_back():
    """Without the question it would have to be typed again."""
    engine, conversation = fake_engine(), Conversation()
    handlers = ChatHandlers(engine)
    with pytest.raises(ConfigError, match="nothing to undo"):
        handlers.undo(conversation)
    for prompt in ("story", "code"):
        chat(engine, conversation, prompt)
    assert handlers.undo(conversation) == "code"
    assert [turn.text for turn in conversation.turns] == ["story", STORY]
    assert handlers.undo(conversation) == "story"
    assert conversation.chat_view() == {"turns": [], "busy": False}


def test_a_slower_core_is_named(monkeypatch) -> None:
    """A visitor who sees a slow search must not take it for the method's."""
    engine = fake_engine()
    assert "Python" not in status_view(engine)["demo"]
    monkeypatch.setattr("dart.native.fallback_reason", lambda: "no compiler was found")
    assert "search runs in Python" in status_view(engine)["demo"]
    assert "no compiler was found" in status_view(engine)["demo"]
