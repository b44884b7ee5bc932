"""The race in the browser, one component: panes, counters, lanes, the tree, replay and files.

Its value only grows, so that Gradio sends what was appended and no more:

    {"run": number of the race, "state": "idle" | "waiting" | "running" | "finished",
     "lines": the trace so far, JSON lines, each ended by a newline, "note": a sentence or ""}

A value with another `run` is another race. What the visitor does with it, from the slider to an
imported file, happens in the page (static/race) and comes to no server.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import gradio as gr

from app.scripts import script

_STATIC = Path(__file__).parent / "static"
_SCHEMA = Path(__file__).with_name("trace.schema.json")


def race_view(value: dict[str, Any], *, elem_id: str = "race") -> gr.HTML:
    """The component; needs static/race.css on the page."""
    return gr.HTML(
        value,
        html_template='<div class="dart-race"></div>',
        js_on_load=script(_STATIC / "race" / "main.js"),
        apply_default_css=False,
        elem_id=elem_id,
        plotly=_serve_plotly(),
        schema=json.loads(_SCHEMA.read_text("utf-8")),
    )


def _serve_plotly() -> str | None:
    """Where the browser finds plotly.js, relative to the page; None where it is not installed.

    The whole installed package rather than gr.Plot, which builds a new plot for every figure.
    """
    found = importlib.util.find_spec("plotly")
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).parent / "package_data" / "plotly.min.js"
    if not path.is_file():
        return None
    gr.set_static_paths([path])
    return "gradio_api/file=" + quote(path.resolve().as_posix())
