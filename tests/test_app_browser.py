"""The chat in a browser, with a scripted model. Skipped where playwright or Chromium is missing.

DART_SCREENSHOTS names a folder that gets the pictures.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from app.engine import Engine
from dart.errors import CheckpointError
from tests.browser import serve
from tests.fake_model import HOSTILE, STORY, FakeModel, fake_engine, fake_loaded

LAST = "#chat .dart-turn:last-child"


@pytest.fixture(scope="module")
def model() -> FakeModel:
    return FakeModel(delay=0.04)


@pytest.fixture(scope="module")
def url(model):
    with serve(fake_engine(model)) as url:
        yield url


def ask(page, prompt: str) -> None:
    page.fill("#chat-prompt textarea", prompt)
    page.press("#chat-prompt textarea", "Enter")
    page.wait_for_selector(f"{LAST}.assistant:not([data-state=done])")


def wait_done(page) -> str:
    page.wait_for_selector(f"{LAST}[data-state=done]")
    page.wait_for_selector("#chat-run:not([disabled])")
    return page.inner_text(f"{LAST} .dart-note")


def wait_text(page, minimum: int = 1) -> None:
    page.wait_for_function(
        f"document.querySelector('{LAST} .dart-body').textContent.length >= {minimum}",
        polling=100,  # a page in the background has no animation frames
    )


def test_a_question_is_answered_as_it_is_written(opened, url):
    """The page's purpose: text in many small pieces, marked by source, beside live numbers."""
    page = opened(url, tab="Chat")
    assert "tiny demo model" in page.inner_text("#status")
    page.evaluate("""() => {
        window.seen = {};
        for (const selector of [
                '#chat', '#metrics-chat [data-metric=tokens]', '#metrics-chat [data-metric=speed]'
            ]) {
            const node = document.querySelector(selector), texts = window.seen[selector] = [];
            new MutationObserver(() => texts.push(node.textContent)).observe(
                node, {childList: true, subtree: true, characterData: true});
        }
    }""")
    ask(page, "Tell me a story")
    note = wait_done(page)
    assert page.inner_text(f"{LAST} .dart-body").strip() == STORY.strip()
    for selector, texts in page.evaluate("window.seen").items():
        assert len(set(texts)) >= 4, f"{selector} did not move while the answer was written"
    assert float(page.inner_text("#metrics-chat [data-metric=speed]")) > 0
    assert float(page.inner_text("#metrics-chat [data-metric=tau]")) > 1
    assert "tokens/s" in note
    assert page.locator(f"{LAST} .d").count() > 10
    assert page.locator(f"{LAST} .t").count() > 10
    assert page.input_value("#chat-prompt textarea") == ""


def test_shift_enter_breaks_the_line_and_code_gets_a_box(opened, url):
    """Enter sends; without Shift+Enter nobody could write a prompt of two lines."""
    page = opened(url, tab="Chat")
    page.fill("#chat-prompt textarea", "please write")
    page.press("#chat-prompt textarea", "Shift+Enter")
    page.type("#chat-prompt textarea", "some code")
    page.click("#chat-run")
    wait_done(page)
    assert page.inner_text("#chat .dart-turn.user .dart-body") == "please write\nsome code"
    code = page.inner_text(f"{LAST} pre")
    assert code.startswith("def is_prime(number):\n    if number < 2:\n        return False")
    assert "```" not in page.inner_text(f"{LAST} .dart-body")
    assert page.inner_text(f"{LAST} .dart-body").rstrip().endswith("square root.")


@pytest.mark.parametrize("how", ["button", "escape"])
def test_stop_frees_the_model_within_a_second(opened, url, model, how):
    """A stop that only hides the text leaves the next visitor waiting."""
    page = opened(url, tab="Chat")
    ask(page, "endless")
    wait_text(page, 40)
    began = time.monotonic()
    if how == "button":
        page.evaluate("document.querySelector('#chat-stop').click()")
    else:
        page.keyboard.press("Escape")
    while model.open_streams and time.monotonic() - began < 5:
        time.sleep(0.01)
    assert time.monotonic() - began < 1
    assert wait_done(page).endswith("stopped")
    ask(page, "story")
    assert "stopped" not in wait_done(page)


def test_an_error_is_a_toast_and_the_page_goes_on(opened, url):
    """An error that covers the text, or locks the buttons, costs the visitor the session."""
    page = opened(url, tab="Chat")
    ask(page, "fail")
    toast = page.locator(".toast-body").first
    toast.wait_for()
    assert "ran out of <i>memory</i>" in toast.inner_text()
    assert "failed" in wait_done(page)
    assert STORY.startswith(page.inner_text(f"{LAST} .dart-body").rstrip())
    ask(page, "story")
    assert "failed" not in wait_done(page)


def test_hostile_output_stays_text(opened, url):
    """Model output is text: in HTML or a template it would run in the visitor's browser."""
    page = opened(url, tab="Chat")
    ask(page, "hostile")
    wait_done(page)
    shown = page.evaluate(f"document.querySelector('{LAST} .dart-body').textContent")
    assert shown == HOSTILE.replace("\x1e", "\u241e").replace("\x1f", "\u241f")
    assert page.get_attribute("body", "data-pwned") is None
    assert page.locator("#chat img, #chat script").count() == 0
    ask(page, "<img src=x onerror=\"document.body.setAttribute('data-pwned', 4)\"> ${1+1}")
    wait_done(page)
    assert page.get_attribute("body", "data-pwned") is None
    assert "${1+1}" in page.locator("#chat .dart-turn.user").last.inner_text()


def test_regenerate_with_the_baseline_gives_the_same_text(opened, url):
    """Losslessness, shown: the decoder changes the speed and the marks, never the text."""
    page = opened(url, tab="Chat")
    page.locator("#chat .dart-card").nth(1).click()
    page.wait_for_selector(f"{LAST}.assistant")
    wait_done(page)
    page.click("#decoder label:has-text('Baseline')")
    page.click("#again")
    page.wait_for_selector(f"{LAST}.assistant:not([data-state=done])")
    note = wait_done(page)
    assert "the same text as DART" in note
    assert page.locator(f"{LAST} .d").count() == 0
    assert "Baseline drafts nothing" in page.inner_text("#metrics-chat")
    page.click("#clear")
    page.wait_for_selector("#chat .dart-empty")
    assert page.locator("#chat .dart-turn").count() == 0


def test_an_answer_in_the_middle_is_retried(opened, url):
    """What was said after it belonged to the old answer."""
    page = opened(url, tab="Chat")
    for prompt in ("a story", "some code"):
        ask(page, prompt)
        wait_done(page)
    page.locator("#chat .dart-retry").first.click()
    page.wait_for_function("document.querySelectorAll('#chat .dart-turn').length === 2")
    wait_done(page)
    assert page.inner_text(f"{LAST} .dart-body").strip() == STORY.strip()


def test_undo_puts_the_question_back_into_the_box(opened, url):
    """A slip of the finger must not cost the conversation before it."""
    page = opened(url, tab="Chat")
    for prompt in ("a story", "some code"):
        ask(page, prompt)
        wait_done(page)
    page.click("#undo")
    page.wait_for_function("document.querySelectorAll('#chat .dart-turn').length === 2")
    assert page.input_value("#chat-prompt textarea") == "some code"
    page.press("#chat-prompt textarea", "Enter")
    page.wait_for_selector(f"{LAST} pre")
    wait_done(page)
    assert page.locator("#chat .dart-turn").count() == 4


def test_an_earlier_question_is_edited_and_asked_again(opened, url):
    """The chat goes on from there; what it had led to is gone."""
    page = opened(url, tab="Chat")
    for prompt in ("a story", "endless"):
        ask(page, prompt)
        wait_text(page, 20)
        if prompt == "endless":
            assert not page.locator("#chat .dart-edit").first.is_visible()
            page.keyboard.press("Escape")
        wait_done(page)
    page.locator("#chat .dart-edit").first.click()
    area = page.locator("#chat .dart-editor textarea")
    assert area.input_value() == "a story"
    area.press("Escape")
    assert page.locator("#chat .dart-editor").count() == 0
    page.locator("#chat .dart-edit").first.click()
    area.fill("some code <b>please</b>")
    area.press("Enter")
    page.wait_for_selector(f"{LAST} pre")
    wait_done(page)
    assert page.locator("#chat .dart-turn").count() == 2
    assert page.inner_text("#chat .dart-turn.user .dart-body") == "some code <b>please</b>"


def test_reasoning_is_folded_and_stays_text(opened, url):
    """A page of thoughts in front of each answer hides it; and thoughts are model output too."""
    page = opened(url, tab="Chat")
    ask(page, "think of a story")
    wait_done(page)
    fold = page.locator(f"{LAST} details.dart-think")
    assert fold.get_attribute("open") is None
    assert fold.locator("div").text_content() == "The user wants a <b>story</b>.\n"
    text = page.evaluate(f"document.querySelector('{LAST} .dart-body').lastChild.textContent")
    assert STORY.endswith(text)
    shown = page.inner_text(f"{LAST} .dart-body")
    assert "think>" not in shown
    assert "Once upon a time" in shown
    fold.locator("summary").click()
    assert "<b>story</b>" in page.inner_text(f"{LAST} .dart-body")


def test_a_second_visitor_waits_in_line_until_the_first_leaves(opened, url, model):
    """A closed tab must free the model; before that, the waiting must be visible."""
    first, second = opened(url, tab="Chat"), opened(url, tab="Chat")
    ask(first, "endless")
    wait_text(first, 40)
    ask(second, "story")
    second.wait_for_selector("#chat-queue .progress-text:has-text('queue')")
    assert model.open_streams == 1
    first.close()
    assert "tokens/s" in wait_done(second)


def test_the_page_is_there_before_the_model_and_after_a_failed_load(opened):
    """Weights may take minutes and paths may be wrong; a blank page explains neither."""
    go, attempts = threading.Event(), []

    def load(report):
        attempts.append(1)
        report("Loading the weights")
        if len(attempts) == 1:
            assert go.wait(60)
            raise CheckpointError("/no/<b>such</b>/folder does not exist.")
        return fake_loaded()

    engine = Engine(load)
    engine.load()
    with serve(engine) as url:
        page = opened(url, ready=False, tab="Chat")
        page.wait_for_selector(".dart-light:has-text('Loading the weights')")
        page.fill("#chat-prompt textarea", "story")
        page.press("#chat-prompt textarea", "Enter")
        page.wait_for_selector(".toast-body:has-text('still loading')")
        assert page.input_value("#chat-prompt textarea") == "story"
        go.set()
        page.wait_for_selector(".dart-line:has-text('/no/<b>such</b>/folder does not exist.')")
        page.click("#retry")
        page.wait_for_selector(".dart-status[data-state=ready]")
        page.press("#chat-prompt textarea", "Enter")
        page.wait_for_selector(f"{LAST}.assistant")
        assert "tokens/s" in wait_done(page)


def test_both_themes_and_a_phone(opened, url, tmp_path):
    """A page that scrolls sideways on a phone, or is unreadable in the dark, is half a page."""
    folder = Path(os.environ.get("DART_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    for scheme in ("light", "dark"):
        page = opened(f"{url}?__theme={scheme}", tab="Chat")
        page.screenshot(path=folder / f"chat-{scheme}-empty.png")
        ask(page, "Write a Python function that checks whether a number is prime.")
        wait_done(page)
        page.screenshot(path=folder / f"chat-{scheme}.png")
        page.set_viewport_size({"width": 390, "height": 844})
        page.wait_for_timeout(300)
        page.screenshot(path=folder / f"chat-{scheme}-phone.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        colours = page.evaluate("""() => {
            const style = getComputedStyle(document.querySelector('#chat .dart-body'));
            const panel = getComputedStyle(document.querySelector('.dart-chat'));
            return [style.color, panel.backgroundColor];
        }""")
        text, ground = (_brightness(colour) for colour in colours)
        assert abs(text - ground) > 150
        assert (text < ground) == (scheme == "light")


def _brightness(colour: str) -> float:
    numbers = colour[colour.index("(") + 1 : -1].replace(",", " ").split()[:3]
    return sum(float(number) for number in numbers) / 3
