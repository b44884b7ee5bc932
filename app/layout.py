"""The page as a whole: what stands where, what it looks like, how it is launched."""

from __future__ import annotations

from typing import Any

import gradio as gr
from fastapi import HTTPException
from gradio import themes

from app.api import add_endpoints
from app.chat_tab import chat_tab
from app.components import STATIC
from app.engine import Engine
from app.events import QUEUE_SIZE
from app.header import Header
from app.queue_full import refuse
from app.race_tab import race_tab
from app.settings_form import settings_form

# Shades of the blue that marks accepted tokens, for Gradio's own parts.
_BLUE = themes.Color(
    *("#eef7fc", "#d6ebf7", "#b0d9f0", "#84c3e6", "#56b4e9", "#2492cf"),
    *("#0072b2", "#005f95", "#004d78", "#003c5e", "#002b44"),
    name="dart",
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
        "css_paths": sorted(STATIC.rglob("*.css")),
        "js": (STATIC / "keys.js").read_text("utf-8"),
        "footer_links": ["api", "settings"],
        "run_history": False,  # would keep every run in the visitor's browser
        "enable_monitoring": False,  # would be readable without logging in
        "ssr_mode": False,  # needs Node, and hides routes from Python
        "show_error": False,  # an exception's text is not for visitors
        "app_kwargs": {"exception_handlers": {HTTPException: refuse}},
    }


def build_ui(engine: Engine, *, max_new_tokens: int = 256, hz: float = 20.0) -> gr.Blocks:
    """The page of an engine, which may still be loading."""
    with gr.Blocks(
        title="DART \u2013 speculative decoding you can watch",
        analytics_enabled=False,
        fill_width=True,
        delete_cache=(3600, 86400),
    ) as demo:
        header = Header(engine)
        form = settings_form(max_new_tokens)
        with gr.Tabs(elem_id="pages"):
            with gr.Tab("Race", elem_id="race-page"):
                race = race_tab(engine, hz, demo, header.status, form)
            with gr.Tab("Chat", elem_id="chat-tab"):
                decoder = chat_tab(engine, hz, header.status, form)
        header.follow_loading(race.opened, decoder, race.panes, form.max_tokens)
        add_endpoints(engine, max_new_tokens)
    demo.queue(max_size=QUEUE_SIZE)
    return demo
