"""The race's part of the page: components, and which handler each event calls. No logic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from app.components import STATIC, composer
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
from app.link import read_link
from app.presets import PRESETS, Preset
from app.race_runs import RaceHandlers, Request, Visit
from app.race_view import race_view
from app.settings import DECODER_LABELS, Settings
from app.settings_form import SettingsForm, settings_button


@dataclass(frozen=True)
class RaceTab:
    """What other parts of the page need of this one."""

    panes: gr.CheckboxGroup
    opened: Any  # the event of a page's opening, once a link has filled in the form


def race_tab(
    engine: Engine, hz: float, demo: gr.Blocks, status: gr.HTML, form: SettingsForm
) -> RaceTab:
    """The race page."""
    visit = gr.State(Visit())
    number = gr.Number(0, visible=False)  # of the visitor's race, for what follows it
    prompt, run, stop = composer("", "What shall they write?", "Run", autofocus=True)
    with gr.Row(elem_id="presets"):
        presets = [
            gr.Button(
                preset.title, size="sm", elem_id=f"preset-{index}", elem_classes="dart-tool",
                min_width=0, scale=0,
            )
            for index, preset in enumerate(PRESETS)
        ]  # fmt: skip
        why = gr.Markdown("", elem_id="preset-why")
    with gr.Row(elem_id="race-options"):
        panes = gr.CheckboxGroup(
            [(label, name) for name, label in DECODER_LABELS.items()],
            value=list(DECODER_LABELS),
            label="Panes",
            show_label=False,
            container=False,
            elem_id="panes",
            scale=0,
            min_width=0,
        )
        mode = gr.Radio(
            [("Race", "race"), ("Back to back", "back_to_back")],
            value="race",
            label="Mode",
            show_label=False,
            container=False,
            elem_id="mode",
            scale=0,
            min_width=0,
        )
        link = gr.Button(
            "Copy link", size="sm", elem_id="copy-link", elem_classes="dart-tool", min_width=0,
            scale=0,
        )  # fmt: skip
        settings_button()
        queue = gr.HTML(
            "", elem_id="queue", elem_classes="dart-queue", apply_default_css=False, scale=1,
            min_width=0,
        )  # fmt: skip
    view = race_view(Visit().view(), elem_id="race")

    handlers = RaceHandlers(engine, hz)

    def prepare(mine: Visit, text: str, names: Any, mode: Any, *values: Any) -> tuple:
        settings = Settings.from_form("", *values)
        handlers.prepare(mine, Request.checked(text, names, mode, settings))
        on, off = gr.Button(interactive=True), gr.Button(interactive=False)
        return mine.view(), off, on, mine.number

    def follow(mine: Visit) -> Iterator[Any]:
        for news in handlers.run(mine):
            yield (gr.skip() if news is None else news), gr.skip()

    def settle(mine: Visit, number: float | None) -> tuple:
        if has_moved_on(mine, number):
            return tuple([gr.skip()] * 4)
        ended = handlers.settle(mine)
        shown = mine.view() if ended else gr.skip()
        idle, off = gr.Button(interactive=True), gr.Button(interactive=False)
        return shown, idle, off, status_view(engine)

    def offer(preset: Preset) -> tuple[str, float, str]:
        is_demo = engine.status.state != "ready" or engine.loaded.is_demo
        prompt = preset.demo if is_demo else preset.prompt
        return prompt, preset.temperature, preset.why

    options = [prompt, panes, mode, *form.inputs]
    prepared = gr.on(
        [prompt.submit, run.click], toasts(prepare), [visit, *options], [view, run, stop, number],
        validator=validate_prompt, **FREE,
    )  # fmt: skip
    raced = prepared.success(
        toasts_while(follow),
        [visit],
        [view, queue],
        api_visibility="private",
        show_progress="full",  # the place in the queue, and nothing over the panes
        show_progress_on=queue,
        **ON_THE_ENGINE,
    )
    for ended in (raced.success, raced.failure):
        ended(toasts(settle), [visit, number], [view, run, stop, status], **AT_ONCE)
    stop.click(handlers.halt, [visit], None, cancels=[raced], **AT_ONCE)
    for preset, button in zip(PRESETS, presets, strict=True):
        button.click(partial(offer, preset), None, [prompt, form.temperature, why], **AT_ONCE)
    link.click(None, options, None, js=(STATIC / "link.js").read_text("utf-8"), **AT_ONCE)

    def follow_link(request: gr.Request) -> list[Any]:
        fields, note = read_link(dict(request.query_params))
        shown = {**Visit().view(), "note": note} if note else gr.skip()
        return [shown, *[fields.get(name, gr.skip()) for name in _LINKED]]

    opened = demo.load(follow_link, None, [view, *options], **AT_ONCE)
    return RaceTab(panes, opened)


# Names of the link's fields, in the order of the inputs.
_LINKED = (
    "prompt", "decoders", "mode", "temperature", "top_p", "top_k", "seed", "tree_size",
    "max_tokens", "ngram", "score",
)  # fmt: skip
