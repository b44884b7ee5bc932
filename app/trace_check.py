"""Whether something is a trace: every field, by the schema, and what no schema can say."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from app.schema import Schema, problem
from dart.errors import DartError

SCHEMA_FILE = Path(__file__).with_name("trace.schema.json")


class TraceError(DartError, ValueError):
    """What was handed in is no trace, or not one that can be shown."""


@lru_cache(maxsize=1)
def schema() -> Schema:
    """The document that describes a trace file (JSON Schema, draft 2020-12)."""
    return json.loads(SCHEMA_FILE.read_text("utf-8"))


def check_trace(trace: Any) -> None:
    """Raise TraceError, naming the first field that is wrong, unless this is a trace file."""
    found = problem(trace, schema()) or _order_problem(trace) or _tree_problem(trace)
    if found is not None:
        raise TraceError(f"This is not a trace that can be shown: {found}.")


def _order_problem(trace: dict[str, Any]) -> str | None:
    running, time = set(trace["decoders"]), 0.0
    has_summary = False
    for index, event in enumerate(trace["events"]):
        at = f"events[{index}]"
        if has_summary:
            return f"{at}: nothing may come behind the summary"
        if event["kind"] == "summary":
            has_summary = True
            continue
        if event["decoder"] not in running:
            return f"{at}: {event['decoder']!r} does not run, or has ended before"
        if event["t"] < time:
            return f"{at}.t: {event['t']} comes after {time}; expected events in order"
        time = event["t"]
        if event["kind"] == "end":
            running.remove(event["decoder"])
        elif event["accept"] > len(event["tokens"]):
            return f"{at}.accept: {event['accept']} of {len(event['tokens'])} tokens"
    return None


def _tree_problem(trace: dict[str, Any]) -> str | None:
    for index, event in enumerate(trace["events"]):
        tree = event.get("tree")
        if tree is None:
            continue
        at, nodes = f"events[{index}].tree", len(tree["ids"])
        for name, column in tree.items():
            if name != "path" and column is not None and len(column) != nodes:
                return f"{at}.{name}: {len(column)} entries for {nodes} nodes"
        for node, parent in enumerate(tree["parents"]):
            if not (parent == -1 if node == 0 else 0 <= parent < node):
                return f"{at}.parents[{node}]: {parent} is no earlier node"
        parents = [tree["parents"][node] for node in tree["path"] if node < nodes]
        if parents != [-1, *tree["path"][:-1]]:
            return f"{at}.path: {tree['path']} does not lead down from the root"
    return None
