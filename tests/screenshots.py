"""Takes the README's pictures of the page: `python -m tests.screenshots [folder]`.

The embedded model runs in them, with every decoder that it has.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.app_process import ROOT, running_app
from tests.browser import chromium, read_trace, ready_page

FOLDER = ROOT / "assets" / "screenshots"
DESKTOP = {"width": 1360, "height": 1000}
PHONE = {"width": 390, "height": 844}
RACE = "Write a Python function `to_roman`. Convert an integer to a Roman numeral."
CHAT = "Write a Python class `BankAccount`. A bank account with deposit and withdraw."


def main(argv: Sequence[str] | None = None) -> int:
    """Take all of them; the exit code."""
    flags = argparse.ArgumentParser(prog="python -m tests.screenshots", description=__doc__)
    flags.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    folder = flags.parse_args(argv).folder
    folder.mkdir(parents=True, exist_ok=True)
    with running_app() as app, chromium() as browser:
        for scheme in ("light", "dark"):
            page = _open(browser, f"{app.url}?__theme={scheme}")
            _race(page)
            _save(page, folder / f"race-{scheme}.png")
            if scheme == "light":
                _show_step(page)
                _save(page.locator(".race-details"), folder / "tree.png")
            _chat(page)
            _save(page, folder / f"chat-{scheme}.png")
            page.context.close()
        page = _open(browser, f"{app.url}?__theme=light", PHONE)
        _race(page)
        _save(page, folder / "race-light-phone.png", full_page=True)
        _chat(page)
        _save(page, folder / "chat-light-phone.png", full_page=True)
    return 0


def _open(browser: Any, url: str, viewport: Any = DESKTOP) -> Any:
    return ready_page(browser, url, viewport, reduced_motion="reduce")


def _race(page: Any) -> None:
    # Twice: what a process does for the first time it does slowly.
    for _ in range(2):
        page.fill("#prompt textarea", RACE)
        page.click("#run")
        page.wait_for_selector("#stop:not([disabled])")
        page.wait_for_selector("#run:not([disabled])")
    page.mouse.move(0, 0)


def _show_step(page: Any) -> None:
    """Choose the DART step with the most to see: a long accepted path, much beside it."""
    events = [event for event in read_trace(page)["events"] if event.get("decoder") == "dart"]
    steps = [event.get("tree") for event in events if event["kind"] == "step"]
    sights = [len(tree["path"]) * len(tree["ids"]) if tree else 0 for tree in steps]
    page.evaluate(
        """(step) => {
            const slider = document.getElementById("tree-step");
            slider.value = step;
            slider.dispatchEvent(new Event("input", {bubbles: true}));
        }""",
        sights.index(max(sights)),
    )


def _chat(page: Any) -> None:
    page.click("#pages button[role=tab]:has-text('Chat')")
    page.fill("#chat-prompt textarea", CHAT)
    page.click("#chat-run")
    page.wait_for_selector("#chat .dart-turn.assistant[data-state=done]")
    page.wait_for_selector("#chat-run:not([disabled])")
    page.mouse.move(0, 0)


def _save(what: Any, path: Path, **options: Any) -> None:
    """A picture of a page, or of a part of it."""
    getattr(what, "page", what).wait_for_timeout(600)  # plots are drawn, a bar has its width
    what.screenshot(path=path, **options)


if __name__ == "__main__":
    sys.exit(main())
