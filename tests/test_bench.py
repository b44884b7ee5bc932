"""The benchmark's figures from hand-written Steps, its order of runs, its files."""

from __future__ import annotations

import itertools
import json

import pytest
import torch

from dart.bench.prompts import read_prompts
from dart.bench.report import provenance, summarize, table
from dart.bench.run import Run, rotated, run_benchmark, stock_generate
from dart.bench.variants import Variant, read_variant
from dart.config import GenerationConfig
from dart.decode import Step, generate
from dart.drafter import NoDrafter
from dart.errors import ConfigError
from dart.stats import RunStatistics
from dart.target import TargetModel
from tests.conftest import tiny_model
from tests.support import make_tree


def plain(tokens: list[int], seconds: float = 1.0) -> RunStatistics:
    """A text decoded plainly, so many seconds a token."""
    steps = [Step([tokens[0]], seconds={"prefill": 0.5})]
    pairs = itertools.pairwise(tokens)
    steps += [Step([t], 0, make_tree([p], [-1]), seconds={"verify": seconds}) for p, t in pairs]
    return RunStatistics(steps)


def drafted(tokens: list[int], seconds: float = 1.0) -> RunStatistics:
    """The same, two tokens a forward: one drafted, one bonus. An odd number of tokens."""
    steps = [Step([tokens[0]], seconds={"prefill": 0.5})]
    for at in range(1, len(tokens), 2):
        tree = make_tree(tokens[at - 1 : at + 1], [-1, 0])
        spent = {"draft": seconds / 4, "search": 0.0, "verify": seconds * 3 / 4}
        steps.append(Step(tokens[at : at + 2], 1, tree, seconds=spent))
    return RunStatistics(steps)


def run(prompt: int, decoder: str, statistics: RunStatistics, repeat: int = 0) -> Run:
    """A run without an outside clock."""
    return Run(prompt, repeat, decoder, statistics, 0.0)


TEXT = [4, 8, 15, 16, 23]
CIRCLES = [1, 2, *[7, 8, 9] * 20, 7]


def test_speedup_tau_and_stages():
    """Prevents speed-ups turned upside down and figures of one decoder in another's entry."""
    runs = [run(0, "baseline", plain(TEXT)), run(0, "dart", drafted(TEXT))]
    summary = summarize(runs, ["a"])
    base, dart = summary["decoders"]["baseline"], summary["decoders"]["dart"]
    assert base["tau"] == 1
    assert base["speedup"] == 1
    assert dart["tau"] == 2
    assert (base["mean_tree_size"], dart["mean_tree_size"]) == (0, 1)
    assert dart["speedup"] == pytest.approx(2)
    assert dart["tokens_per_second"] == pytest.approx(2)
    assert dart["accept_length_histogram"] == [0, 2]
    assert dart["seconds"]["decode"] == pytest.approx(2)
    assert dart["seconds"]["draft"] == pytest.approx(0.5)
    assert dart["identical_to_baseline"] is True
    assert dart["differing_prompts"] == 0
    assert dart["first_difference"] is None
    json.dumps(summary)
    assert "yes" in table(summary)


def test_total_speedup_is_of_seconds_not_of_prompts():
    """Prevents a mean over prompts, in which a short text weighs as much as a long one."""
    long = list(range(10, 41))
    runs = [
        *(run(0, "baseline", plain(TEXT)), run(0, "dart", drafted(TEXT, 0.5))),
        *(run(1, "baseline", plain(long)), run(1, "dart", drafted(long, 2.0))),
    ]
    entry = summarize(runs, ["a", "b"])["decoders"]["dart"]
    assert entry["speedup"] == pytest.approx((4 + 30) / (4 / 2 * 0.5 + 30 / 2 * 2.0))
    spread = entry["speedup_by_prompt"]
    assert (spread["min"], spread["max"]) == (pytest.approx(1), pytest.approx(4))


def test_a_difference_is_found_and_located():
    """Prevents a benchmark that praises a decoder for another text."""
    other = [*TEXT[:3], 99, TEXT[4]]
    runs = [
        *(run(0, "baseline", plain(TEXT)), run(0, "dart", drafted(TEXT))),
        *(run(1, "baseline", plain(TEXT)), run(1, "dart", drafted(other))),
    ]
    entry = summarize(runs, ["first", "second"])["decoders"]["dart"]
    assert entry["identical_to_baseline"] is False
    assert entry["differing_prompts"] == 1
    assert entry["first_difference"] == {
        "prompt": "second",
        "position": 3,
        "baseline_token": 16,
        "token": 99,
    }


def test_a_shorter_text_differs_where_it_ends():
    """Prevents a text that is a prefix of the baseline's from passing as identical."""
    runs = [run(0, "baseline", plain(TEXT)), run(0, "dart", drafted(TEXT[:3]))]
    entry = summarize(runs, ["a"])["decoders"]["dart"]
    assert entry["first_difference"]["position"] == 3
    assert entry["first_difference"]["token"] is None


def test_a_baseline_that_is_not_reproducible_says_so():
    """Prevents a machine that decodes another text each time from being called identical."""
    runs = [run(0, "baseline", plain(TEXT)), run(0, "baseline", plain(TEXT[:4]), repeat=1)]
    assert summarize(runs, ["a"])["decoders"]["baseline"]["identical_to_baseline"] is False


def test_without_a_baseline_nothing_is_claimed():
    """Prevents a made-up speed-up of 1 where nothing was compared."""
    summary = summarize([run(0, "dart", drafted(TEXT))], ["a"])
    entry = summary["decoders"]["dart"]
    assert entry["speedup"] is None
    assert entry["identical_to_baseline"] is None
    assert "dart" in table(summary)


def test_loops_are_counted_apart():
    """Prevents a tau that is high only because the texts go in circles."""
    runs = [
        *(run(0, "baseline", plain(TEXT)), run(0, "dart", plain(TEXT))),
        *(run(1, "baseline", plain(CIRCLES)), run(1, "dart", drafted(CIRCLES))),
    ]
    summary = summarize(runs, ["a", "b"])
    entry = summary["decoders"]["dart"]
    assert summary["looping_prompts"] == ["b"]
    assert entry["tau"] > 1.8
    assert entry["without_loops"]["tau"] == 1
    assert entry["without_loops"]["prompts"] == 1
    assert "loops" in table(summary)


def test_tasks_have_figures_of_their_own():
    """Prevents a decoder that loses on one kind of prompt from hiding it in the mean."""
    runs = [
        *(run(0, "baseline", plain(TEXT)), run(0, "dart", plain(TEXT))),
        *(run(1, "baseline", plain(TEXT)), run(1, "dart", drafted(TEXT))),
    ]
    summary = summarize(runs, ["a", "b"], ["write", ""])
    by_task = summary["decoders"]["dart"]["by_task"]
    assert by_task["write"]["tau"] == 1
    assert by_task[""]["tau"] == 2
    assert by_task["write"]["prompts"] == by_task[""]["prompts"] == 1
    assert by_task[""]["speedup"] == pytest.approx(2)
    assert "write (1 prompts): dart 1.00x at tau 1.00" in table(summary)
    assert "by_task" not in summarize(runs, ["a", "b"], ["write"] * 2)["decoders"]["dart"]


def test_all_texts_in_loops_leave_no_figures():
    """Prevents a division by zero where nothing is left without loops."""
    entry = summarize([run(0, "baseline", plain(CIRCLES))], ["a"])["decoders"]["baseline"]
    assert entry["without_loops"] == {
        "prompts": 0,
        "tokens_per_second": None,
        "tau": None,
        "mean_tree_size": None,
        "speedup": None,
    }


def test_decoders_take_turns():
    """Prevents one decoder from always running first, on a cold or a throttled machine."""
    calls: list[tuple[str, int]] = []

    def decoder(name):
        def decode(ids, max_new_tokens):
            calls.append((name, max_new_tokens))
            yield Step([ids[0]], seconds={"prefill": 0.0})

        return decode

    decoders = {name: decoder(name) for name in "abc"}
    told: list[tuple[str, float, float, str]] = []
    runs = run_benchmark(
        decoders,
        [[1], [2]],
        max_new_tokens=50,
        repeats=2,
        progress=lambda *words: told.append(words),
    )
    assert calls[:3] == [("a", 32), ("b", 32), ("c", 32)]  # the warm-up, shorter
    assert [name for name, _ in calls[3:]] == list("abc" + "bca" + "bca" + "cab")
    assert {count for _, count in calls[3:]} == {50}
    assert [(r.prompt, r.repeat) for r in runs[::3]] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert {stage for stage, *_ in told} == {"decoding"}
    assert [(done, total) for _, done, total, _ in told] == [(done, 12) for done in range(13)]
    assert [detail[:7] for *_, detail in told[:3]] == ["", "a: tau ", "b: tau "]
    assert rotated(["x", "y"], 3) == ["y", "x"]


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("eagle3", Variant("eagle3")),
        ("dart", Variant("dart")),
        ("dart:none", Variant("dart", ngram="none")),
        ("dart:upstream", Variant("dart", score="upstream")),
        ("dart:both:fitted", Variant("dart", "both", "fitted")),
        ("dart:static:upstream:32", Variant("dart", "static", "upstream", 32)),
        ("dart:8", Variant("dart", tree_size=8)),
    ],
)
def test_a_decoder_s_name_says_its_settings(name, variant):
    """Prevents two decoders under two names with one setting."""
    assert read_variant(name) == variant
    flags = {"ngram": "context", "score": None, "tree_size": 60, "seed": 3}
    options = variant.options(flags)
    assert options["seed"] == 3
    assert options["ngram"] == (variant.ngram or "context")
    assert options["score"] == variant.score
    assert options["tree_size"] == (variant.tree_size or 60)


@pytest.mark.parametrize(
    "name",
    ["dart:", "dart:nope", "dart:static:", "dart:static:both", "dart:upstream:static",
     "dart:8:static", "dart:-1", "dart:1e3", "eagle3:8", "baseline:none", ":static"],
)  # fmt: skip
def test_a_name_that_means_nothing_is_refused(name):
    """Prevents a misspelt setting from being measured as the default."""
    with pytest.raises(ConfigError, match="--decoders names"):
        read_variant(name)


def test_stock_generate_is_our_baseline():
    """Prevents an outside check that times another text, other settings or no prefill."""
    model = tiny_model("qwen3")
    target = TargetModel(model)
    prompt = [5, 9, 11]
    config = GenerationConfig(max_new_tokens=20, eos_token_ids=(3,))
    ours = RunStatistics(generate(target, NoDrafter(), prompt, config))
    with torch.inference_mode():
        stock = RunStatistics(stock_generate(model, (3,))(prompt, 20))
    assert stock.tokens == ours.tokens
    assert stock.tau == ours.tau
    assert stock.seconds["prefill"] > 0
    assert stock.decode_seconds > 0


def test_prompts_are_read(tmp_path):
    """Prevents prompts lost to blank lines, ids or messages."""
    path = tmp_path / "p.jsonl"
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    lines = [{"prompt": "one"}, {"id": "x", "task": "code", "messages": chat}]
    path.write_text("\n\n".join(json.dumps(line) for line in lines) + "\n", encoding="utf-8")
    first, second = read_prompts(path)
    assert first.messages == ({"role": "user", "content": "one"},)
    assert (first.name, second.name, second.task) == ("1", "x", "code")
    assert list(second.messages) == chat
    assert read_prompts(path, limit=1) == [first]


@pytest.mark.parametrize(
    "line",
    ["{", "[]", "{}", '{"prompt": 3}', '{"messages": []}', '{"messages": [{"role": "user"}]}'],
)
def test_a_bad_prompt_is_named_by_its_line(tmp_path, line):
    """Prevents a traceback, or a hunt for one bad line among a thousand."""
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "good"}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="line 2: "):
        read_prompts(path)


def test_no_prompts_is_an_error(tmp_path):
    """Prevents a benchmark of nothing."""
    (tmp_path / "p.jsonl").write_text("\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="no prompts"):
        read_prompts(tmp_path / "p.jsonl")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_prompts(tmp_path / "absent.jsonl")


def test_provenance_is_complete():
    """Prevents results that nobody can trace back to a commit, a command and a machine."""
    made = provenance(["bench", "--prompts", "my file.jsonl"])
    assert made["command"] == "python -m dart bench --prompts 'my file.jsonl'"
    assert {"commit", "dirty", "date", "machine", "threads", "versions"} <= made.keys()
    assert {"cpu", "cores", "gpus"} <= made["machine"].keys()
    assert {"dart", "python", "torch", "transformers"} <= made["versions"].keys()
    if made["commit"] is not None:
        assert len(made["commit"]) == 40
        assert isinstance(made["dirty"], bool)
    json.dumps(made)
