"""What the `ngram` commands have in common: flags of the values and memory, facts of a store."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dart.cli.common import memory_size
from dart.ngram_build.config import DEFAULT_MEMORY, MIN_MEMORY

if TYPE_CHECKING:
    from dart.ngram import NgramStore


def add_precision(action: argparse.ArgumentParser) -> None:
    """Add --exact and --bits."""
    action.add_argument("--exact", action="store_true", help="keep counts, not probabilities")
    action.add_argument(
        "--bits", type=int, default=8, help="of a rounded probability, 2 to 8 (default 8)"
    )


def add_memory(action: argparse.ArgumentParser, what_for: str) -> None:
    """Add --memory, a bound in bytes."""
    action.add_argument(
        "--memory",
        type=memory_size,
        default=DEFAULT_MEMORY,
        metavar="SIZE",
        help=f"{what_for} (such as 512M; at least {MIN_MEMORY >> 20}M, default "
        f"{DEFAULT_MEMORY >> 30}G)",
    )


def describe(store: NgramStore) -> dict[str, Any]:
    """What is known of a store without reading it."""
    return {
        "path": str(store.path),
        "order": store.order,
        "num_nodes": store.num_nodes,
        "num_bytes": store.num_bytes,
        "exact": store.is_exact,
    }


def show(store: NgramStore, *, as_json: bool, more: Mapping[str, Any] | None = None) -> None:
    """Print what is known of a store; as one JSON object with what else is known."""
    facts = describe(store) | dict(more or {})
    levels = store.level_sizes()
    if as_json:
        print(json.dumps(facts | {"levels": [asdict(level) for level in levels]}))
        return
    size, nodes = facts["num_bytes"], max(facts["num_nodes"], 1)
    kind = "counts" if store.is_exact else "rounded probabilities"
    print(
        f"{facts['path']}: order {facts['order']}, {facts['num_nodes']:,} n-grams with {kind}, "
        f"{size / 2**20:.1f} MiB, {size / nodes:.2f} bytes each"
    )
    print(f"{'length':>6} {'n-grams':>14} {'tokens':>8} {'children':>8} {'values':>8}  bytes each")
    for length, level in enumerate(levels, start=1):
        parts = (level.tokens, level.children, level.values)
        shares = " ".join(f"{part / max(level.nodes, 1):8.3f}" for part in parts)
        numbering = "tokens numbered by the suffix's" if level.is_remapped else "plain tokens"
        print(f"{length:6} {level.nodes:14,} {shares}  {level.value_bits}-bit values, {numbering}")
