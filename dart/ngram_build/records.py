"""The text of a record: a JSON object of a line, or a row of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Render = Callable[[Sequence[Mapping[str, Any]]], str]

FIELDS = ("messages", "text", "content", "prompt")  # the first that is there has the text
BROKEN = (ValueError, KeyError, TypeError, RecursionError)  # what a broken record raises


def chat_renderer(tokenizer: Any) -> Render:
    """How the messages of a chat become one text: the tokenizer's template, else line by line."""
    if getattr(tokenizer, "chat_template", None) is None:
        return lambda messages: "\n".join(str(message["content"]) for message in messages)
    from jinja2 import TemplateError

    def render(messages: Sequence[Mapping[str, Any]]) -> str:
        try:
            return tokenizer.apply_chat_template(list(messages), tokenize=False)
        except TemplateError as error:
            raise ValueError(f"the chat template says: {error}") from error

    return render


def text_of(record: Any, render: Render, column: str | None = None) -> str:
    """The text of one record.

    column  the field that holds it: a string or messages; None: the first of FIELDS
    raises  one of BROKEN that says what is wrong with the record
    """
    if not isinstance(record, Mapping):
        raise TypeError(f"it is {type(record).__name__}")
    fields = FIELDS if column is None else (column,)
    value = next((record[name] for name in fields if record.get(name) is not None), None)
    if value is None:
        raise KeyError(f"it has {', '.join(map(str, record)) or 'nothing'}")
    if isinstance(value, list):
        value = render(value)
    return checked(value)


def checked(text: Any) -> str:
    """The text, if a tokenizer can take it."""
    if not isinstance(text, str):
        raise TypeError(f"a text is {type(text).__name__}")
    text.encode()  # raises where half a surrogate pair stands alone
    return text
