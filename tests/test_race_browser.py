"""The race in a browser, with a scripted model. Skipped where playwright or Chromium is missing."""

from __future__ import annotations

import time
from contextlib import closing
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from app import layout, queue_full
from app.race_runs import RaceHandlers
from tests.browser import serve
from tests.fake_model import HOSTILE, STORY, FakeModel, fake_engine

PANES = ("dart", "eagle3", "baseline")


@pytest.fixture(scope="module")
def model() -> FakeModel:
    return FakeModel(delay=0.015)


@pytest.fixture(scope="module")
def url(model):
    with serve(fake_engine(model)) as url:
        yield url


def begin(page, prompt: str) -> None:
    page.fill("#prompt textarea", prompt)
    page.press("#prompt textarea", "Enter")
    page.wait_for_selector("#stop:not([disabled])")


def wait_done(page) -> None:
    page.wait_for_selector("#run:not([disabled])")


def wait_text(page, *panes: str) -> None:
    for name in panes or PANES:
        page.wait_for_function(
            f"document.getElementById('pane-{name}').textContent.includes('Once')",
            polling=100,  # a page in the background has no animation frames
        )


def text(page, name: str) -> str:
    return page.evaluate(f"document.getElementById('pane-{name}').textContent")


def test_three_panes_grow_together_and_end_with_the_same_text(opened, url):
    """The page's purpose."""
    page = opened(url)
    page.evaluate("""(names) => {
        window.seen = {};
        for (const name of names) {
            const node = document.getElementById('pane-' + name), lengths = window.seen[name] = [];
            new MutationObserver(() => lengths.push(node.textContent.length)).observe(
                node, {childList: true, subtree: true, characterData: true});
        }
    }""", list(PANES))  # fmt: skip
    begin(page, "a story")
    wait_done(page)
    for name, lengths in page.evaluate("window.seen").items():
        assert len(set(lengths)) >= 5, f"{name} did not grow while the race was on"
    for name in PANES:
        assert STORY.strip() in text(page, name)
    drawn = page.evaluate("document.querySelector('.dart-race').drawn()")
    assert drawn["panes"] >= 5
    assert 1 <= drawn["tree"] <= drawn["panes"]


def test_stop_frees_the_model_and_the_next_race_runs(opened, url, model):
    """A stop that only stops the drawing leaves the next visitor waiting."""
    page = opened(url)
    begin(page, "endless")
    wait_text(page)
    began = time.monotonic()
    page.keyboard.press("Escape")
    while model.open_streams and time.monotonic() - began < 10:
        time.sleep(0.01)
    assert time.monotonic() - began < 1
    wait_done(page)
    assert page.is_disabled("#stop")
    begin(page, "some code")
    wait_done(page)
    for name in PANES:
        assert "def is_prime" in text(page, name)
        assert "Once upon" not in text(page, name)


def test_every_race_is_settled_once_and_leaves_the_next_one_alone(opened, url, model, monkeypatch):
    """A second settling, after a stop or an error, would end the race that was begun meanwhile."""
    settled: list[int] = []
    settle = RaceHandlers.settle

    def counting(handlers, visit):
        has_ended = settle(handlers, visit)
        if has_ended:
            settled.append(visit.number)
        return has_ended

    monkeypatch.setattr(RaceHandlers, "settle", counting)
    page = opened(url)
    begin(page, "endless")
    wait_text(page)
    page.evaluate("""() => {
        const run = document.getElementById('run');
        new MutationObserver((_, observer) => {
            if (run.disabled) return;
            observer.disconnect();
            run.click();  // in the moment it can be
            window.isRunAgain = true;
        }).observe(run, {attributes: true});
        document.getElementById('stop').click();
    }""")
    # A flag: between the two races the stop button may be off for less than a frame.
    page.wait_for_function("window.isRunAgain", polling=100)
    page.wait_for_selector("#run[disabled]")
    page.wait_for_timeout(700)
    assert model.open_streams == 3
    assert page.is_enabled("#stop")
    assert page.is_disabled("#run")
    page.keyboard.press("Escape")
    wait_done(page)
    begin(page, "a story")
    wait_done(page)
    page.uncheck("#panes label:has-text('EAGLE3') input")
    page.click("#preset-3")  # at a temperature that the model refuses
    page.wait_for_selector("#preset-why:has-text('costs more than it brings')")
    page.click("#run")
    page.wait_for_selector(".toast-body:has-text('too hot')")
    wait_done(page)
    page.wait_for_timeout(300)
    assert len(settled) == 4
    assert len(set(settled)) == 4


def test_a_full_queue_is_said_in_words_that_help(browser, monkeypatch):
    """Whoever comes too late should know that nothing is lost, and what to do."""
    monkeypatch.setattr(layout, "QUEUE_SIZE", 0)
    with serve(fake_engine()) as url, closing(browser.new_page()) as page:
        page.goto(url)
        page.wait_for_selector(".dart-status[data-state=ready]")
        page.fill("#prompt textarea", "a story")
        page.click("#run")
        page.wait_for_selector(f".toast-body:has-text('{queue_full.SENTENCE}')")
        assert page.input_value("#prompt textarea") == "a story"
        assert page.is_enabled("#run")


def test_a_failed_pane_leaves_the_others_and_the_page_usable(opened, url):
    """One head's error is its pane's; it must not lock the buttons."""
    page = opened(url)
    begin(page, "break eagle3")
    wait_done(page)
    foot = page.locator('.race-pane[data-decoder="eagle3"] .race-pane-foot')
    assert "ran out of <i>memory</i>" in foot.inner_text()
    assert STORY.strip() in text(page, "dart")
    assert page.locator(".toast-body").count() == 0
    begin(page, "a story")
    wait_done(page)
    assert "memory" not in foot.inner_text()


def test_a_second_visitor_is_told_to_wait_until_the_first_leaves(opened, url, model):
    """A closed tab must free the model; before that, the waiting must be visible."""
    first, second = opened(url), opened(url)
    begin(first, "endless")
    wait_text(first)
    begin(second, "a story")
    second.wait_for_selector("#queue .progress-text:has-text('queue')")
    assert "Waiting for a turn" in second.inner_text("#race")
    assert model.open_streams == 3
    first.close()
    wait_done(second)
    assert STORY.strip() in text(second, "baseline")


def test_a_visitor_who_waits_can_leave_the_queue(opened, url, model):
    """Stop works on what has not begun as well."""
    first, second = opened(url), opened(url)
    begin(first, "endless")
    wait_text(first)
    begin(second, "a story")
    second.wait_for_selector("#queue .progress-text:has-text('queue')")
    second.click("#stop")
    wait_done(second)
    assert "stopped before it began" in second.inner_text("#race")
    assert model.open_streams == 3
    first.close()
    while model.open_streams:
        time.sleep(0.01)


def test_hostile_output_stays_text(opened, url):
    """Model output is text: in HTML or a template it would run in the visitor's browser."""
    page = opened(url)
    begin(page, "hostile <img src=x onerror=\"document.body.setAttribute('data-pwned', 5)\"> ${1}")
    wait_done(page)
    for name in PANES:
        assert HOSTILE.strip() in text(page, name)
    assert page.get_attribute("body", "data-pwned") is None
    assert page.locator("#race img, #race script").count() == 0


def test_only_the_panes_that_were_chosen_run(opened, url):
    """Any subset of the decoders is a race, also back to back."""
    page = opened(url)
    page.uncheck("#panes label:has-text('EAGLE3') input")
    page.check("#mode label:has-text('Back to back') input")
    begin(page, "a story")
    wait_text(page, "dart")
    wait_done(page)
    assert STORY.strip() in text(page, "baseline")
    assert "Once" not in text(page, "eagle3")
    page.uncheck("#panes label:has-text('DART') input")
    page.uncheck("#panes label:has-text('Baseline') input")
    page.click("#run")
    page.wait_for_selector(".toast-body:has-text('at least one decoder')")
    assert page.is_enabled("#run")


def test_an_empty_prompt_is_refused_and_the_page_goes_on(opened, url):
    """A click on Run is the first thing a visitor does."""
    page = opened(url)
    page.fill("#prompt textarea", "")
    page.click("#run")
    page.wait_for_selector(".toast-body:has-text('The prompt is empty')")
    begin(page, "a story")
    wait_done(page)


def test_presets_fill_in_the_form_and_say_why(opened, url):
    """A prompt without a word about what to look for teaches nothing."""
    page = opened(url)
    page.click("#preset-0")
    page.wait_for_function("document.querySelector('#prompt textarea').value.includes('Python')")
    page.click("#preset-3")
    page.wait_for_selector("#preset-why:has-text('costs more than it brings')")
    page.click("#race-options button:has-text('Settings')")
    page.wait_for_selector("#settings.open")
    assert page.input_value("#temperature input[type=number]") == "2"
    assert page.get_attribute("#max-tokens input[type=range]", "max") == "2048"


def test_a_link_brings_the_form_along(opened, url):
    """A race worth showing is one that can be sent."""
    fields = {
        "prompt": "a story & more <b>", "decoders": "dart,baseline", "mode": "back_to_back",
        "temperature": "0.5", "seed": "7", "ngram": "context", "score": "upstream",
    }  # fmt: skip
    page = opened(f"{url}?{urlencode(fields)}", permissions=["clipboard-read", "clipboard-write"])
    page.wait_for_function(
        "document.querySelector('#prompt textarea')?.value === 'a story & more <b>'"
    )
    page.wait_for_selector("#panes label:has-text('EAGLE3'):not(.selected)")
    page.click("#copy-link")
    page.wait_for_selector("#copy-link[data-link]")
    link = page.get_attribute("#copy-link", "data-link")
    assert page.evaluate("navigator.clipboard.readText()") == link
    copied = {name: values[0] for name, values in parse_qs(urlsplit(link).query).items()}
    assert {name: copied[name] for name in fields} == fields
    page.click("#run")
    page.wait_for_selector("#stop:not([disabled])")
    wait_done(page)
    assert "Once" not in text(page, "eagle3")
    assert STORY.strip() in text(page, "baseline")


def test_a_bad_link_is_followed_as_far_as_it_goes(opened, url):
    """A typing error in a link must not cost the rest of it, nor run as code."""
    evil = "<img src=x onerror=document.body.setAttribute('data-pwned',6)>"
    query = urlencode({"prompt": "a story", "temperature": "hot", "decoders": evil, "seed": "3"})
    page = opened(f"{url}?{query}")
    page.wait_for_selector("#race :text('temperature=hot')")
    assert page.input_value("#prompt textarea") == "a story"
    assert page.get_attribute("body", "data-pwned") is None
    assert page.locator("#panes label.selected").count() == 3


def test_a_phone_s_width_is_enough(opened, url):
    """Half of the visitors hold a phone."""
    page = opened(url)
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_timeout(300)
    for selector in ("#prompt", "#run", "#panes", "#mode", "#copy-link"):
        box = page.locator(selector).bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 391, selector
