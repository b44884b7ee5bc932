"""RunStatistics against numbers worked out by hand."""

from __future__ import annotations

import pytest

from dart.decode import Step
from dart.stats import RunStatistics, is_loop
from tests.support import make_tree

CHAIN = make_tree([5, 6, 7], [-1, 0, 1])  # two drafted levels
ROOT = make_tree([5], [-1])


def steps() -> list[Step]:
    """A prefill, both drafts accepted, none accepted, an EOS as the second accepted draft."""
    return [
        Step([5], seconds={"prefill": 1.0}),
        Step([6, 7, 8], 2, CHAIN, seconds={"draft": 0.1, "search": 0.1, "verify": 0.3}),
        Step([9], 0, ROOT, seconds={"draft": 0.1, "search": 0.1, "verify": 0.3}),
        Step([6, 2], 2, CHAIN, seconds={"draft": 0.2, "verify": 0.8}, finish_reason="eos"),
    ]


def test_counts_and_tau():
    """Prevents a tau that counts the prefill's token or a bonus token never emitted."""
    statistics = RunStatistics(steps())
    assert statistics.tokens == [5, 6, 7, 8, 9, 6, 2]
    assert statistics.accept_lengths == [2, 0, 2]
    assert statistics.forwards == 3
    assert statistics.mean_tree_size == pytest.approx((2 + 0 + 2) / 3)
    assert statistics.tau == pytest.approx(6 / 3)  # not (3 + 1 + 3) / 3: EOS took the bonus's place
    assert statistics.finish_reason == "eos"


def test_rates_are_of_decoding_alone():
    """Prevents tokens/s that a long prompt slows down or the prefill's token speeds up."""
    statistics = RunStatistics(steps())
    assert statistics.decode_seconds == pytest.approx(2.0)
    assert statistics.tokens_per_second == pytest.approx(6 / 2.0)
    seconds = statistics.seconds_by_stage()
    assert list(seconds) == ["prefill", "decode", "draft", "search", "verify"]
    assert seconds["prefill"] == 1.0
    assert seconds["decode"] == pytest.approx(
        seconds["draft"] + seconds["search"] + seconds["verify"]
    )


def test_a_stage_of_unknown_name_counts_as_decoding():
    """Prevents a new stage of the loop from vanishing out of tokens/s."""
    statistics = RunStatistics([Step([1]), Step([2], 0, ROOT, seconds={"verify": 1, "copy": 1})])
    assert statistics.decode_seconds == 2
    assert statistics.seconds_by_stage()["copy"] == 1


def test_histogram_and_acceptance_by_depth():
    """Prevents histograms shifted by one, and rates over forwards whose tree was too shallow."""
    statistics = RunStatistics(steps())
    assert statistics.histogram == [1, 0, 2]
    assert statistics.acceptance_by_depth == [1.0, 1.0]  # the root-only tree reached no depth
    statistics.add(Step([6, 9], 1, CHAIN))
    assert statistics.acceptance_by_depth == [1.0, pytest.approx(2 / 3)]


def test_nothing_decoded_has_no_rates():
    """Prevents a division by zero where the first token already ends the text."""
    statistics = RunStatistics([Step([2], seconds={"prefill": 1.0}, finish_reason="eos")])
    assert statistics.tau is None
    assert statistics.mean_tree_size is None
    assert statistics.tokens_per_second is None
    assert statistics.histogram == []
    assert statistics.acceptance_by_depth == []
    assert RunStatistics().as_dict()["tokens"] == []


def test_merge_equals_adding_all_steps():
    """Prevents totals of a benchmark that differ from those of its texts."""
    merged = RunStatistics(steps())
    merged.merge(RunStatistics(steps()))
    together = RunStatistics([*steps(), *steps()])
    assert vars(merged) == vars(together)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([9, 8] + [1, 2, 3] * 8, True),
        ([*([7, 8, 9] * 8), 2], True),  # the EOS behind it does not hide it
        ([5] * 24, True),
        ([5] * 23, False),  # too short to be sure
        ([4, *[5] * 40, 6], True),  # it left the loop, but late
        (list(range(16)) * 4, True),
        (list(range(16)) * 3, False),  # three turns may be a list
        (list(range(25)) * 6, False),  # longer than what counts as going in circles
        ([1, 2, 3] * 3 + list(range(30)), False),
        ([], False),
    ],
)
def test_loops(tokens, expected):
    """Prevents degenerate texts from being counted as ordinary ones, and lists as degenerate."""
    assert is_loop(tokens) is expected
