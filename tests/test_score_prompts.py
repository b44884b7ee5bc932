"""The prompts of the score's tables, and the texts that it is fitted to."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dart.bench.prompts import read_prompts
from dart.model.dart_model import DEMO, DartModel
from dart.train.calibration_texts import answered, prompts_by_kind, prose
from dart.train.corpus import functions_in
from dart.train.pairs import Document, fence
from dart.train.prompts import chat, chats, edits, own_functions
from dart.train.score_cli import answer

ROOT = Path(__file__).parents[1]
PROSE = [f"Paragraph {number}." for number in range(9)]
CODE = '''def scale(values, factor):
    """Multiply every value by a factor."""
    scaled = [value * factor for value in values]
    return scaled
'''


@pytest.mark.parametrize("task", ["edit", "chat", "prose"])
def test_there_are_prompts_of_every_kind(task: str) -> None:
    """Prevents a table whose row is a handful of texts, or texts of another kind."""
    prompts = read_prompts(DEMO / "prompts" / f"{task}.jsonl")
    assert len(prompts) >= 24
    assert {prompt.task for prompt in prompts} == {task}
    texts = [prompt.messages[-1]["content"] for prompt in prompts]
    others = {p.messages[-1]["content"] for p in read_prompts(DEMO / "prompts" / "heldout.jsonl")}
    if task != "chat":  # where the last turn may be "Repeat this function."
        assert len(set(texts)) == len(texts)
        assert others.isdisjoint(texts)
    turns = {len(prompt.messages) for prompt in prompts}
    assert turns == ({3, 5} if task == "chat" else {1})


def test_a_chat_s_earlier_answers_are_the_model_s_own() -> None:
    """Prevents chats that the model would never have been in."""
    model = DartModel.demo()
    messages = list(read_prompts(DEMO / "prompts" / "chat.jsonl")[1].messages)
    for turn in range(1, len(messages), 2):
        assert messages[turn]["role"] == "assistant"
        assert answer(model, messages[:turn]) == messages[turn]["content"]


def test_an_edit_shows_the_function_that_it_is_about() -> None:
    """Prevents edits whose answer cannot be told from the prompt."""
    functions = own_functions(ROOT)
    assert len(functions) > 300
    assert functions == own_functions(ROOT)
    made = list(edits(functions[:60], seed=1, longest=500))
    assert {kind for _, kind in made} == {"rename", "docstring", "repeat"}
    assert made == list(edits(functions[:60], seed=1, longest=500))
    for prompt, _ in made:
        assert prompt.endswith("```")
        assert len(prompt) < 650


def test_a_chat_stops_where_there_is_nothing_to_change() -> None:
    """Prevents requests to rename what an answer without code never named."""
    (function,) = functions_in(CODE, "x")
    choose = random.Random(1)
    made = chat(function, 3, lambda messages: fence(CODE), choose)
    assert made is not None
    assert [message["role"] for message in made] == ["user", "assistant"] * 2 + ["user"]
    assert chat(function, 2, lambda messages: "I do not know.", choose) is None
    assert [len(each) for each in chats([function] * 3, lambda _: fence(CODE), seed=1)] == [3, 5, 3]


def test_nothing_is_fitted_to_what_the_benchmark_asks() -> None:
    """Prevents a fit that has seen the functions it is measured on."""

    def document(kind: str, name: str, package: str = "x") -> Document:
        code = CODE.replace("scale", name)
        shown = f"Change {name}.\n\n{fence(code)}" if kind == "repeat" else f"Write {name}."
        return Document(
            kind=kind, prompt=shown, answer=fence(code.rstrip()), package=package, key=name,
            is_held_out=True,
        )  # fmt: skip

    names = [f"scale_{letter}" for letter in "abcdef"]
    documents = [document(kind, name) for name in names for kind in ("write", "repeat")]
    documents += [document("write", "made", "synthetic")]
    asked = {"Write scale_a."}
    made = prompts_by_kind(documents, asked, PROSE, lambda _: fence(CODE), count=4, seed=1)
    assert {kind: len(some) for kind, some in made.items()} == {
        "write": 4, "explain": 0, "edit": 4, "chat": 4, "prose": 4,
    }  # fmt: skip
    said = [message["content"] for some in made.values() for each in some for message in each]
    assert not any("scale_a" in text for text in said)
    assert "Write made." in [each[0]["content"] for each in made["write"]]  # rare, and yet there
    again = prompts_by_kind(documents, asked, PROSE, lambda _: fence(CODE), count=4, seed=1)
    assert again == made


def test_prose_is_plain(tmp_path: Path) -> None:
    """Prevents doctests and tables in the place of sentences, and what the corpus holds, too."""
    plain = "Whoever calls this has to wait until the answer has come, however long it takes. " * 3
    code = plain.replace("wait", "wait(1)")
    (tmp_path / "test").mkdir()
    for name in ("a.py", "test/b.py"):
        paragraphs = f"{plain}\n\n{plain.lower()}\n\n{code}\n\nShort."
        (tmp_path / name).write_text(
            f'"""First sentence, {name}.\n\n{paragraphs}\n\nFor {name}: {plain}"""\n'
        )
    (tmp_path / "c.py").write_text("def broken(")
    assert list(prose(tmp_path)) == [plain.strip(), f"For a.py: {plain.strip()}"]


def test_a_text_in_circles_is_not_fitted_to() -> None:
    """Prevents a fit that takes every repetition for certain."""
    model = DartModel.demo()
    story = "Continue this text.\n\nThe old lighthouse keeper had not spoken to anyone for weeks."
    prompts = [[{"role": "user", "content": text}] for text in ("Write a function to add.", story)]
    texts = list(answered(model, prompts[:1] + [prompts[1]] * 2, seed=1))
    ids, start = texts[0]
    assert ids[:start] == model.encode(prompts[0])
    assert ids[-1] in model.target.eos_token_ids
    assert len(texts) < 3  # the greedy story goes in circles
