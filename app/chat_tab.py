"""The chat's part of the page: components, and which handler each event calls. No logic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from app.chat import ChatHandlers, Conversation
from app.components import chat_pane, composer, metrics_strip
from app.engine import Engine
from app.events import (
    AT_ONCE,
    FREE,
    ON_THE_ENGINE,
    has_moved_on,
    toasts,
    toasts_while,
    validate_prompt,
)
from app.header import status_view
from app.presets import examples
from app.settings import DECODER_LABELS, Settings
from app.settings_form import SettingsForm, settings_button
from dart.errors import DartError


def chat_tab(engine: Engine, hz: float, status: gr.HTML, form: SettingsForm) -> gr.Radio:
    """The chat; returns the decoder choice, which depends on what gets loaded."""
    prompts = examples()
    conversation = gr.State(Conversation())
    number = gr.Number(0, visible=False)  # of the answer that is awaited, for what follows it
    with gr.Row(elem_id="chat-page"):
        with gr.Column(elem_id="chat-main", scale=1, min_width=0):
            pane = chat_pane({"turns": [], "busy": False}, elem_id="chat", examples=prompts)
            prompt, run, stop = composer("chat-", "Ask something \u2026", "Send")
            with gr.Row(elem_id="tools"):
                again = _tool("Regenerate", "again")
                undo = _tool("Undo", "undo")
                clear = _tool("Clear", "clear")
                settings_button()
                queue = gr.HTML(
                    "", elem_id="chat-queue", elem_classes="dart-queue", apply_default_css=False,
                    scale=1, min_width=0,
                )  # fmt: skip
        with gr.Column(elem_id="chat-side", scale=0, min_width=0):
            decoder = gr.Radio(
                [(label, name) for name, label in DECODER_LABELS.items()],
                value="dart",
                label="Decoder",
                elem_id="decoder",
            )
            numbers = metrics_strip({"state": "idle"}, elem_id="metrics-chat")

    handlers = ChatHandlers(engine, hz)
    settings = [decoder, *form.inputs]
    pending = [number, pane, numbers, prompt, run, stop, again, undo]
    settled = [pane, numbers, run, stop, again, undo, status]

    def buttons(is_busy: bool) -> tuple:
        idle = gr.Button(interactive=not is_busy)
        return idle, gr.Button(interactive=is_busy), idle, idle

    def started(talk: Conversation, prompt: Any) -> tuple:
        views = talk.chat_view(), talk.metrics_view()
        return talk.number, *views, prompt, *buttons(is_busy=True)

    def ask(talk: Conversation, text: str, *values: Any) -> tuple:
        handlers.ask(talk, text, Settings.from_form(*values))
        return started(talk, "")

    def ask_example(talk: Conversation, event: gr.EventData, *values: Any) -> tuple:
        index = getattr(event, "index", None)
        if not isinstance(index, int) or not 0 <= index < len(prompts):
            raise DartError("There is no such example.")
        handlers.ask(talk, prompts[index]["prompt"], Settings.from_form(*values))
        return started(talk, gr.skip())

    def ask_again(talk: Conversation, *values: Any) -> tuple:
        handlers.ask_again(talk, Settings.from_form(*values))
        return started(talk, gr.skip())

    def retry(talk: Conversation, event: gr.EventData, *values: Any) -> tuple:
        handlers.ask_again(talk, Settings.from_form(*values), getattr(event, "turn", -1))
        return started(talk, gr.skip())

    def edit(talk: Conversation, event: gr.EventData, *values: Any) -> tuple:
        turn, text = getattr(event, "turn", -1), getattr(event, "text", "")
        handlers.edit(talk, turn, text, Settings.from_form(*values))
        return started(talk, gr.skip())

    def answer(talk: Conversation) -> Iterator[Any]:
        for snapshot in handlers.answer(talk):
            if snapshot is None:
                yield gr.skip(), gr.skip(), gr.skip()
            else:
                yield talk.chat_view(), talk.metrics_view(), gr.skip()

    def settle(talk: Conversation, number: float | None) -> tuple:
        if has_moved_on(talk, number):
            return tuple([gr.skip()] * len(settled))
        handlers.settle(talk)
        views = talk.chat_view(), talk.metrics_view()
        return *views, *buttons(is_busy=False), status_view(engine)

    def take_back(talk: Conversation) -> tuple:
        question = handlers.undo(talk)
        return talk.chat_view(), talk.metrics_view(), question

    def forget(talk: Conversation) -> tuple:
        handlers.clear(talk)
        return settle(talk, None)

    asked = [
        gr.on(
            [prompt.submit, run.click], toasts(ask), [conversation, prompt, *settings], pending,
            validator=validate_prompt, **FREE,
        ),
        pane.example(toasts(ask_example), [conversation, *settings], pending, **FREE),
        pane.retry(toasts(retry), [conversation, *settings], pending, **FREE),
        pane.edit(toasts(edit), [conversation, *settings], pending, **FREE),
        again.click(toasts(ask_again), [conversation, *settings], pending, **FREE),
    ]  # fmt: skip
    runs = []
    for event in asked:
        answered = event.success(
            toasts_while(answer),
            [conversation],
            [pane, numbers, queue],
            api_visibility="private",
            show_progress="full",  # the place in the queue, and nothing over the answer
            show_progress_on=queue,
            **ON_THE_ENGINE,
        )
        for ended in (answered.success, answered.failure):
            ended(toasts(settle), [conversation, number], settled, **AT_ONCE)
        runs.append(answered)
    stop.click(handlers.halt, [conversation], None, cancels=runs, **AT_ONCE)
    undo.click(toasts(take_back), [conversation], [pane, numbers, prompt], **AT_ONCE)
    clear.click(toasts(forget), [conversation], settled, cancels=runs, **AT_ONCE)
    return decoder


def _tool(label: str, elem_id: str) -> gr.Button:
    return gr.Button(
        label, size="sm", elem_id=elem_id, elem_classes="dart-tool", min_width=0, scale=0
    )
