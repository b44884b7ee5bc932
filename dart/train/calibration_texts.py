"""Texts to fit the search's score to: the target's own answers to prompts of every kind.

The kinds are those that the benchmark's tables tell apart, so that the fit sees what n-grams are
worth early and late in a text, in code and in prose, where a text repeats itself and where not.
Nothing here is asked by the benchmark or counted by the store: the functions are of the held-out
split, less those of the benchmark's prompts; the prose is the standard library's.
"""

from __future__ import annotations

import ast
import random
import re
import sysconfig
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from dart.model.dart_model import DartModel
from dart.stats import is_loop
from dart.train.continuations import TEMPERATURES
from dart.train.corpus import SKIPPED_PARTS, Function, functions_in
from dart.train.evaluate import code_of
from dart.train.pairs import Document
from dart.train.prompts import Messages, chats
from dart.train.synthetic import PACKAGE

KINDS = {
    "write": ("write",),
    "explain": ("explain",),
    "edit": ("rename", "docstring", "repeat", "complete"),
}
MAX_NEW_TOKENS = 256
_CODE = re.compile(r"https?:|[`|<>*_#\[\]{}=()'\"\\]|::")


def prompts_by_kind(
    documents: Sequence[Document],
    asked: Collection[str],
    paragraphs: Iterable[str],
    answer: Callable[[Messages], str],
    *,
    count: int,
    seed: int,
) -> dict[str, list[Messages]]:
    """Up to `count` prompts of each kind.

    documents  the held-out split
    asked      the benchmark's prompts; what shares a function with one of them is left out
    paragraphs of prose
    answer     the model's answer to a chat
    """
    taken = {document.key for document in documents if document.prompt in asked}
    left = [d for d in documents if d.key not in taken and d.prompt not in asked]
    random.Random(seed).shuffle(left)
    found: dict[str, list[Messages]] = {}
    for name, kinds in KINDS.items():
        some = [d for d in left if d.kind in kinds]
        prompts = dict.fromkeys(d.prompt for d in _mixed(some))
        found[name] = [[_user(prompt)] for prompt in islice(prompts, count)]
    functions = _mixed([d for d in left if d.kind == "write"])
    shown = {f.key: f for f in map(_function, functions) if f is not None}
    found["chat"] = list(islice(chats([*shown.values()], answer, seed=seed), count))
    distinct = sorted(set(paragraphs))
    random.Random(seed).shuffle(distinct)
    found["prose"] = [[_user(paragraph)] for paragraph in distinct[:count]]
    return found


def _mixed(documents: Sequence[Document]) -> list[Document]:
    """Synthetic functions and others by turns, as the demo is used, while both last."""
    groups = [[d for d in documents if (d.package == PACKAGE) == own] for own in (True, False)]
    pairs = [d for pair in zip(*groups, strict=False) for d in pair]
    return pairs + max(groups, key=len)[len(pairs) // 2 :]


def _function(document: Document) -> Function | None:
    code = code_of(document.answer) or ""
    return next(functions_in(code, document.package), None)


def _user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def prose(root: Path | None = None) -> Iterator[str]:
    """Plain paragraphs of the docstrings of a folder, the standard library's by default.

    Of a docstring the corpus has the first sentence only, these are of what comes behind the first
    paragraph.
    """
    root = root or Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        if SKIPPED_PARTS & set(path.relative_to(root).parts):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                paragraphs = re.split(r"\n\s*\n", ast.get_docstring(node) or "")[1:]
                lines = (" ".join(paragraph.split()) for paragraph in paragraphs)
                yield from (line for line in lines if _is_prose(line))


def _is_prose(paragraph: str) -> bool:
    return (
        150 <= len(paragraph) <= 450
        and paragraph.isascii()
        and paragraph[0].isupper()
        and paragraph.endswith(".")
        and not _CODE.search(paragraph)
    )


def answered(
    model: DartModel, prompts: Iterable[Messages], *, seed: int
) -> Iterator[tuple[list[int], int]]:
    """Ids of prompt and answer, and the length of the prompt; greedy and sampled by turns.

    Answers that go in circles are left out: there any repetition is certain, elsewhere it is not.
    """
    for number, messages in enumerate(prompts):
        ids = model.encode(messages)
        steps = model.stream(
            ids,
            temperature=TEMPERATURES[number % len(TEMPERATURES)],
            seed=seed + number,
            max_new_token_num=MAX_NEW_TOKENS,
        )
        tokens = [token for step in steps for token in step.tokens]
        if not is_loop(tokens):
            yield [*ids, *tokens], len(ids)
