"""Benchmark prompts: a JSONL file, one conversation a line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dart.errors import ConfigError

_EXPECTED = '{"prompt": "..."} or {"messages": [{"role": "...", "content": "..."}]}'


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation that waits for an answer.

    name  its "id", else its line number
    task  its "task" or "kind", "" where there is neither
    """

    name: str
    messages: tuple[dict[str, str], ...]
    task: str = ""


def read_prompts(path: str | Path, limit: int | None = None) -> list[Prompt]:
    """Read the prompts of a file, the first `limit` of them.

    raises  ConfigError that names the line where one cannot be read
    """
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the prompts in {path} cannot be read: {error}") from error
    prompts: list[Prompt] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if limit is not None and len(prompts) == limit:
            break
        try:
            prompts.append(_prompt(json.loads(line), str(number)))
        except ValueError as error:
            raise ConfigError(f"{path}, line {number}: {error}; expected {_EXPECTED}.") from error
    if not prompts:
        raise ConfigError(f"{path} holds no prompts; expected lines of {_EXPECTED}.")
    return prompts


def _prompt(record: Any, number: str) -> Prompt:
    if not isinstance(record, dict):
        raise ValueError(f"{type(record).__name__} is no JSON object")
    name, task = str(record.get("id", number)), str(record.get("task", record.get("kind", "")))
    if isinstance(record.get("prompt"), str):
        return Prompt(name, ({"role": "user", "content": record["prompt"]},), task)
    messages = record.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ValueError("neither a prompt (a string) nor messages (a list) is there")
    for message in messages:
        fields = message if isinstance(message, dict) else {}
        if not all(isinstance(fields.get(key), str) for key in ("role", "content")):
            raise ValueError("a message lacks its role or content")
    return Prompt(name, tuple({k: m[k] for k in ("role", "content")} for m in messages), task)
