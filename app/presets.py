"""Prompts to begin with: those of the chat, and those that show what speculation depends on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

EXAMPLES_FILE = Path(__file__).parents[1] / "assets" / "demo" / "prompts" / "examples.jsonl"
_EXAMPLES = (
    ("Code", "Write a Python function that checks whether a number is prime."),
    ("Story", "Tell me a short story about a dog who finds a red ball in the garden."),
    ("List", "Count from one to thirty in words, separated by commas."),
    ("Explain", "Explain in simple words why the sky is blue."),
)


def examples(path: Path = EXAMPLES_FILE, limit: int = 4) -> list[dict[str, str]]:
    """Prompts to offer: those the demo model was made for where the file is there."""
    if not path.is_file():
        return [{"title": title, "prompt": prompt} for title, prompt in _EXAMPLES]
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
    return [
        {"title": str(line.get("title", "")), "prompt": str(line["prompt"])}
        for line in lines[:limit]
    ]


@dataclass(frozen=True, slots=True)
class Preset:
    """A race worth seeing.

    why   what it shows, in a sentence
    demo  the prompt for the demo model, which knows little but code
    """

    title: str
    why: str
    prompt: str
    demo: str
    temperature: float = 0.0


_COPIED = """

```python
def load_lines(path):
    \"\"\"Read a file into a list of lines.\"\"\"
    with open(path) as file:
        return [line.rstrip("\\n") for line in file]
```"""

PRESETS = (
    Preset(
        "Code",
        "Code follows few patterns: long drafts are accepted.",
        "Write a Python function that sorts a list with merge sort, with comments.",
        "Write a Python function to sort a list with merge sort.",
    ),
    Preset(
        "Chat",
        "Prose is less predictable than code: drafts are accepted, but shorter ones.",
        "Explain in simple words why the sky is blue and sunsets are red.",
        "What does `leap_year` do?",
    ),
    Preset(
        "Repetition",
        "The answer stands in the prompt, word for word: easy to foresee.",
        "Repeat this text three times, word for word: The quick brown fox jumps over the lazy dog "
        "while five boxing wizards watch from a garden wall and count every single jump.",
        "Copy this function." + _COPIED,
    ),
    Preset(
        "Chance",
        "At temperature 2 the target itself hardly knows what comes next: hardly a draft is "
        "accepted, and drafting costs more than it brings.",
        "Write down a hundred random words.",
        "Write down thirty random numbers.",
        temperature=2.0,
    ),
)
