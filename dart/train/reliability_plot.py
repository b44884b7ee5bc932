"""The reliability diagrams of `reliability.figures` as one SVG: text, no plotting library.

One panel for each choice of n-gram sources: predicted against observed acceptance, a curve a
score. The colours follow the reader's light or dark theme.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

SCORES = {
    "head": "the head's probability",
    "upstream": "upstream's weights",
    "fitted": "fitted",
}
PANELS = {
    "none": "head alone",
    "static": "with the store",
    "context": "with the text's own n-grams",
    "both": "with both",
}
_SIDE, _LEFT, _TOP, _GAP, _BOTTOM = 190, 56, 62, 34, 84  # pixels
_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f; }
.title { font-weight: 600; }
.small { font-size: 11px; fill: #57606a; }
.grid { stroke: #d0d7de; fill: none; }
.true { stroke: #8c959f; stroke-dasharray: 3 3; }
.head { --c: #9a6700; } .upstream { --c: #cf222e; } .fitted { --c: #0969da; }
polyline { fill: none; stroke: var(--c); stroke-width: 1.8; }
circle { fill: var(--c); }
.key { stroke: var(--c); stroke-width: 1.8; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; }
.small { fill: #9198a1; }
.grid { stroke: #3d444d; }
.true { stroke: #767e88; }
.head { --c: #d29922; } .upstream { --c: #ff7b72; } .fitted { --c: #58a6ff; }
}
"""


def svg(figures: Mapping[str, Any]) -> str:
    """The picture of what `reliability.figures` returned."""
    names = [name for name in PANELS if name in figures]
    width = _LEFT + len(names) * _SIDE + (len(names) - 1) * _GAP + 16
    height = _TOP + _SIDE + _BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" '
        'aria-label="Predicted against observed acceptance of drafted tokens">',
        f"<style>{_STYLE}</style>",
        *_legend(),
    ]
    for number, name in enumerate(names):
        x = _LEFT + number * (_SIDE + _GAP)
        parts += [f'<g transform="translate({x} {_TOP})">', *_panel(name, figures[name]), "</g>"]
    middle = _TOP + _SIDE / 2
    parts += [
        f'<text transform="translate(14 {middle:g}) rotate(-90)" text-anchor="middle">'
        "observed acceptance</text>",
        f'<text x="{(_LEFT + width - 16) / 2:g}" y="{_TOP + _SIDE + 34}" text-anchor="middle">'
        "predicted acceptance of a candidate behind an accepted parent</text>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _legend() -> list[str]:
    parts, x = [], _LEFT
    for name, words in SCORES.items():
        parts += [
            f'<g class="{name}"><line class="key" x1="{x}" y1="16" x2="{x + 22}" y2="16"/>'
            f'<circle cx="{x + 11}" cy="16" r="3"/></g>',
            f'<text x="{x + 28}" y="20">{escape(words)}</text>',
        ]
        x += 50 + 7 * len(words)
    parts += [
        f'<line class="true" x1="{x}" y1="16" x2="{x + 22}" y2="16"/>',
        f'<text x="{x + 28}" y="20">what is predicted is what happens</text>',
    ]
    return parts


def _panel(name: str, scores: Mapping[str, Any]) -> list[str]:
    parts = [f'<text class="title" x="0" y="-10">{escape(PANELS[name])}</text>']
    for tick in _TICKS:
        at = _at(tick)
        parts += [
            f'<path class="grid" d="M{at} 0V{_SIDE}M0 {_SIDE - at}H{_SIDE}"/>',
            f'<text class="small" x="{at}" y="{_SIDE + 15}" text-anchor="middle">{tick:g}</text>',
        ]
        if name == next(iter(PANELS)):
            parts.append(
                f'<text class="small" x="-6" y="{_SIDE - at + 4}" text-anchor="end">{tick:g}</text>'
            )
    parts.append(f'<line class="true" x1="0" y1="{_SIDE}" x2="{_SIDE}" y2="0"/>')
    for score in SCORES:
        parts += _curve(score, scores[score]["bins"])
    for line, score in enumerate(SCORES):
        error, loss = scores[score]["error"], scores[score]["log_loss"]
        parts.append(
            f'<text class="small" x="0" y="{_SIDE + 54 + 14 * line}">{score}: error {error:.3f}, '
            f"log loss {loss:.2f}</text>"
        )
    return parts


def _curve(score: str, rows: Sequence[Mapping[str, float]]) -> list[str]:
    points = [(_at(row["predicted"]), _SIDE - _at(row["observed"])) for row in rows]
    line = " ".join(f"{x},{y}" for x, y in points)
    dots = "".join(f'<circle cx="{x}" cy="{y}" r="2.4"/>' for x, y in points)
    return [f'<g class="{score}"><polyline points="{line}"/>{dots}</g>']


def _at(share: float) -> float:
    return round(_SIDE * share, 1)
