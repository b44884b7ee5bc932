"""A few visitors at once, on a scripted model: the page's own protocol, and what is made of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from app import layout, queue_full
from tests.browser import serve
from tests.fake_model import STORY, FakeModel, fake_engine
from tests.page_session import PageSession
from tests.visitors import (
    MAX_GROWTH_BYTES,
    WAYS,
    Answer,
    Question,
    Visitor,
    answered_alone,
    late_growth,
    problems,
    questions_of,
    summarize,
    table,
    visit,
)

NAMES = ("Ann", "Bob", "Cleo")


@pytest.fixture(scope="module")
def model() -> FakeModel:
    return FakeModel(delay=0.0)


@pytest.fixture(scope="module")
def url(model: FakeModel) -> Iterator[str]:
    with serve(fake_engine(model)) as url:
        yield url


def test_visitors_at_once_get_their_own_texts(url, model):
    """Another visitor's text, or none, is the worst that can happen to a page."""
    questions = [
        answered_alone(url, questions_of(number, [f"one named {name}"], 400))
        for number, name in enumerate(NAMES)
    ]
    assert [own[0].text for own in questions] == [STORY.replace("dog", name) for name in NAMES]
    answers = visit(url, questions, seconds=0.5)
    assert problems(answers, growth=0) == []
    assert {(each.visitor, each.way) for each in answers} == {
        (number, way) for number in range(len(NAMES)) for way in WAYS
    }
    assert {each.outcome for each in answers} == {"right"}
    assert model.open_streams == 0


@pytest.mark.parametrize("way", WAYS)
def test_another_text_is_wrong_and_an_error_is_no_answer(url, way):
    """A check that finds everything right would be worth nothing."""
    asked = Question("one named Ann", 0.0, 0, 400, STORY.replace("dog", "Bob"))
    with Visitor(0, url, [asked]) as visitor:
        wrong = visitor.ask(way, asked)
        failed = visitor.ask(way, replace(asked, temperature=2.0))
        right = visitor.ask(way, replace(asked, text=STORY.replace("dog", "Ann")))
    assert [each.outcome for each in (wrong, failed, right)] == ["wrong", "failed", "right"]
    assert "Ann" in wrong.detail
    assert "too" in failed.detail
    assert len(problems([wrong, failed, right], growth=0)) == 2


def test_a_full_queue_is_a_refusal(monkeypatch):
    """Who is turned away with a word has lost nothing."""
    monkeypatch.setattr(layout, "QUEUE_SIZE", 0)
    asked = Question("one named Ann", 0.0, 0, 400)
    with serve(fake_engine()) as url, Visitor(0, url, [asked]) as visitor:
        answers = [visitor.ask(way, asked) for way in WAYS]
    assert {answer.outcome for answer in answers} == {"refused"}
    assert problems(answers, growth=0) == ["visitors [0] never got an answer"]
    api, page = "Queue is full! Please try again.", queue_full.SENTENCE
    assert [answer.detail for answer in answers] == [api, api, page, page]


def test_a_page_session_is_the_pages_own(url):
    """What is not done as the page does it says nothing about the page."""
    with PageSession(url) as page:
        race = page.race("a story", panes=["dart", "baseline"], **{"max-tokens": 9})
        assert race["decoders"] == ["dart", "baseline"]
        assert race["settings"]["max_tokens"] == 9
        assert race["state"] == "finished"
        assert len(set(race["texts"].values())) == 1
        assert page.chat("a story") == STORY
        assert page.chat("another story") == STORY, "the chat was not cleared"


def test_the_figures_say_what_went_wrong():
    """A table that hides a lost answer is no check."""
    answers = [
        Answer(0, "generate", 1.0, "right"),
        Answer(1, "race", 3.0, "lost", "nothing came"),
    ]
    figures = summarize(answers)
    assert figures["ways"]["race"]["lost"] == 1
    assert figures["not_right"][0]["detail"] == "nothing came"
    found = problems(answers, growth=MAX_GROWTH_BYTES + 1)
    assert len(found) == 3
    samples = [{"seconds": at, "bytes": held} for at, held in ((0, 1e6), (3, 2e6), (5, 3e6))]
    assert late_growth(samples, 2.5) == 1e6
    memory = {"samples": samples, "late_growth_bytes": 1e6}
    said = table({**figures, "memory": memory, "problems": found, "settings": {"visitors": 2}})
    assert "PROBLEM: 1 answers were lost" in said
    assert "1 MB before, 3 at most, 3 after, +1 since half time" in said
