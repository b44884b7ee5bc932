"""Many visitors at once: everybody gets their own text, nothing is lost, memory stays flat.

    python -m tests.visitors --visitors 10 --seconds 120 --json assets/results/visitors.json

Every visitor has a session and prompts of their own, every other one samples with a seed of their
own, and all take turns at the API's `generate` and `race` and at the page's own race and chat. What
they get is compared with what a lone visitor got for the same prompt. The app runs in a process of
its own, on the embedded model.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLate
from dataclasses import asdict, dataclass
from typing import Any

import gradio_client
import httpx
from gradio_client.utils import QueueError

from dart.bench.prompts import read_prompts
from dart.bench.report import provenance, spread
from dart.cli.common import add_json_argument, write_json
from tests.app_process import ROOT, RunningApp, running_app
from tests.page_session import PageSession, RefusedError

SCHEMA = 1
PROMPTS = ROOT / "assets" / "demo" / "prompts" / "heldout.jsonl"
PROMPTS_EACH = 3
PATIENCE_SECONDS = 120.0  # an answer that takes longer is lost
SAMPLE_SECONDS = 5.0
SETTLE_SECONDS = 15.0
# From half time on: before that, the sessions, which are kept for an hour with their last race and
# chat, and the allocators of C and of PyTorch come to what they need at the busiest moment.
MAX_GROWTH_BYTES = 50e6


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt with its settings, and the text that a lone visitor got."""

    prompt: str
    temperature: float
    seed: int
    max_tokens: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a request ended.

    outcome  "right", "wrong" (another text), "refused" (the queue is full), "failed" (an error) or
             "lost" (nothing came)
    """

    visitor: int
    way: str
    seconds: float
    outcome: str
    detail: str = ""


class Visitor:
    """Somebody with a session on the page and another one on the API."""

    def __init__(self, number: int, url: str, questions: Sequence[Question]) -> None:
        self.number = number
        self.questions = questions
        self._api = gradio_client.Client(url, verbose=False)
        self._page = PageSession(url, PATIENCE_SECONDS)

    def __enter__(self) -> Visitor:
        return self

    def __exit__(self, *_: object) -> None:
        self._page.__exit__(None, None, None)
        self._api.close()

    def ask(self, way: str, question: Question) -> Answer:
        """One request and what became of it."""
        began = time.monotonic()
        try:
            texts = WAYS[way](self, question)
        except QueueError as error:
            outcome, detail = "refused", str(error)
        except (TooLate, httpx.TimeoutException) as error:
            outcome, detail = "lost", repr(error)
        except (RefusedError, ValueError, httpx.HTTPError) as error:  # AppError is a ValueError
            is_full = "places in the queue are taken" in str(error)
            outcome, detail = ("refused" if is_full else "failed"), str(error)
        else:
            wrong = [text for text in texts if text != question.text]
            outcome = "wrong" if wrong or not texts else "right"
            detail = wrong[0] if wrong else ""
        return Answer(self.number, way, time.monotonic() - began, outcome, detail)

    def generate(self, question: Question, decoder: str = "dart") -> list[str]:
        """The API's `generate`."""
        answer = self._call("/generate", decoder=decoder, **_api_options(question))
        return [answer["text"]]

    def race(self, question: Question) -> list[str]:
        """The API's `race`: the text of each decoder."""
        trace = self._call("/race", **_api_options(question))
        texts = dict.fromkeys(trace["decoders"], "")
        for event in trace["events"]:
            if event["kind"] == "step":
                texts[event["decoder"]] += "".join(text for _, text, _ in event["tokens"])
        return [*texts.values()] if trace["prompt"] == question.prompt else []

    def page_race(self, question: Question) -> list[str]:
        """The race page: the text of each pane."""
        race = self._page.race(question.prompt, **_form(question))
        is_mine = race["prompt"] == question.prompt and race["state"] == "finished"
        return [*race["texts"].values()] if is_mine else []

    def page_chat(self, question: Question) -> list[str]:
        """The chat's answer to a first question."""
        return [self._page.chat(question.prompt, **_form(question))]

    def _call(self, api_name: str, **options: Any) -> Any:
        job = self._api.submit(api_name=api_name, **options)
        return job.result(timeout=PATIENCE_SECONDS)


WAYS: dict[str, Callable[[Visitor, Question], list[str]]] = {
    "generate": Visitor.generate,
    "race": Visitor.race,
    "page_race": Visitor.page_race,
    "page_chat": Visitor.page_chat,
}


def _api_options(question: Question) -> dict[str, Any]:
    return {name: value for name, value in asdict(question).items() if name != "text"}


def _form(question: Question) -> dict[str, Any]:
    return {
        "temperature": question.temperature,
        "seed": question.seed,
        "max-tokens": question.max_tokens,
    }


def questions_of(number: int, prompts: Sequence[str], max_tokens: int) -> list[Question]:
    """A visitor's questions, still without the texts; every other visitor samples."""
    temperature, seed = (0.8, 100 + number) if number % 2 else (0.0, 0)
    return [Question(prompt, temperature, seed, max_tokens) for prompt in prompts]


def answered_alone(url: str, questions: Sequence[Question]) -> list[Question]:
    """The questions with their texts, by plain decoding while nobody else is there."""
    with Visitor(-1, url, questions) as lone:
        texts = [lone.generate(question, "baseline")[0] for question in questions]
    return [
        Question(**{**asdict(question), "text": text})
        for question, text in zip(questions, texts, strict=True)
    ]


def visit(url: str, questions: Sequence[Sequence[Question]], seconds: float) -> list[Answer]:
    """All visitors at once, each asking again and again; every one tries every way.

    questions  by visitor
    seconds    in which requests begin; those that have begun are waited for
    """
    start = threading.Barrier(len(questions))

    def stay(number: int) -> list[Answer]:
        with Visitor(number, url, questions[number]) as visitor:
            start.wait(PATIENCE_SECONDS)
            deadline, answers = time.monotonic() + seconds, []
            while time.monotonic() < deadline or len(answers) < len(WAYS):
                turn = number + len(answers)
                question = visitor.questions[turn // len(WAYS) % len(visitor.questions)]
                answers.append(visitor.ask([*WAYS][turn % len(WAYS)], question))
            return answers

    with ThreadPoolExecutor(len(questions)) as pool:
        return [answer for each in pool.map(stay, range(len(questions))) for answer in each]


class MemoryWatch:
    """The app's resident memory every few seconds, from a thread of its own."""

    def __init__(self, app: RunningApp) -> None:
        self._app, self._ended = app, threading.Event()
        self._began = time.monotonic()
        self.samples: list[dict[str, float]] = []
        self.look()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def look(self) -> float:
        """Bytes now."""
        held = self._app.resident_bytes()
        at = round(time.monotonic() - self._began, 1)
        self.samples.append({"seconds": at, "bytes": held})
        return held

    def end(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            self.look()


def summarize(answers: Sequence[Answer]) -> dict[str, Any]:
    """Counts by way and outcome, waiting times, what went wrong."""
    ways = {}
    for way in WAYS:
        own = [answer for answer in answers if answer.way == way]
        ways[way] = {
            **Counter(answer.outcome for answer in own),
            "seconds": spread([answer.seconds for answer in own]),
        }
    bad = [asdict(each) for each in answers if each.outcome not in ("right", "refused")]
    return {"requests": len(answers), "ways": ways, "not_right": bad}


def late_growth(samples: Sequence[dict[str, float]], half_time: float) -> float:
    """Bytes held at the end beyond those at half time (seconds)."""
    then = next(sample for sample in samples if sample["seconds"] >= half_time)
    return samples[-1]["bytes"] - then["bytes"]


def problems(answers: Sequence[Answer], growth: float) -> list[str]:
    """What must not be, in words."""
    found = [
        f"{count} answers were {outcome}"
        for outcome, count in Counter(answer.outcome for answer in answers).items()
        if outcome not in ("right", "refused")
    ]
    served = {answer.visitor for answer in answers if answer.outcome == "right"}
    if starved := {answer.visitor for answer in answers} - served:
        found.append(f"visitors {sorted(starved)} never got an answer")
    if growth > MAX_GROWTH_BYTES:
        found.append(f"the app holds {growth / 1e6:.0f} MB more than at half time")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Let them come; the exit code, 1 where a check failed."""
    argv = sys.argv[1:] if argv is None else argv
    flags = argparse.ArgumentParser(
        prog="python -m tests.visitors",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    flags.add_argument("--visitors", type=int, default=10, metavar="N")
    flags.add_argument("--seconds", type=float, default=120.0, metavar="S")
    flags.add_argument("--max-new-tokens", type=int, default=64, metavar="N")
    add_json_argument(flags)
    args = flags.parse_args(argv)
    prompts = [prompt.messages[0]["content"].strip() for prompt in read_prompts(PROMPTS)]
    if not 1 <= args.visitors <= len(prompts) // PROMPTS_EACH:
        flags.error(f"--visitors takes 1 to {len(prompts) // PROMPTS_EACH}")
    with running_app() as app:
        wait_ready(app.url)
        questions = [
            answered_alone(
                app.url,
                questions_of(
                    number, prompts[number :: args.visitors][:PROMPTS_EACH], args.max_new_tokens
                ),
            )
            for number in range(args.visitors)
        ]
        # Every way once: threads, allocators and caches have then what so many visitors need.
        visit(app.url, questions, 0)
        memory = MemoryWatch(app)
        answers = visit(app.url, questions, args.seconds)
        time.sleep(SETTLE_SECONDS)
        memory.look()
        memory.end()
    growth = late_growth(memory.samples, args.seconds / 2)
    found = problems(answers, growth)
    made_by = provenance(argv, "tests.visitors")
    del made_by["threads"]  # this process decodes nothing
    result = {
        "schema": SCHEMA,
        **summarize(answers),
        "memory": {"late_growth_bytes": growth, "samples": memory.samples},
        "problems": found,
        "settings": {
            "visitors": args.visitors,
            "seconds": args.seconds,
            "max_new_tokens": args.max_new_tokens,
        },
        "provenance": made_by,
    }
    print(table(result))
    if args.json:
        write_json(args.json, result)
    return 1 if found else 0


def wait_ready(url: str) -> None:
    """Until the model is there; RuntimeError where it never comes."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    client = gradio_client.Client(url, verbose=False)
    try:
        while True:
            try:
                client.predict("Hello", max_tokens=1, api_name="/generate")
            except ValueError as error:
                if "still loading" not in str(error) or time.monotonic() > deadline:
                    raise RuntimeError(f"the app has no model: {error}") from error
                time.sleep(0.5)
            else:
                return
    finally:
        client.close()


def table(result: dict[str, Any]) -> str:
    """The figures for people."""
    lines = [f"{result['settings']['visitors']} visitors, {result['requests']} requests"]
    for way, figures in result["ways"].items():
        counts = ", ".join(
            f"{count} {name}" for name, count in figures.items() if name != "seconds"
        )
        seconds = figures["seconds"]
        took = f", {seconds['median']:.1f} s, at most {seconds['max']:.1f} s" if seconds else ""
        lines.append(f"{way:10} {counts}{took}")
    held = [sample["bytes"] / 1e6 for sample in result["memory"]["samples"]]
    late = result["memory"]["late_growth_bytes"] / 1e6
    lines.append(
        f"memory: {held[0]:.0f} MB before, {max(held):.0f} at most, {held[-1]:.0f} after, "
        f"{late:+.0f} since half time"
    )
    lines += [f"PROBLEM: {problem}" for problem in result["problems"]]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
