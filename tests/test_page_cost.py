"""What is made of measurements of the page, on hand-written ones."""

from __future__ import annotations

import pytest

from tests.page_cost import WAYS, evenly, summarize, table

SETTINGS = {"settings": {"prompts": 3}}


def run(page: float, race: float, bench: float, text: tuple[int, ...] = (1, 2)) -> dict:
    """A prompt decoded three ways by one decoder at these speeds; `text` is what the page got."""
    rates = dict(zip(WAYS, (page, race, bench), strict=True))
    runs: dict = {
        way: {"tokens_per_second": {"dart": rate}, "tokens": {"dart": [1, 2]}, "overhead": 0.25}
        for way, rate in rates.items()
    }
    runs["page"] |= {"tokens": {"dart": [*text]}, "overhead": 0.5}
    runs["page"] |= {"wall_seconds": 2.0, "pane_draws": 18, "tree_draws": 12}
    return runs


def test_a_slowdown_is_one_where_nothing_was_lost_and_more_where_the_page_was_slower():
    """A ratio upside down would praise the page for what it costs."""
    result = summarize([run(100, 150, 200), run(50, 50, 100), run(80, 80, 80)])
    figures = result["decoders"]["dart"]
    assert figures["tokens_per_second"] == {"page": 80, "race": 80, "bench": 100}
    assert figures["slowdown_against_bench"]["of_medians"] == 100 / 80
    assert figures["slowdown_against_bench"]["by_prompt"]["median"] == 2
    assert figures["slowdown_against_race"]["by_prompt"]["max"] == 1.5
    page = result["page"]
    assert (page["pane_updates_per_second"], page["tree_updates_per_second"]) == (9, 6)
    assert (page["overhead"]["median"], page["overhead_unseen"]["median"]) == (0.5, 0.25)
    assert "2.00 [1.50, 2.00]" in table({**result, **SETTINGS})


def test_another_text_is_noticed():
    """A speed of another text is the speed of something else."""
    result = summarize([run(1, 1, 1), run(1, 1, 1, text=(1, 3))])
    assert not result["identical_texts"]
    assert "DIFFER" in table({**result, **SETTINGS})
    assert summarize([run(1, 1, 1)])["identical_texts"]


def test_a_text_without_a_speed_is_left_out():
    """An answer of one token has no time between two tokens."""
    nothing: dict = run(1, 1, 1)
    for way in WAYS:
        nothing[way]["tokens_per_second"]["dart"] = None
    assert summarize([nothing, run(1, 2, 3)])["decoders"]["dart"]["prompts"] == 1
    empty = summarize([nothing])
    assert empty["decoders"]["dart"]["tokens_per_second"] is None
    assert table({**empty, **SETTINGS})


@pytest.mark.parametrize(
    ("count", "expected"), [(2, ["a", "c"]), (4, ["a", "b", "c", "d"]), (9, ["a", "b", "c", "d"])]
)
def test_prompts_come_from_all_over_the_file(count, expected):
    """Prompts of one kind stand together there."""
    assert evenly(["a", "b", "c", "d"], count) == expected
