"""A Chromium for the tests, and a watch over what pages do in it. Needs playwright.

DART_CHROMIUM names a browser.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

LOCAL = ("127.0.0.1", "localhost", "")
WAIT = 30_000  # milliseconds; a shared machine may be slow, a broken page never gets there


@contextmanager
def chromium() -> Iterator[Any]:
    """A running browser; skips where there is none."""
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


def new_page(browser: Any, complaints: list[str], **options: Any) -> Any:
    """A page in a context of its own; what goes wrong on it is added to `complaints`."""
    size = {"width": 1280, "height": 1600}
    context = browser.new_context(viewport=size, reduced_motion="reduce", **options)
    page = context.new_page()
    page.set_default_timeout(WAIT)

    def check(request: Any) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.hostname not in LOCAL:
            complaints.append(f"foreign request: {request.url}")

    page.on("pageerror", lambda error: complaints.append(f"exception: {error}"))
    page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    page.on("request", check)
    page.on("response", lambda r: complaints.append(r.url) if r.status >= 400 else None)
    return page
