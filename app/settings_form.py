"""The settings beside both pages: all but the decoder, which each page asks for in its own way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from app.events import AT_ONCE
from app.settings import AUTOMATIC, NGRAM_LABELS, RANGES, SCORE_LABELS


@dataclass(frozen=True)
class SettingsForm:
    """The inputs, by the names of Settings."""

    temperature: gr.Slider
    top_p: gr.Slider
    top_k: gr.Slider
    seed: gr.Number
    tree_size: gr.Slider
    max_tokens: gr.Slider
    ngram: gr.Dropdown
    score: gr.Dropdown

    @property
    def inputs(self) -> list[Any]:
        """In the order of `Settings.from_form`, behind the decoder."""
        return [self.temperature, self.top_p, self.top_k, self.seed, self.tree_size,
                self.max_tokens, self.ngram, self.score]  # fmt: skip


def settings_form(max_new_tokens: int) -> SettingsForm:
    """The sidebar; where its token limit ends, the loaded model's context has the last word."""
    least, most = RANGES["max_tokens"]
    with gr.Sidebar(open=False, position="right", elem_id="settings", label="Settings"):
        gr.Markdown("### Settings", elem_id="settings-title")
        temperature = _slider("temperature", "Temperature", 0, step=0.05, info="0 is greedy")
        max_tokens = gr.Slider(
            least, most, value=min(max_new_tokens, most), step=1, label="Max tokens", buttons=[],
            elem_id="max-tokens",
        )  # fmt: skip
        tree_size = _slider("tree_size", "Tree size", 0, info="drafted nodes; 0 is automatic")
        ngram = gr.Dropdown(
            [(label, name) for name, label in NGRAM_LABELS.items()], value=AUTOMATIC,
            label="N-grams", elem_id="ngram", info="where DART's search looks them up",
        )  # fmt: skip
        score = gr.Dropdown(
            [(label, name) for name, label in SCORE_LABELS.items()], value=AUTOMATIC,
            label="Score", elem_id="score", info="what DART's nodes are chosen by",
        )  # fmt: skip
        top_p = _slider("top_p", "Top-p", 1, step=0.01, info="1 is off")
        top_k = _slider("top_k", "Top-k", 0, info="0 is off")
        seed = gr.Number(
            0, label="Seed", precision=0, minimum=0, elem_id="seed",
            info="the same seed gives the same text, whatever the decoder",
        )  # fmt: skip
    return SettingsForm(temperature, top_p, top_k, seed, tree_size, max_tokens, ngram, score)


def settings_button() -> gr.Button:
    """Opens and closes the sidebar, whose own handle says nothing of what is behind it."""
    button = gr.Button("Settings", size="sm", elem_classes="dart-tool", min_width=0, scale=0)
    toggle = "() => document.querySelector('#settings .toggle-button')?.click()"
    button.click(None, None, None, js=toggle, **AT_ONCE)
    return button


def _slider(name: str, label: str, value: float, step: float = 1, info: str = "") -> gr.Slider:
    least, most = RANGES[name]
    return gr.Slider(
        least, most, value=value, step=step, label=label, info=info, buttons=[],
        elem_id=name.replace("_", "-"),
    )  # fmt: skip
