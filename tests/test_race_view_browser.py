"""The race's view in a browser, fed with made-up races. Skipped without playwright or Chromium.

DART_SCREENSHOTS names a folder that gets the pictures.
"""

from __future__ import annotations

import copy
import json
import os
import threading
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
import uvicorn
from fastapi import FastAPI

from app import race_view as view_module
from app.race_view import race_view
from tests.browser import chromium, opener
from tests.race_traces import DECODERS, HOSTILE_TOKENS, Race, hostile_race, make_race, trace_file
from tests.race_view_page import OPTIONS, build_page

IDLE = {"run": 0, "state": "idle", "lines": "", "note": ""}
STREAMED = make_race(tokens=70, seed=5)
RACE = make_race(tokens=120, seed=1)


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def url():
    demo = build_page(streamed=lambda: STREAMED)
    _, url, _ = demo.launch(
        prevent_thread_lock=True, quiet=True, server_name="127.0.0.1", **OPTIONS
    )
    yield url
    demo.close()


@pytest.fixture(scope="module")
def opened(browser):
    yield from opener(browser)


@pytest.fixture(scope="module")
def page(opened, url):
    """One page for all tests that open a file on it; whatever goes wrong fails the last of them."""
    page = opened(url, ready=False)
    page.set_viewport_size({"width": 1280, "height": 1600})
    page.wait_for_selector(".race-bar")
    page.wait_for_function("window.Plotly !== undefined")
    return page


def open_trace(page, trace, name="trace.json") -> None:
    """Hand the page a file as a visitor would."""
    text = trace if isinstance(trace, str) else json.dumps(trace)
    page.set_input_files(
        "#race-import", {"name": name, "mimeType": "application/json", "buffer": text.encode()}
    )


def show(page, race: Race) -> None:
    """Open a race's file and wait until all of it is there."""
    open_trace(page, trace_file(race), f"{id(race)}.json")
    page.wait_for_selector(f".race-source:has-text('{id(race)}.json')")
    page.wait_for_selector("#race-latest[disabled]")


def set_range(page, selector: str, value: float) -> None:
    page.eval_on_selector(
        selector,
        "(node, value) => { node.value = value; node.dispatchEvent(new Event('input')); }",
        value,
    )


def counters(page, decoder: str) -> dict[str, str]:
    return page.eval_on_selector_all(
        f"#metrics-{decoder} [data-metric]",
        "nodes => Object.fromEntries(nodes.map(n => [n.dataset.metric, n.textContent]))",
    )


def text(page, decoder: str) -> str:
    """The pane's text that can be seen."""
    return page.eval_on_selector(
        f"#pane-{decoder}",
        "pane => [...pane.children].filter(s => !s.hidden).map(s => s.textContent).join('')",
    )


def point(page, index: int, trace: int) -> tuple[float, float]:
    """Where a node of one of the plot's traces stands on the screen."""
    return tuple(
        page.evaluate(
            """([index, trace]) => {
                const plot = document.querySelector('#tree'), full = plot._fullLayout;
                const box = plot.getBoundingClientRect(), data = plot.data[trace];
                return [box.x + full._size.l + full.xaxis.d2p(data.x[index]),
                        box.y + full._size.t + full.yaxis.d2p(data.y[index])];
            }""",
            [index, trace],
        )
    )


def quoted(words: str) -> str:
    """A token as the page writes it where it stands alone."""
    return "\u201c" + words.replace(" ", "\u2423").replace("\n", "\u21b5") + "\u201d"


def short(number: float) -> str:
    """Three significant digits, as in the hover."""
    return f"{float(f'{number:.3g}'):g}"


UNREACHED, REJECTED, ACCEPTED, BONUS = 3, 4, 5, 7  # the plot's traces


def open_table(page) -> None:
    """Open the table of nodes; the browser tells it of that a moment after the click."""
    page.click(".race-nodes summary")
    page.wait_for_selector(".race-nodes tbody tr")


def wait_step(page, decoder: str, number: int) -> None:
    page.wait_for_selector(f"#tree[aria-label*='{decoder}, step {number}:']")


def test_panes_grow_together_while_the_race_runs(page):
    """The page's purpose. Ends with the figures that the engine's own statistics give."""
    page.evaluate("""() => {
        window.frames_ = [];
        new MutationObserver(() => window.frames_.push(['dart', 'eagle3', 'baseline'].map(
            (name) => document.querySelector('#pane-' + name)?.childElementCount || 0)))
            .observe(document.querySelector('.race-panes'), {childList: true, subtree: true});
    }""")
    page.click("#run-streamed")
    page.wait_for_selector(".dart-race[data-state=finished]")
    frames = page.evaluate("window.frames_")
    together = [frame for frame in frames if all(0 < count < 70 for count in frame)]
    assert len({tuple(frame) for frame in together}) >= 4
    for decoder in DECODERS:
        page.wait_for_function(
            f"document.querySelector('#metrics-{decoder} [data-metric=tokens]').textContent == '70'"
        )
        assert counters(page, decoder) == STREAMED.counters(decoder)
        assert text(page, decoder) == STREAMED.text(decoder)
    speeds = {name: STREAMED.statistics[name].tokens_per_second or 0 for name in DECODERS}
    gain = page.inner_text(".race-pane[data-decoder=dart] [data-metric=speedup]")
    assert gain == f"\u00d7{speeds['dart'] / speeds['baseline']:.2f}"
    assert page.inner_text(".race-pane[data-decoder=eagle3] .race-same") == "\u2713 same text"
    overhead = STREAMED.lines[-1]["overhead"]
    assert f"UI overhead {100 * overhead:.1f}%" in page.inner_text(".race-foot")
    assert "Race finished. DART" in page.text_content(".dart-race > .dart-sr")


def test_tokens_are_marked_by_their_source(page):
    """A mark on the wrong token claims an acceptance that never was."""
    show(page, RACE)
    for decoder in DECODERS:
        marks = page.eval_on_selector_all(
            f"#pane-{decoder} > span", "nodes => nodes.map(n => n.classList[0])"
        )
        sources = [source for step in RACE.steps(decoder) for _, _, source in step["tokens"]]
        assert marks == sources
    assert page.locator("#pane-dart .n").count() > 3
    page.click("label:has(#race-marks)")
    look = "node => getComputedStyle(node).backgroundImage + getComputedStyle(node).boxShadow"
    assert page.eval_on_selector("#pane-dart .n", look) == "nonenone"
    page.click("label:has(#race-marks)")
    assert page.eval_on_selector("#pane-dart .n", look) != "nonenone"
    code = page.eval_on_selector_all(
        "#pane-baseline .code", "nodes => nodes.map(n => n.textContent).join('')"
    )
    assert code.startswith("```python\ndef is_prime")


def test_the_tree_is_hovered_clicked_and_followed(page):
    """The tree is what people come for: a node must say what it was and what became of it."""
    show(page, RACE)
    steps = RACE.steps("dart")
    number = next(
        i for i, step in enumerate(steps) if step["tree"] and 2 <= step["accept"] <= 4 and i > 2
    )
    tree = steps[number]["tree"]
    wait_step(page, "DART", len(steps) - 1)
    set_range(page, "#tree-step", number)
    wait_step(page, "DART", number)
    assert not page.is_checked("#tree-follow")
    kinds = page.evaluate("document.querySelector('#tree').data.map(trace => trace.x.length)")
    on_path = [tree["parents"][node] in tree["path"] for node in range(len(tree["ids"]))]
    assert kinds[ACCEPTED] == steps[number]["accept"]
    assert kinds[REJECTED] == sum(on_path[1:]) - steps[number]["accept"]
    assert kinds[UNREACHED] == len(on_path) - 1 - sum(on_path[1:])
    assert kinds[BONUS] == 1

    node = tree["path"][1]
    x, y = point(page, 0, ACCEPTED)
    page.mouse.move(x, y)
    hover = page.locator("#tree .hoverlayer .hovertext")
    hover.wait_for()
    said = hover.text_content()
    assert f"({tree['ids'][node]})" in said
    assert f"draft probability  {short(tree['draft'][node])}" in said
    assert "accepted" in said
    assert "depth  1" in said
    page.mouse.click(x, y)
    page.wait_for_selector(".race-picked b")
    path = "".join(tree["texts"][each] for each in tree["path"][:2])
    assert page.inner_text(".race-picked b") == quoted(path)

    first = page.evaluate(f"document.querySelector('#tree').data[{REJECTED}].customdata[0]")
    page.mouse.move(5, 5)
    hover.wait_for(state="detached")
    page.mouse.move(*point(page, 0, REJECTED))
    hover.wait_for()
    chosen = quoted(tree["chosen_texts"][tree["parents"][first]])
    assert f"the target chose {chosen}" in hover.text_content()

    picked = page.eval_on_selector_all(
        "#pane-dart .picked", "nodes => nodes.map(n => n.textContent)"
    )
    assert picked == [piece for _, piece, _ in steps[number]["tokens"]]
    page.click("[aria-label='Next step']")
    wait_step(page, "DART", number + 1)
    page.click(".race-choice label:has-text('EAGLE3')")
    wait_step(page, "EAGLE3", number + 1)
    page.click(".race-choice label:has-text('Baseline')")
    page.wait_for_selector(".race-message:has-text('The Baseline drafts nothing')")
    page.click(".race-choice label:has-text('DART')")
    page.click("label:has(#tree-follow)")
    wait_step(page, "DART", len(steps) - 1)
    page.locator("#pane-eagle3 > span").nth(30).click()
    wait_step(page, "EAGLE3", next(
        i for i in range(len(steps) + 50)
        if sum(len(step["tokens"]) for step in RACE.steps("eagle3")[: i + 1]) > 30
    ))  # fmt: skip


def test_the_tree_as_a_table(page):
    """Who cannot see or point must get the same facts."""
    show(page, RACE)
    set_range(page, "#tree-step", 4)
    wait_step(page, "DART", 4)
    open_table(page)
    tree = RACE.steps("dart")[4]["tree"]
    rows = page.locator(".race-nodes tbody tr")
    assert rows.count() == len(tree["ids"])
    assert rows.nth(1).locator("td").nth(2).inner_text() == short(tree["draft"][1])
    rows.nth(2).locator("button").click()
    page.wait_for_selector(".race-picked b")
    page.click(".race-nodes summary")


def test_charts_add_up(page):
    """A histogram or a rate that is counted otherwise than the engine counts is a false claim."""
    show(page, RACE)
    for decoder, label in (("dart", "DART"), ("eagle3", "EAGLE3")):
        page.click(f".race-choice label:has-text('{label}')")
        page.wait_for_selector(f".race-charts h3:has-text('{label}')")
        statistics = RACE.statistics[decoder]
        shown = page.eval_on_selector_all(
            "#accept-histogram .dart-bar-count", "nodes => nodes.map(n => +n.textContent)"
        )
        histogram = statistics.histogram
        assert shown == histogram + [0] * (9 - len(histogram))
        rates = page.eval_on_selector_all(
            "#accept-by-depth .dart-bar-count", "nodes => nodes.map(n => n.textContent)"
        )
        expected = [f"{100 * rate:.0f}" for rate in statistics.acceptance_by_depth]
        assert all(
            abs(int(a) - int(b)) <= 1 for a, b in zip(rates, expected, strict=False)
        )  # halves are rounded otherwise here
        stages = statistics.seconds_by_stage()
        gaps, before = 0.0, 0.0
        for line in RACE.lines[1:-1]:
            if line["kind"] == "step" and line["decoder"] == decoder and line["busy"] > 0.12:
                gaps += line["t"] - before - sum(line["seconds"].values())
            before = line["t"]
        share = stages["verify"] / (stages["decode"] + gaps)
        said = page.inner_text(".race-charts .dart-stage-key.dart-stage-verify b")
        assert abs(float(said.rstrip("%")) - 100 * share) < 1.5


def test_replay_needs_no_server(page, url):
    """A replay must work when the model, the server and the network are gone."""
    show(page, RACE)
    ends = {decoder: RACE.steps(decoder)[-1]["busy"] for decoder in DECODERS}
    asked = []
    page.route("**/*", lambda route: (asked.append(route.request.url), route.abort()))
    try:
        for moment in (0.4, 0.2, 0.7):
            set_range(page, "#race-time", moment)
            page.wait_for_selector(f".race-player .race-position:has-text('{moment:.2f} /')")
            for decoder in DECODERS:
                assert counters(page, decoder) == RACE.counters(decoder, moment)
                assert text(page, decoder) == RACE.text(decoder, moment)
        set_range(page, "#race-time", 0)
        page.wait_for_selector(".race-player .race-position:has-text('0.00 /')")
        page.select_option("#race-speed", "0.5")
        page.evaluate("""() => {
            const node = document.querySelector('#metrics-baseline [data-metric=tokens]');
            window.counts_ = new Set();
            new MutationObserver(() => window.counts_.add(node.textContent)).observe(
                node, {childList: true, characterData: true, subtree: true});
        }""")
        began = page.evaluate("performance.now()")
        page.click("[aria-label=Play]")
        page.wait_for_selector("#race-latest[disabled]")
        seconds = (page.evaluate("performance.now()") - began) / 1000
        assert seconds > max(ends.values()) / 0.5 - 0.05
        assert page.evaluate("window.counts_.size") >= 3
        for decoder in DECODERS:
            assert counters(page, decoder) == RACE.counters(decoder)
            assert text(page, decoder) == RACE.text(decoder)
        page.select_option("#race-clock", "wall")
        wall = max(RACE.times())
        page.wait_for_selector(f".race-player .race-position:has-text('/ {wall:.2f} s')")
        page.select_option("#race-clock", "busy")
        page.select_option("#race-speed", "1")
    finally:
        page.unroute("**/*")
    assert asked == []


def test_export_then_import_gives_the_same_trace(page):
    """A trace that changes on its way through a file is no record."""
    show(page, RACE)
    with page.expect_download() as download:
        page.click("#race-export")
    assert download.value.suggested_filename.startswith("dart-trace-2026-11-20T16")
    exported = json.loads(Path(download.value.path()).read_text("utf-8"))
    assert exported == trace_file(RACE)
    open_trace(page, exported, "again.json")
    page.wait_for_selector(".race-source:has-text('again.json')")
    for decoder in DECODERS:
        assert counters(page, decoder) == RACE.counters(decoder)
        assert text(page, decoder) == RACE.text(decoder)
    page.click(".race-source button")
    page.wait_for_selector(".race-source", state="hidden")


def spoiled(path: str, value) -> dict:
    """The trace of RACE with one field of it changed; `path` as the page would name it."""
    trace = copy.deepcopy(trace_file(RACE))
    *way, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    place: Any = trace
    for key in way:
        place = place[key]
    if value is KeyError:
        del place[last]
    else:
        place[last] = value
    return trace


TREE = next(i for i, line in enumerate(RACE.lines[1:]) if line.get("tree"))


@pytest.mark.parametrize(
    ("trace", "sentence"),
    [
        ("no json", "It is not JSON"),
        ([], "expected object, found a list of 0"),
        (spoiled("schema", "dart-trace/2"), 'schema: expected "dart-trace/1"'),
        (spoiled("prompt", KeyError), "prompt: is missing"),
        (spoiled("extra", 1), "extra: is not known"),
        (spoiled("decoders.0", "__proto__"), "decoders[0]: expected"),
        (spoiled("settings.temperature", "0"), "settings.temperature: expected number"),
        (spoiled("events.0.tokens.0.2", "x"), "events[0].tokens[0][2]: expected"),
        (spoiled("events.5.t", 0), "events[5].t: 0 comes after"),
        (spoiled("events.5.decoder", "none"), "events[5].decoder: expected"),
        (spoiled(f"events.{TREE}.tree.parents.2", 9), "parents[2]: 9 is no earlier node"),
        (spoiled(f"events.{TREE}.tree.path", [0, 3, 9]), "does not lead down from the root"),
        (spoiled(f"events.{TREE}.tree.draft", [0.5]), "tree.draft: 1 entries for"),
        (spoiled(f"events.{TREE}.tree.texts.1", "x" * 1001), "at most 1000 characters"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_with_a_sentence(page, trace, sentence):
    """A file comes from anywhere: half shown, or without a word, is worse than refused."""
    open_trace(page, trace, "bad.json")
    note = page.locator(".race-note", has_text=sentence)
    note.wait_for()
    assert note.inner_text().startswith("bad.json was refused.")


def test_hostile_tokens_stay_text(page):
    """Model output is text: in panes, labels, hovers and tables nothing of it may run."""
    race = hostile_race()
    show(page, race)
    for decoder in DECODERS:
        assert text(page, decoder) == race.text(decoder)
    open_table(page)
    seen = ""
    for number in range(1, len(race.steps("dart")), 4):
        set_range(page, "#tree-step", number)
        wait_step(page, "DART", number)
        for trace in (UNREACHED, REJECTED):
            if page.evaluate(f"document.querySelector('#tree').data[{trace}].x.length"):
                page.mouse.move(*point(page, 0, trace))
                page.locator("#tree .hoverlayer .hovertext").first.wait_for()
        seen += page.inner_text(".race-nodes")
    page.click(".race-nodes summary")
    assert any(token in seen for token in HOSTILE_TOKENS)
    assert page.get_attribute("body", "data-pwned") is None
    assert page.locator(".dart-race img, .dart-race script, .dart-race b b").count() == 0


def test_a_difference_an_error_and_nothing_accepted_are_said(page):
    """What went wrong must stand next to the text that is left, in words."""
    show(page, make_race(tokens=60, differ_at=30, fail="dart", temperature=0.7, seed=2))
    head = page.inner_text(".race-pane[data-decoder=eagle3] .race-same")
    assert head.startswith("\u2260 token 31:")
    foot = page.inner_text(".race-pane[data-decoder=dart] .race-pane-foot")
    assert foot.startswith("Failed: The device ran out of <i>memory</i>")
    assert len(text(page, "dart")) > 10

    nothing = make_race(decoders=("dart", "baseline"), tokens=20, seed=2)
    for line in nothing.lines:
        if line.get("tree"):
            line["tokens"], line["accept"] = line["tokens"][-1:], 0
            line["tree"]["path"] = [0]
    show(page, nothing)
    foot = page.inner_text(".race-pane[data-decoder=dart] .race-pane-foot")
    assert "the target chose another one every time" in foot
    assert page.is_hidden("#pane-eagle3")
    for line in nothing.lines:
        if line["kind"] == "step":
            line["tree"] = None
    show(page, Race(nothing.lines))
    foot = page.inner_text(".race-pane[data-decoder=dart] .race-pane-foot")
    assert "draft trees were empty" in foot


def test_no_badge_without_a_baseline(page):
    """A speed-up over nothing that was measured is made up."""
    race = make_race(decoders=("dart", "eagle3"), tokens=40)
    show(page, race)
    assert page.locator("[data-metric=speedup]:visible").count() == 0
    assert page.inner_text(".race-pane[data-decoder=eagle3] .race-same") == "\u2713 same text"


def test_both_themes_and_a_phone(page, tmp_path):
    """A page that scrolls sideways on a phone, or is unreadable in the dark, is half a page."""
    folder = Path(os.environ.get("DART_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    show(page, RACE)
    set_range(page, "#tree-step", 4)
    wait_step(page, "DART", 4)
    size = page.viewport_size
    try:
        for scheme in ("light", "dark"):
            dark = scheme == "dark"
            page.evaluate("dark => document.body.classList.toggle('dark', dark)", dark)
            page.set_viewport_size({"width": 1280, "height": 1500})
            page.wait_for_timeout(400)
            page.screenshot(path=folder / f"race-{scheme}.png")
            font = page.evaluate("document.querySelector('#tree').layout.font.color")
            assert font == ("#e6ebf2" if dark else "#1b2430")
            page.set_viewport_size({"width": 390, "height": 844})
            page.wait_for_timeout(400)
            page.screenshot(path=folder / f"race-{scheme}-phone.png", full_page=True)
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
            assert page.evaluate("document.querySelector('#tree svg').clientWidth") < 370
    finally:
        page.set_viewport_size(size)
        page.evaluate("document.body.classList.remove('dark')")


@pytest.mark.parametrize("width", [390, 920, 1280])
def test_numbers_and_labels_have_their_room(page, width):
    """A number over its neighbour's unit, or a label on a node, can be read by nobody."""
    size = page.viewport_size
    try:
        page.set_viewport_size({"width": width, "height": 1500})
        show(page, RACE)
        page.wait_for_timeout(300)
        crowded = page.evaluate("""() => {
            const isCrowded = (node) => node.scrollWidth > node.clientWidth;
            for (const number of document.querySelectorAll('.race-counters [data-metric]')) {
                if (number.dataset.metric !== 'tau') number.textContent = '1234';
            }
            return [...document.querySelectorAll('.race-counters, .race-counter')]
                .filter(isCrowded).length;
        }""")
        assert crowded == 0
        tops = page.evaluate("""() => ['.race-counters', '.race-text'].map((part) => new Set(
            [...document.querySelectorAll(part)].map((node) => node.getBoundingClientRect().top)
        ).size)""")
        assert tops == ([3, 3] if width == 390 else [1, 1])
        nearest = page.evaluate("""() => {
            const {data, _fullLayout: {yaxis}} = document.querySelector('#tree');
            const rows = data.filter(({mode}) => mode === 'markers').flatMap(({y}) => y);
            const pixels = rows.map((y) => Math.abs(yaxis.l2p(y) - yaxis.l2p(0)));
            return Math.min(...pixels.filter((distance) => distance > 0));
        }""")
        assert nearest >= 25
    finally:
        page.set_viewport_size(size)


def test_under_a_path_and_without_plotly(opened, monkeypatch):
    """Behind a proxy the plot's script must be found; without it the tree is drawn plainly."""

    def blocks() -> gr.Blocks:
        with gr.Blocks(analytics_enabled=False) as demo:
            race_view(IDLE)
        return demo

    app = FastAPI()
    app.get("/favicon.ico", status_code=204)(lambda: None)  # browsers ask every host for one
    css = {"css_paths": OPTIONS["css_paths"]}
    gr.mount_gradio_app(app, blocks(), path="/with/plotly", **css)
    monkeypatch.setattr(view_module, "_serve_plotly", lambda: None)
    gr.mount_gradio_app(app, blocks(), path="/without", **css)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            thread.join(0.05)
        port = server.servers[0].sockets[0].getsockname()[1]
        page = opened(f"http://127.0.0.1:{port}/with/plotly/", ready=False)
        page.wait_for_function("window.Plotly !== undefined")
        show(page, RACE)
        page.wait_for_selector("#tree .scatterlayer")
        page.goto(f"http://127.0.0.1:{port}/without/")
        page.wait_for_selector(".race-bar")
        show(page, RACE)
        page.wait_for_selector(".race-message:has-text('Plotly is not installed')")
        page.locator("#tree circle").first.click()
        page.wait_for_selector(".race-picked b")
        assert page.locator("#tree circle title").count() > 1
        page.goto("about:blank")
    finally:
        server.should_exit = True
        thread.join(20)
