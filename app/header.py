"""The header: name, model, device, and how loading goes; and what depends on the loaded model."""

from __future__ import annotations

from typing import Any

import gradio as gr

from app import views
from app.components import status_bar
from app.engine import Engine
from app.events import AT_ONCE
from app.settings import DECODER_LABELS, RANGES
from dart import native

MOST_TOKENS = int(RANGES["max_tokens"][1])
DEMO_SENTENCE = (
    "This is a tiny demo model trained by this repository: its answers show speed, not knowledge."
)


def status_view(engine: Engine) -> dict[str, Any]:
    """Value of the header."""
    status = engine.status
    view: dict[str, Any] = {
        "state": status.state,
        "text": status.text,
        "seconds": status.seconds,
        "facts": [],
        "demo": "",
    }
    if status.state != "ready":
        return view
    loaded = engine.loaded
    held, where = loaded.memory()
    facts = [
        ("target model", loaded.name),
        ("parameters of the target", views.quantity(loaded.parameters) + " parameters"),
        ("device", loaded.device),
        ("type of the weights", loaded.dtype),
        ("context in tokens", f"{loaded.context:,} tokens of context"),
    ]
    if held:
        facts.append((where, views.megabytes(held)))
    sentences = [DEMO_SENTENCE] if loaded.is_demo else []
    if reason := native.fallback_reason():
        sentences.append(f"The search runs in Python, many times slower, because {reason}.")
    return {**view, "facts": facts, "demo": " ".join(sentences)}


class Header:
    """The status bar, and a button for another try where loading failed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.status = status_bar(status_view(engine), elem_id="status")
        self.retry = gr.Button("Try to load again", visible=False, elem_id="retry", size="sm")

    def follow_loading(
        self,
        opened: Any,
        decoder: gr.Radio,
        panes: gr.CheckboxGroup,
        max_tokens: gr.Slider,
    ) -> None:
        """Look until loading has ended one way or the other; then offer what the model can do.

        opened  the event of a page's opening that has filled in the form
        """
        engine = self._engine
        clock = gr.Timer(1.0, active=False)  # not before the form is filled in
        inputs = [decoder, panes, max_tokens]
        outputs = [self.status, self.retry, clock, *inputs]

        def look(decoder: Any, panes: Any, max_tokens: Any) -> tuple:
            view = status_view(engine)
            form: tuple = (gr.skip(), gr.skip(), gr.skip())
            if view["state"] == "ready":
                form = offer(engine, decoder, panes, max_tokens)
            is_failed, is_loading = view["state"] == "failed", view["state"] == "loading"
            return view, gr.Button(visible=is_failed), gr.Timer(active=is_loading), *form

        def load_again(*values: Any) -> tuple:
            engine.load()
            return look(*values)

        opened.then(look, inputs, outputs, **AT_ONCE)
        clock.tick(look, inputs, outputs, **AT_ONCE)
        self.retry.click(load_again, inputs, outputs, **AT_ONCE)


def offer(engine: Engine, decoder: Any, panes: Any, max_tokens: Any) -> tuple:
    """Decoder choice, pane choice and token limit as the model allows them.

    What cannot be run is replaced. What can is not mentioned: it may have been changed meanwhile.
    """
    able, context = engine.loaded.model.decoders, engine.loaded.context
    choices = [(DECODER_LABELS.get(name, name), name) for name in able]
    running = [name for name in panes or [] if name in able]
    most = min(context, MOST_TOKENS)
    return (
        _update(decoder in able, able[0], choices=choices),
        _update(running == panes, running or list(able), choices=choices),
        _update((max_tokens or 0) <= most, most, maximum=most),
    )


def _update(is_fit: bool, value: Any, **properties: Any) -> dict[str, Any]:
    return gr.update(**properties) if is_fit else gr.update(value=value, **properties)
