"""Prompts that find out where n-grams help: edits of a function, and chats of several turns.

Made of functions that no model of ours has seen. Which functions is the caller's business; so is
who answers the earlier turns of a chat.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from dart.train.corpus import Function, functions_in, read_functions
from dart.train.evaluate import code_of
from dart.train.pairs import SHOWN, fence, rename, request

Messages = list[dict[str, str]]
EDITS = ("rename", "docstring", "repeat")
SOURCES = ("app", "dart", "tests")
"""Folders of this project, whose functions are in no corpus: it is no dependency of itself."""


def own_functions(root: Path) -> list[Function]:
    """This project's functions, in an order that favours no file."""
    paths = (path for folder in SOURCES for path in sorted((root / folder).rglob("*.py")))
    found = {f.key: f for path in paths for f in read_functions(path, path.name)}
    return sorted(found.values(), key=lambda function: function.key)


def edit(function: Function, kind: str, choose: random.Random) -> str | None:
    """A request to edit a function that it shows; None where this edit cannot be made of it."""
    if kind == "rename":
        asked = rename(function, choose)
        return None if asked is None else asked[0]
    if kind == "docstring" and not function.summary:
        return None
    shown = function.bare if kind == "docstring" else function.documented
    return f"{choose.choice(SHOWN[kind])}\n\n{fence(shown)}"


def edits(functions: Iterable[Function], *, seed: int, longest: int) -> Iterator[tuple[str, str]]:
    """One edit of each function that allows one, the kinds taking turns, and its kind.

    longest  characters of a function
    """
    choose, made = random.Random(seed), 0
    for function in functions:
        kind = EDITS[made % len(EDITS)]
        prompt = edit(function, kind, choose) if len(function.documented) <= longest else None
        if prompt is not None:
            made += 1
            yield prompt, kind


def chat(
    function: Function, turns: int, answer: Callable[[Messages], str], choose: random.Random
) -> Messages | None:
    """A request to write a function, then changes to what was answered; the last turn is open.

    Every other change shows the code it is about, as people paste it; the others just refer to it.

    answer   the model's answer to a chat
    returns  None where the function cannot be asked for, or an answer shows no function
    """
    if not function.summary:
        return None
    messages = [{"role": "user", "content": request(function, choose)}]
    for _ in range(turns - 1):
        said = answer(messages)
        shown = _shown(said)
        if shown is None:
            return None
        asked = edit(shown, choose.choice(EDITS), choose) or edit(shown, "repeat", choose)
        assert asked is not None
        if choose.random() < 0.5:
            asked = asked.partition("\n\n")[0]
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": asked}]
    return messages


def chats(
    functions: Sequence[Function], answer: Callable[[Messages], str], *, seed: int
) -> Iterator[Messages]:
    """A chat for each function that allows one, of two and of three turns by turns."""
    choose, made = random.Random(seed), 0
    for function in functions:
        messages = chat(function, 2 + made % 2, answer, choose)
        if messages is not None:
            made += 1
            yield messages


def _shown(answer: str) -> Function | None:
    """The first function of an answer."""
    return next(functions_in(code_of(answer) or "", "answer"), None)
