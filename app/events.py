"""How the page's events reach Gradio: shared queue, quiet options, and errors as toasts."""

from __future__ import annotations

import functools
import html
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import gradio as gr

from app.settings import check_length
from dart.errors import DartError

ENGINE_QUEUE = "engine"  # one text at a time, whoever asks: the page or the API
QUEUE_SIZE = 32  # visitors who may wait; ZeroGPU's default would be one

QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
FREE: dict[str, Any] = {**QUIET, "concurrency_limit": None}
AT_ONCE: dict[str, Any] = {**QUIET, "queue": False}
ON_THE_ENGINE: dict[str, Any] = {"concurrency_id": ENGINE_QUEUE, "concurrency_limit": 1}


class Visited(Protocol):
    """What a page keeps of a visitor; `number` tells what was begun last from all before."""

    @property
    def is_busy(self) -> bool: ...

    @property
    def number(self) -> int: ...


def has_moved_on(mine: Visited, number: float | None) -> bool:
    """Whether something else has begun since what an event of this number is to settle.

    One of `success` and `failure` comes after an end, an error or a full queue. After a stop both
    may come, and the second late.
    """
    return mine.is_busy and mine.number != number


def toast(error: DartError) -> gr.Error:
    """What shows an error to the visitor."""
    # Gradio renders the message as HTML, and a message may quote what a visitor or a model wrote.
    return gr.Error(
        html.escape(str(error), quote=False), title="That did not work", print_exception=False
    )


def toasts(handler: Callable[..., Any]) -> Callable[..., Any]:
    """The handler, its DartErrors shown to the visitor."""

    @functools.wraps(handler)
    def wrapped(*args: Any, **named: Any) -> Any:
        try:
            return handler(*args, **named)
        except DartError as error:
            raise toast(error) from error

    return wrapped


def toasts_while(handler: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """The same for a generator."""

    @functools.wraps(handler)
    def wrapped(*args: Any) -> Iterator[Any]:
        try:
            yield from handler(*args)
        except DartError as error:
            raise toast(error) from error

    return wrapped


def validate_prompt(state: Any, text: str, *values: Any) -> list[Any]:
    """Refuse a prompt before it takes a place in the queue; the handler checks once more."""
    try:
        check_length(text)
    except DartError as error:
        verdict = gr.validate(False, html.escape(str(error), quote=False))
    else:
        verdict = gr.validate(True, "")
    return [gr.validate(True, ""), verdict, *[gr.validate(True, "")] * len(values)]
