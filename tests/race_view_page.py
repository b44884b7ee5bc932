"""A page that streams made-up races at true speed: to work on the looks, and for the tests.

`python -m tests.race_view_page [port]`
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from app.layout import launch_options
from app.race_view import race_view
from tests.race_traces import Race, hostile_race, make_race

RACES = {
    "race": lambda: make_race(),
    "hostile": hostile_race,
    "differs": lambda: make_race(differ_at=40, tokens=80, fail="dart", temperature=0.7),
    "two": lambda: make_race(decoders=("dart", "eagle3"), tokens=60),
    "long": lambda: make_race(tokens=1200),
}

OPTIONS = launch_options()


def stream(race: Race, run: int, hz: float = 10.0) -> Iterator[dict[str, Any]]:
    """Values of the component while the race goes on at its own speed."""
    lines, times = [json.dumps(line) + "\n" for line in race.lines], race.times()
    began, sent, text = time.monotonic(), 0, ""
    yield {"run": run, "state": "waiting", "lines": "", "note": "Waiting for a turn."}
    while sent < len(lines):
        time.sleep(1 / hz)
        now = time.monotonic() - began
        while sent < len(lines) and times[sent] <= now:
            text += lines[sent]
            sent += 1
        yield {"run": run, "state": "running", "lines": text, "note": ""}
    yield {"run": run, "state": "finished", "lines": text, "note": ""}


def build_page(**races: Callable[[], Race]) -> gr.Blocks:
    """One button per race; each run has a number of its own."""
    counter = iter(range(1, 1_000_000))
    idle = {"run": 0, "state": "idle", "lines": "", "note": ""}
    with gr.Blocks(title="Race", analytics_enabled=False, fill_width=True) as demo:
        with gr.Row():
            buttons = {
                name: gr.Button(name, elem_id=f"run-{name}", size="sm") for name in races or RACES
            }
        view = race_view(idle)
        for name, button in buttons.items():
            make = (races or RACES)[name]

            def run(make: Callable[[], Race] = make) -> Iterator[dict[str, Any]]:
                yield from stream(make(), next(counter))

            button.click(run, None, view, show_progress="hidden", concurrency_limit=None)
    return demo


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else None
    build_page().launch(server_name="127.0.0.1", server_port=port, quiet=True, **OPTIONS)
