"""The page: which components, where, and which handler each event calls. No logic.

One page so far, the chat. The header stands above it so that more pages can come beside it.
"""

from __future__ import annotations

import functools
import html
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gradio as gr
from gradio import themes
from gradio.events import api

from app import views
from app.chat import ChatHandlers, Conversation
from app.components import STATIC, chat_pane, metrics_strip, status_bar
from app.engine import Engine
from app.settings import DECODER_LABELS, Settings, check_length, check_prompt
from dart.errors import DartError

ENGINE_QUEUE = "engine"  # one text at a time, whoever asks: the page or the API
QUEUE_SIZE = 32  # visitors who may wait; ZeroGPU's default would be one
EXAMPLES_FILE = Path(__file__).parents[1] / "assets" / "demo" / "prompts" / "examples.jsonl"
DEMO_SENTENCE = (
    "This is a tiny demo model trained by this repository: its answers show speed, not knowledge."
)
# Shades of the blue that marks accepted tokens, for Gradio's own parts.
_BLUE = themes.Color(
    *("#eef7fc", "#d6ebf7", "#b0d9f0", "#84c3e6", "#56b4e9", "#2492cf"),
    *("#0072b2", "#005f95", "#004d78", "#003c5e", "#002b44"),
    name="dart",
)
_EXAMPLES = (
    ("Code", "Write a Python function that checks whether a number is prime."),
    ("Story", "Tell me a short story about a dog who finds a red ball in the garden."),
    ("List", "Count from one to thirty in words, separated by commas."),
    ("Explain", "Explain in simple words why the sky is blue."),
)


def theme() -> themes.Base:
    """Gradio's plain theme in our colours; system fonts, so that nothing is fetched."""
    sans = ("ui-sans-serif", "system-ui", "-apple-system", "Segoe UI", "sans-serif")
    mono = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")
    return themes.Base(
        primary_hue=_BLUE,
        neutral_hue=themes.colors.slate,
        radius_size=themes.sizes.radius_md,
        font=sans,
        font_mono=mono,
    )


def launch_options() -> dict[str, Any]:
    """What every launch of this page needs, whoever launches it."""
    return {
        "theme": theme(),
        "css_paths": [STATIC / "style.css"],
        "footer_links": ["api", "settings"],
        "run_history": False,  # would keep every run in the visitor's browser
        "enable_monitoring": False,  # would be readable without logging in
        "ssr_mode": False,  # needs Node, and hides routes from Python
        "show_error": False,  # an exception's text is not for visitors
    }


def examples(path: Path = EXAMPLES_FILE, limit: int = 4) -> list[dict[str, str]]:
    """Prompts to offer: those the demo model was made for where the file is there."""
    if not path.is_file():
        return [{"title": title, "prompt": prompt} for title, prompt in _EXAMPLES]
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
    return [
        {"title": str(line.get("title", "")), "prompt": str(line["prompt"])}
        for line in lines[:limit]
    ]


def build_ui(engine: Engine, *, max_new_tokens: int = 256, hz: float = 20.0) -> gr.Blocks:
    """The page of an engine, which may still be loading."""
    with gr.Blocks(
        title="DART \u2013 speculative decoding you can watch",
        analytics_enabled=False,
        fill_width=True,
        delete_cache=(3600, 86400),
    ) as demo:
        status = status_bar(status_view(engine), elem_id="status")
        retry = gr.Button("Try to load again", visible=False, elem_id="retry", size="sm")
        decoder = _chat_page(engine, max_new_tokens, hz, status)
        _wire_status(engine, demo, status, retry, decoder)
        api(
            _api(engine, max_new_tokens),
            api_name="generate",
            api_description="Answer one prompt; text and figures of the whole run.",
            concurrency_id=ENGINE_QUEUE,
            concurrency_limit=1,
        )
    demo.queue(max_size=QUEUE_SIZE)
    return demo


def _chat_page(engine: Engine, max_new_tokens: int, hz: float, status: gr.HTML) -> gr.Radio:
    """The chat; returns the decoder choice, which depends on what gets loaded."""
    prompts = examples()
    conversation = gr.State(Conversation())
    with gr.Row(elem_id="chat-page"):
        with gr.Column(elem_id="chat-main", scale=1, min_width=0):
            pane = chat_pane({"turns": [], "busy": False}, elem_id="chat", examples=prompts)
            with gr.Row(elem_id="composer"):
                prompt = gr.Textbox(
                    placeholder="Ask something \u2026",
                    show_label=False,
                    label="Prompt",
                    lines=1,
                    max_lines=8,
                    container=False,
                    scale=1,
                    min_width=0,
                    elem_id="prompt",
                    autofocus=True,
                )
                run = gr.Button("Send", variant="primary", elem_id="run", min_width=0, scale=0)
                stop = gr.Button("Stop", elem_id="stop", min_width=0, scale=0, interactive=False)
            with gr.Row(elem_id="tools"):
                again = gr.Button("Regenerate", size="sm", elem_id="again", min_width=0, scale=0)
                clear = gr.Button("Clear", size="sm", elem_id="clear", min_width=0, scale=0)
                queue = gr.HTML("", elem_id="queue", apply_default_css=False, scale=1, min_width=0)
        with gr.Column(elem_id="chat-side", scale=0, min_width=0):
            numbers = metrics_strip({"state": "idle"}, elem_id="metrics-chat")
            form = _settings_form(max_new_tokens)

    handlers = ChatHandlers(engine, hz)
    pending = [pane, numbers, prompt, run, stop, again]
    settled = [pane, numbers, run, stop, again, status]

    def started(talk: Conversation, keep_prompt: bool) -> tuple:
        return (
            talk.chat_view(),
            talk.metrics_view(),
            gr.skip() if keep_prompt else "",
            gr.Button(interactive=False),
            gr.Button(interactive=True),
            gr.Button(interactive=False),
        )

    def ask(talk: Conversation, text: str, *values: Any) -> tuple:
        handlers.ask(talk, text, Settings.from_form(*values))
        return started(talk, keep_prompt=False)

    def ask_example(talk: Conversation, event: gr.EventData, *values: Any) -> tuple:
        index = getattr(event, "index", None)
        if not isinstance(index, int) or not 0 <= index < len(prompts):
            raise DartError("There is no such example.")
        handlers.ask(talk, prompts[index]["prompt"], Settings.from_form(*values))
        return started(talk, keep_prompt=True)

    def ask_again(talk: Conversation, *values: Any) -> tuple:
        handlers.ask_again(talk, Settings.from_form(*values))
        return started(talk, keep_prompt=True)

    def answer(talk: Conversation) -> Iterator[Any]:
        for snapshot in handlers.answer(talk):
            if snapshot is None:
                yield gr.skip(), gr.skip(), gr.skip()
            else:
                yield talk.chat_view(), talk.metrics_view(), gr.skip()

    def settle(talk: Conversation) -> tuple:
        handlers.settle(talk)
        return (
            talk.chat_view(),
            talk.metrics_view(),
            gr.Button(interactive=True),
            gr.Button(interactive=False),
            gr.Button(interactive=True),
            status_view(engine),
        )

    def forget(talk: Conversation) -> tuple:
        handlers.clear(talk)
        return settle(talk)

    quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    free: dict[str, Any] = {**quiet, "concurrency_limit": None}
    asked = [
        gr.on(
            [prompt.submit, run.click], _toasts(ask), [conversation, prompt, *form], pending,
            validator=_validate, **free,
        ),
        pane.example(_toasts(ask_example), [conversation, *form], pending, **free),
        again.click(_toasts(ask_again), [conversation, *form], pending, **free),
    ]  # fmt: skip
    runs = []
    for event in asked:
        answered = event.success(
            _toasts_while(answer),
            [conversation],
            [pane, numbers, queue],
            concurrency_id=ENGINE_QUEUE,
            concurrency_limit=1,
            api_visibility="private",
            show_progress="full",  # the place in the queue, and nothing over the answer
            show_progress_on=queue,
        )
        # `then` comes after an end and after a stop, but not after an error or a full queue.
        for ended in (answered.then, answered.failure):
            ended(_toasts(settle), [conversation], settled, queue=False, **quiet)
        runs.append(answered)
    stop.click(None, None, None, cancels=runs)
    clear.click(_toasts(forget), [conversation], settled, queue=False, cancels=runs, **quiet)
    return form[0]


def _settings_form(max_new_tokens: int) -> list[Any]:
    """The inputs of Settings.from_form, in its order."""
    with gr.Column(elem_id="settings", min_width=0):
        decoder = gr.Radio(
            [(label, name) for name, label in DECODER_LABELS.items()],
            value="dart",
            label="Decoder",
            elem_id="decoder",
        )
        temperature = gr.Slider(
            0,
            2,
            value=0,
            step=0.05,
            label="Temperature",
            info="0 is greedy",
            buttons=[],
            elem_id="temperature",
        )
        most = max(2048, max_new_tokens)
        max_tokens = gr.Slider(
            1,
            most,
            value=max_new_tokens,
            step=1,
            label="Max tokens",
            buttons=[],
            elem_id="max-tokens",
        )
        with gr.Accordion("More settings", open=False, elem_id="more"):
            top_p = gr.Slider(0, 1, value=1, step=0.01, label="Top-p", info="1 is off", buttons=[])
            top_k = gr.Slider(0, 200, value=0, step=1, label="Top-k", info="0 is off", buttons=[])
            tree_size = gr.Slider(
                0,
                128,
                value=0,
                step=1,
                label="Tree size",
                info="drafted nodes; 0 is automatic",
                buttons=[],
            )
            seed = gr.Number(
                0, label="Seed", precision=0, minimum=0, elem_id="seed",
                info="the same seed gives the same text, whatever the decoder",
            )  # fmt: skip
    return [decoder, temperature, top_p, top_k, seed, tree_size, max_tokens]


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
    return {**view, "facts": facts, "demo": DEMO_SENTENCE if loaded.is_demo else ""}


def _wire_status(
    engine: Engine, demo: gr.Blocks, status: gr.HTML, retry: gr.Button, decoder: gr.Radio
) -> None:
    """Follow the loading until it has ended one way or the other."""
    clock = gr.Timer(1.0)
    outputs = [status, retry, decoder, clock]

    def look() -> tuple:
        view = status_view(engine)
        choice = gr.skip()
        if view["state"] == "ready":
            able = engine.loaded.model.decoders
            choices = [(DECODER_LABELS.get(name, name), name) for name in able]
            choice = gr.Radio(choices=choices, value=able[0])
        failed = view["state"] == "failed"
        return view, gr.Button(visible=failed), choice, gr.Timer(active=view["state"] == "loading")

    def load_again() -> tuple:
        engine.load()
        return look()

    options: dict[str, Any] = {
        "queue": False,
        "show_progress": "hidden",
        "api_visibility": "private",
    }
    demo.load(look, None, outputs, **options)
    clock.tick(look, None, outputs, **options)
    retry.click(load_again, None, outputs, **options)


def _validate(talk: Conversation, text: str, *values: Any) -> list[Any]:
    """Refuse a prompt before it takes a place in the queue; the handler checks once more."""
    try:
        check_length(text)
    except DartError as error:
        verdict = gr.validate(False, html.escape(str(error), quote=False))
    else:
        verdict = gr.validate(True, "")
    return [gr.validate(True, ""), verdict, *[gr.validate(True, "")] * len(values)]


def _api(engine: Engine, max_new_tokens: int) -> Callable[..., dict[str, Any]]:
    """The endpoint `generate`: one prompt in, the whole answer out."""

    def generate(
        prompt: str,
        decoder: str = "dart",
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        seed: int = 0,
        tree_size: int = 0,
        max_tokens: int = max_new_tokens,
    ) -> dict[str, Any]:
        text = check_prompt(prompt)
        settings = Settings.from_form(
            decoder, temperature, top_p, top_k, seed, tree_size, max_tokens
        )
        message = {"role": "user", "content": text}
        ids, _ = engine.prompt_ids([message], settings.max_tokens)
        job = engine.start(ids, settings)
        try:
            job.join()
        finally:
            job.stop.set()
        error = job.snapshot().error
        if error:
            raise DartError(error)
        return {**job.result(), "decoder": settings.decoder, "prompt_tokens": len(ids)}

    return _toasts(generate)


def _toast(error: DartError) -> gr.Error:
    # Gradio renders the message as HTML, and a message may quote what a visitor or a model wrote.
    return gr.Error(
        html.escape(str(error), quote=False), title="That did not work", print_exception=False
    )


def _toasts(handler: Callable[..., Any]) -> Callable[..., Any]:
    """The handler, its DartErrors shown to the visitor."""

    @functools.wraps(handler)
    def wrapped(*args: Any) -> Any:
        try:
            return handler(*args)
        except DartError as error:
            raise _toast(error) from error

    return wrapped


def _toasts_while(handler: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """The same for a generator."""

    @functools.wraps(handler)
    def wrapped(*args: Any) -> Iterator[Any]:
        try:
            yield from handler(*args)
        except DartError as error:
            raise _toast(error) from error

    return wrapped
