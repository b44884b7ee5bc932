"""Functions turned into documents: chat pairs in several wordings, and plain code.

Knows how requests are worded. Does not know tokens: a document is a prompt and an answer, or plain
text alone.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from dart.train.corpus import Function, is_held_out, parses


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A chat pair, or plain code where `prompt` is empty."""

    kind: str
    prompt: str
    answer: str
    package: str
    key: str  # identity of the function it was made of
    is_held_out: bool

    def to_json(self) -> dict[str, str | bool]:
        """Return the document as plain values."""
        return asdict(self)


_IMPERATIVES = """
Add Append Apply Approximate Assert Build Calculate Call Capitalize Check Clamp Collapse Collect
Combine Compare Compose Compress Compute Concatenate Convert Copy Count Create Cache Decode
Delete Determine Divide Download Draw Drop Encode Encrypt Estimate Evaluate Exchange Expand
Extract Factor Fetch Fill Filter Find Flatten Format Generate Get Give Greet Group Handle Insert
Interleave Invert Iterate Join Keep Limit List Load Make Map Measure Merge Move Multiply
Normalize Open Parse Pick Play Plot Print Process Produce Raise Read Register Remove Rename
Render Replace Reset Resolve Restore Retry Return Reverse Roll Rotate Run Save Scale Search
Select Send Set Shift Shorten Shuffle Solve Sort Split Strip Sum Swap Take Tell Test Tokenize
Transform Truncate Turn Update Validate Visit Write Yield
"""
IMPERATIVES = frozenset(_IMPERATIVES.split())

WITH_NAME = (
    "Write a Python {what} `{name}`. {summary}",
    "Write a Python {what} `{name}`. {summary}",
    "Write a Python {what} called `{name}`. {summary}",
    "Write a {what} `{call}` in Python. {summary}",
    "Implement `{name}` in Python. {summary}",
    "Implement a Python {what} `{call}`: {summary}",
    "Please write a Python {what} named {name}. {summary}",
    "{summary} Write it as a Python {what} `{name}`.",
    "How do I write a Python {what} `{name}`? {summary}",
)
WITHOUT_NAME = (
    "Write a Python {what} to {action}.",
    "Write a Python {what} that can {action}.",
    "Write Python code to {action}.",
    "How do I {action} in Python?",
    "{sentence}",
    "Write a {what} to {action}.",
    "Can you write a Python {what} to {action}?",
)
SHOWN = {
    "explain": (
        "What does this function do?",
        "Explain this function.",
        "Describe this function in one sentence.",
    ),
    "docstring": (
        "Add a docstring to this function.",
        "Write a docstring for this function.",
        "Document this code.",
    ),
    "repeat": ("Repeat this code.", "Repeat this function.", "Copy this function."),
    "complete": (
        "Complete this function.",
        "Finish this function.",
        "Write the body of this function.",
    ),
}
_NEW_NAMES = """
value item data result name size count total index key source target first second left right
start end text numbers values items path config options handler node parent child buffer lines
words limit offset
"""
NEW_NAMES = tuple(_NEW_NAMES.split())


def fence(code: str) -> str:
    """Return `code` in a Markdown code fence."""
    return f"```python\n{code}\n```"


def documents(function: Function, *, seed: int, copies: int) -> Iterator[Document]:
    """Yield one function's documents: `copies` requests to write it, fewer of other kinds."""
    choose = random.Random(f"{seed}-{function.key}-{function.summary}")

    def document(kind: str, prompt: str, answer: str) -> Document:
        return Document(
            kind=kind,
            prompt=prompt,
            answer=answer,
            package=function.package,
            key=function.key,
            is_held_out=is_held_out(function.key),
        )

    code = function.documented
    if not function.summary:
        if choose.random() < 0.5:
            yield document("plain", "", code)
        elif choose.random() < 0.5:
            yield document(
                "repeat", f"{choose.choice(SHOWN['repeat'])}\n\n{fence(code)}", fence(code)
            )
        elif (renamed := rename(function, choose)) is not None:
            yield document("rename", *renamed)
        return
    wordings: list[str] = []
    for _ in range(copies):
        wording = request(function, choose)
        if wording not in wordings:
            wordings.append(wording)
            yield document("write", wording, fence(code))
    if choose.random() < 0.3:
        yield document("explain", f"What does `{function.name}` do?", function.summary)
    if choose.random() < 0.25:
        yield document(
            "explain",
            f"{choose.choice(SHOWN['explain'])}\n\n{fence(function.bare)}",
            function.summary,
        )
    if choose.random() < 0.25:
        yield document(
            "docstring",
            f"{choose.choice(SHOWN['docstring'])}\n\n{fence(function.bare)}",
            fence(code),
        )
    if choose.random() < 0.07:
        yield document("repeat", f"{choose.choice(SHOWN['repeat'])}\n\n{fence(code)}", fence(code))
    if choose.random() < 0.12 and (renamed := rename(function, choose)) is not None:
        yield document("rename", *renamed)
    end = code.find('"""\n', code.find('"""') + 3)
    if choose.random() < 0.12 and end > 0 and code.startswith("def "):
        head = code[: end + 3]
        yield document(
            "complete", f"{choose.choice(SHOWN['complete'])}\n\n{fence(head)}", fence(code)
        )


def request(function: Function, choose: random.Random) -> str:
    """Word a request to write `function`."""
    what = "function"
    if function.is_method:
        what = "method"
    elif re.search(r"^class ", function.bare, re.MULTILINE):
        what = "class"
    summary = function.summary
    first, _, rest = summary.partition(" ")
    share = 0.5 if function.package == "synthetic" else 0.15
    if first in IMPERATIVES and choose.random() < share:
        action = f"{first.lower()} {rest}".rstrip(".")
        return choose.choice(WITHOUT_NAME).format(what=what, action=action, sentence=summary)
    return choose.choice(WITH_NAME).format(
        what=what, name=function.name, summary=summary, call=_call(function)
    )


def _call(function: Function) -> str:
    match = re.search(r"^def (\w+)\(([^()]*)\)", function.bare, re.MULTILINE)
    if match is None:
        return function.name
    arguments = [part.split(":")[0].split("=")[0].strip() for part in match[2].split(",")]
    return (
        f"{match[1]}({', '.join(a for a in arguments if a and a not in ('self', 'cls', '*', '/'))})"
    )


def rename(function: Function, choose: random.Random) -> tuple[str, str] | None:
    """Return a request to rename an argument or the function, and the answer, if one is safe."""
    code = function.documented
    tree = ast.parse(code)
    definition = next((node for node in tree.body if isinstance(node, ast.FunctionDef)), None)
    if definition is None:
        return None
    names = [a.arg for a in definition.args.args if a.arg not in ("self", "cls")] + [function.name]
    old = choose.choice(names)
    if old == function.name:
        new = f"{choose.choice(('do', 'run', 'make', 'my', 'new'))}_{old.strip('_')}"
    else:
        new = choose.choice(NEW_NAMES)
    if re.search(rf"\b{new}\b", code):
        return None
    answer = re.sub(rf"(?<![\w.]){old}\b", new, code)
    if answer == code or not parses(answer):
        return None
    return f"Rename `{old}` to `{new}` in this function.\n\n{fence(code)}", fence(answer)
