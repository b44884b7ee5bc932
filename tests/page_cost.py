"""What the page costs: a race that a browser shows, against the same race without a page.

    python -m tests.page_cost --prompts 40 --json assets/results/page_cost.json

Every prompt is decoded in three ways, which take turns, so that a machine that slows down or speeds
up favours none of them:

    page   the race in Chromium, which draws the panes and the tree while it runs
    race   the same race while nobody looks
    bench  what `python -m dart bench` runs: one decoder after the other, each to its end

The page's app is a process of its own, as visitors meet it; the other two share another one, with
the same model, settings and threads. Of the two, one is idle while the other runs. All of it, the
browser included, is on one machine.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics as st
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import pytest

from app.app import parser as app_parser
from app.engine import Engine
from app.loading import load
from app.settings import Settings
from dart.bench.prompts import read_prompts
from dart.bench.report import provenance, spread
from dart.bench.run import rotated, run_benchmark
from dart.cli.common import add_json_argument, write_json
from dart.stats import RunStatistics
from tests.app_process import ROOT, running_app
from tests.browser import chromium, read_trace, ready_page

SCHEMA = 1
PROMPTS = ROOT / "assets" / "demo" / "prompts" / "heldout.jsonl"
WAYS = ("page", "race", "bench")
VIEWPORT = {"width": 1440, "height": 1500}  # all of the race in view: what is not, costs no paint

Run = dict[str, Any]  # {"tokens_per_second": {decoder: rate}, "tokens": {decoder: ids}, ...}


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    flags = argparse.ArgumentParser(
        prog="python -m tests.page_cost",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    flags.add_argument("--prompts", type=int, default=40, metavar="N", help="of the held-out ones")
    flags.add_argument("--max-new-tokens", type=int, default=256, metavar="N")
    add_json_argument(flags)
    return flags


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; the exit code, 1 where a text was not the same every time."""
    argv = sys.argv[1:] if argv is None else argv
    args = parser().parse_args(argv)
    if args.prompts < 1 or args.max_new_tokens < 2:
        parser().error("--prompts takes 1 or more, --max-new-tokens 2 or more")
    prompts = evenly(
        [prompt.messages[0]["content"].strip() for prompt in read_prompts(PROMPTS)], args.prompts
    )
    load_before = os.getloadavg()
    flags = ("--max-new-tokens", str(args.max_new_tokens))
    try:
        with (
            running_app(*flags) as app,
            watched_page(app.url) as page,
            without_page(args.max_new_tokens, argv) as (facts, ask),
        ):
            ways = {"page": partial(race_on, page), **{w: partial(ask, w) for w in WAYS[1:]}}
            for way in WAYS:  # nothing is timed that is done for the first time
                ways[way](prompts[0])
            runs = []
            for index, prompt in enumerate(prompts):
                runs.append({way: ways[way](prompt) for way in rotated(WAYS, index)})
                print(f"\r{index + 1} of {len(prompts)} prompts", end="", file=sys.stderr)
            print(file=sys.stderr)
            browser = page.context.browser.version
    except pytest.skip.Exception as reason:
        print(f"error: {reason}", file=sys.stderr)
        return 1
    result = {
        "schema": SCHEMA,
        **summarize(runs),
        "settings": {
            "prompts": len(prompts),
            "of": PROMPTS.relative_to(ROOT).as_posix(),
            "max_new_tokens": args.max_new_tokens,
            "mode": "race",
            "decoders": facts["decoders"],
            "browser": f"Chromium {browser}, headless, software rendering",
            "viewport": VIEWPORT,
        },
        "load_average": {"before": load_before, "after": os.getloadavg()},
        "provenance": facts["provenance"],
        "prompts": [_record(prompt, run) for prompt, run in zip(prompts, runs, strict=True)],
    }
    print(table(result))
    if args.json:
        write_json(args.json, result)
    return 0 if result["identical_texts"] else 1


def evenly(items: list[str], count: int) -> list[str]:
    """So many of the items, from all over the list."""
    count = min(count, len(items))
    return [items[index * len(items) // count] for index in range(count)]


# --- with a page


@contextmanager
def watched_page(url: str) -> Iterator[Any]:
    """The race page in Chromium, when the model is there."""
    with chromium() as browser:
        yield ready_page(browser, url, VIEWPORT)


def race_on(page: Any, prompt: str) -> Run:
    """A race on the page, as the page recorded it, and how often it was drawn."""
    drawn = "document.querySelector('.dart-race').drawn()"
    before = page.evaluate(drawn)["run"]
    page.fill("#prompt textarea", prompt)
    page.click("#run")
    page.wait_for_function(
        f"""() => {drawn}.run !== {json.dumps(before)}
            && document.querySelector('.dart-race').dataset.state === 'finished'
            && !document.getElementById('run').disabled""",
        polling=250,  # not with every frame: the page is being measured
    )
    counts = page.evaluate(drawn)
    events = read_trace(page)["events"]
    ends = {event["decoder"]: event["figures"] for event in events if event["kind"] == "end"}
    summary = events[-1]
    return {
        "tokens_per_second": {name: end["tokens_per_second"] for name, end in ends.items()},
        "tokens": {name: end["tokens"] for name, end in ends.items()},
        "wall_seconds": summary["wall"],
        "overhead": summary["overhead"],
        "pane_draws": counts["panes"],
        "tree_draws": counts["tree"],
    }


# --- without


@contextmanager
def without_page(max_new_tokens: int, argv: Sequence[str]) -> Iterator[tuple[dict[str, Any], Any]]:
    """The model in a process without a page: what is known of it, and `ask(way, prompt)`."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    worker = context.Process(target=_work, args=(theirs, max_new_tokens, list(argv)), daemon=True)
    worker.start()
    theirs.close()  # so that a worker that dies is an error here, not silence

    def ask(way: str, prompt: str) -> Run:
        ours.send((way, prompt))
        return ours.recv()

    try:
        yield ours.recv(), ask
    finally:
        ours.close()
        worker.join(20)
        if worker.is_alive():
            worker.terminate()


def _work(connection: Connection, max_new_tokens: int, argv: Sequence[str]) -> None:
    # By the app's own loader, which decides on how many threads it decodes.
    engine = Engine(partial(load, app_parser().parse_args([])))
    engine.load()
    while engine.status.state == "loading":
        time.sleep(0.05)
    settings = Settings(max_tokens=max_new_tokens)
    connection.send(
        {
            "decoders": list(engine.loaded.model.decoders),
            "provenance": provenance(argv, "tests.page_cost"),
        }
    )
    ways = {"race": _race_unseen, "bench": _bench}
    while True:
        try:
            way, prompt = connection.recv()
        except EOFError:
            return
        ids, _ = engine.prompt_ids([{"role": "user", "content": prompt}], settings.max_tokens)
        connection.send(ways[way](engine, ids, settings))


def _race_unseen(engine: Engine, ids: list[int], settings: Settings) -> Run:
    race = engine.start_race(ids, engine.loaded.model.decoders, "race", settings)
    race.join()
    figures = {name: RunStatistics() for name in engine.loaded.model.decoders}
    busy = {}
    for record in race.records:
        busy[record.decoder] = record.busy
        if record.step is not None:
            figures[record.decoder].add(record.step)
    wall = race.records[-1].wall
    return {
        **_rates(figures),
        "wall_seconds": round(wall, 6),
        "overhead": round(1 - sum(busy.values()) / wall, 6),
    }


def _bench(engine: Engine, ids: list[int], settings: Settings) -> Run:
    loaded = engine.loaded
    options = {**settings.stream_options(), "max_length": loaded.context}

    def decode(name: str, ids: list[int], max_new_tokens: int) -> Any:
        return loaded.model.stream(ids, name, **{**options, "max_new_token_num": max_new_tokens})

    runs = run_benchmark(
        {name: partial(decode, name) for name in loaded.model.decoders},
        [ids],
        max_new_tokens=settings.max_tokens,
        warm_up=0,
    )
    return _rates({run.decoder: run.statistics for run in runs})


def _rates(figures: dict[str, RunStatistics]) -> Run:
    return {
        "tokens_per_second": {name: each.tokens_per_second for name, each in figures.items()},
        "tokens": {name: each.tokens for name, each in figures.items()},
    }


# --- what it comes to


def summarize(runs: Sequence[dict[str, Run]]) -> dict[str, Any]:
    """Figures of all prompts; `runs` holds a prompt's Runs by way.

    A slowdown is a ratio of speeds, 1 where nothing was lost: of the medians over the prompts, and
    the spread of the prompts' own ratios.
    """
    pages = [run["page"] for run in runs]
    wall = sum(page["wall_seconds"] for page in pages)
    texts = [{tuple(t) for way in WAYS for t in run[way]["tokens"].values()} for run in runs]
    return {
        "page": {
            "pane_updates_per_second": sum(page["pane_draws"] for page in pages) / wall,
            "tree_updates_per_second": sum(page["tree_draws"] for page in pages) / wall,
            "wall_seconds": spread([page["wall_seconds"] for page in pages]),
            "overhead": spread([page["overhead"] for page in pages]),
            "overhead_unseen": spread([run["race"]["overhead"] for run in runs]),
        },
        "decoders": {name: _decoder(runs, name) for name in pages[0]["tokens"]},
        "identical_texts": all(len(text) == 1 for text in texts),
    }


def _decoder(runs: Sequence[dict[str, Run]], name: str) -> dict[str, Any]:
    rates = [{way: run[way]["tokens_per_second"][name] for way in WAYS} for run in runs]
    rates = [rate for rate in rates if all(rate.values())]  # a text of one token has no speed
    medians = {way: st.median(rate[way] for rate in rates) for way in WAYS} if rates else None
    figures: dict[str, Any] = {"prompts": len(rates), "tokens_per_second": medians}
    for other in ("bench", "race"):
        figures[f"slowdown_against_{other}"] = medians and {
            "of_medians": medians[other] / medians["page"],
            "by_prompt": spread([rate[other] / rate["page"] for rate in rates]),
        }
    return figures


def _record(prompt: str, run: dict[str, Run]) -> dict[str, Any]:
    counts = {name: len(tokens) for name, tokens in run["page"]["tokens"].items()}
    ways = {way: {k: v for k, v in run[way].items() if k != "tokens"} for way in WAYS}
    return {"prompt": prompt, "tokens": counts, **ways}


def table(result: dict[str, Any]) -> str:
    """The figures for people."""
    page = result["page"]
    lines = [
        f"{result['settings']['prompts']} prompts, "
        f"{page['pane_updates_per_second']:.1f} pane and {page['tree_updates_per_second']:.1f} "
        f"tree updates a second, UI overhead {_quartiles(page['overhead'], '.1%')} "
        f"(without a page {_quartiles(page['overhead_unseen'], '.1%')})",
        f"{'tokens/s':10}{'page':>9}{'race':>9}{'bench':>9}  slowdown against bench, against race",
    ]
    for name, figures in result["decoders"].items():
        if not figures["prompts"]:
            continue
        rates = "".join(f"{figures['tokens_per_second'][way]:9.1f}" for way in WAYS)
        losses = [figures[f"slowdown_against_{way}"] for way in ("bench", "race")]
        words = ", ".join(
            f"{loss['of_medians']:.2f} {_quartiles(loss['by_prompt'], '.2f')}" for loss in losses
        )
        lines.append(f"{name:10}{rates}  {words}")
    if not result["identical_texts"]:
        lines.append("THE TEXTS DIFFER")
    return "\n".join(lines)


def _quartiles(values: dict[str, float], form: str) -> str:
    low, middle, high = (values[key] for key in ("lower_quartile", "median", "upper_quartile"))
    return f"{middle:{form}} [{low:{form}}, {high:{form}}]"


if __name__ == "__main__":
    sys.exit(main())
