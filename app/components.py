"""Our own parts of the page: a fixed skeleton each, filled in by the script of the same name.

The value is data and reaches the page through `textContent` only. Nothing of it may appear in a
template: Gradio evaluates rendered templates as code. Functions rather than subclasses of gr.HTML,
for which Gradio would write a stub file next to this one at every start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from app.scripts import script

STATIC = Path(__file__).parent / "static"


def chat_pane(value: dict[str, Any], **options: Any) -> gr.HTML:
    """The conversation; value as Conversation.chat_view gives it; fires `example`."""
    return _panel("chat", value, options)


def metrics_strip(value: dict[str, Any], **options: Any) -> gr.HTML:
    """The numbers of one run; value as views.metrics gives it."""
    return _panel("metrics", value, options)


def status_bar(value: dict[str, Any], **options: Any) -> gr.HTML:
    """Name, model, device and how loading goes; value as header.status_view gives it."""
    return _panel("status", value, options)


def composer(
    prefix: str, placeholder: str, run: str, **options: Any
) -> tuple[gr.Textbox, gr.Button, gr.Button]:
    """A row of the prompt, the button that runs it, and Stop.

    prefix  of the elem_ids composer, prompt, run and stop; run  the button's word
    """
    with gr.Row(elem_id=f"{prefix}composer", elem_classes="dart-composer"):
        prompt = gr.Textbox(
            placeholder=placeholder,
            show_label=False,
            label="Prompt",
            lines=1,
            max_lines=8,
            container=False,
            scale=1,
            min_width=0,
            elem_id=f"{prefix}prompt",
            **options,
        )
        begin = gr.Button(run, variant="primary", elem_id=f"{prefix}run", min_width=0, scale=0)
        stop = gr.Button("Stop", elem_id=f"{prefix}stop", min_width=0, scale=0, interactive=False)
    return prompt, begin, stop


def _panel(name: str, value: dict[str, Any], options: dict[str, Any]) -> gr.HTML:
    return gr.HTML(
        value,
        html_template=f'<div class="dart-{name}"></div>',
        js_on_load=script(STATIC / f"{name}.js"),
        apply_default_css=False,
        **options,
    )
