"""A served page, and a browser that holds against it what goes wrong on it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from app import layout
from app.engine import Engine

WAIT = 30_000  # milliseconds; a shared machine may be slow, a broken page never gets there
_LOCAL = ("127.0.0.1", "localhost", "")


@contextmanager
def serve(engine: Engine) -> Iterator[str]:
    """The page of an engine, at an address of this machine."""
    demo = layout.build_ui(engine)
    _, url, _ = demo.launch(
        prevent_thread_lock=True, quiet=True, server_name="127.0.0.1", **layout.launch_options()
    )
    try:
        yield url
    finally:
        demo.close()


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless Chromium; skips the test where there is none. DART_CHROMIUM names one."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (pip install playwright)"
    )
    names = (os.environ.get("DART_CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
    path = next((found for name in names if name and (found := shutil.which(name))), None)
    with playwright.sync_playwright() as started:
        try:
            browser = started.chromium.launch(
                executable_path=path,
                args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
            )
        except playwright.Error as error:
            pytest.skip(f"no Chromium that starts: {str(error).splitlines()[0]}")
        yield browser
        browser.close()


def ready_page(browser: Any, url: str, viewport: Any, **options: Any) -> Any:
    """A page of an app that may just have been started, once its model and its plots are there."""
    page = browser.new_context(viewport=viewport, **options).new_page()
    page.set_default_timeout(4 * WAIT)
    page.goto(url)
    page.wait_for_selector(".dart-status[data-state=ready]")
    page.wait_for_function("window.Plotly !== undefined")
    return page


def read_trace(page: Any) -> dict[str, Any]:
    """The trace on show, by the button that saves it."""
    with page.expect_download() as download:
        page.click("#race-export")
    return json.loads(Path(download.value.path()).read_text("utf-8"))


def opener(browser: Any) -> Generator[Callable[..., Any], None, None]:
    """Opens pages, each in a session of its own, and fails on what went wrong on any of them."""
    contexts, complaints = [], []

    def watch(page: Any) -> None:
        page.on("pageerror", lambda error: complaints.append(f"exception: {error}"))
        page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
        page.on("request", lambda request: _check_local(request.url, complaints))
        page.on("response", lambda r: complaints.append(r.url) if r.status >= 400 else None)

    def open_page(url: str, ready: bool = True, tab: str = "Race", **options: Any) -> Any:
        context = browser.new_context(
            viewport={"width": 1280, "height": 800}, reduced_motion="reduce", **options
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(WAIT)
        watch(page)
        page.goto(url)
        if ready:
            page.wait_for_selector(".dart-status[data-state=ready]")
        if tab != "Race":
            page.click(f"#pages button[role=tab]:has-text('{tab}')")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def _check_local(url: str, complaints: list[str]) -> None:
    parts = urlsplit(url)
    if parts.scheme in ("http", "https", "ws", "wss") and parts.hostname not in _LOCAL:
        complaints.append(f"foreign request: {url}")
