"""The chat: what a visitor said, what came back, and what each button does to it.

Plain functions and generators over a Conversation; layout.py gives them to Gradio.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from app import views
from app.engine import Engine, Message
from app.job import Job, Snapshot
from app.pieces import TARGET
from app.pump import pump
from app.settings import Settings, check_prompt
from dart.errors import ConfigError, DartError

MAX_TURNS = 100  # kept per visitor; the model's context forgets long before

_turn_ids = count(1)


@dataclass
class Turn:
    """A question or an answer: `text` as it was said, `encoded` as the pane shows it."""

    role: str
    text: str = ""
    encoded: str = ""
    note: str = ""
    state: str = "done"  # of an answer: waiting, prefill, decoding, done
    id: int = field(default_factory=lambda: next(_turn_ids))

    def view(self) -> dict[str, Any]:
        """The turn as the page gets it."""
        return {
            "id": self.id,
            "role": self.role,
            "s": self.encoded,
            "note": self.note,
            "state": self.state,
        }


class Conversation:
    """One visitor's chat, kept on the server and changed in place by the handlers.

    settings  of the run that is on, or was last
    before    the answer that is being regenerated: its settings, text and speed
    """

    # No dataclass: Gradio would put the fields of one into the page.
    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.settings = Settings()
        self.job: Job | None = None
        self.last: Snapshot | None = None
        self.before: tuple[Settings, str, float] | None = None

    @property
    def is_busy(self) -> bool:
        """True from the question until the answer is settled."""
        return bool(self.turns) and self.turns[-1].state != "done"

    @property
    def number(self) -> int:
        """Of the last turn; an answer that is awaited has its own."""
        return self.turns[-1].id if self.turns else 0

    def messages(self) -> list[Message]:
        """What the model is to see: all but the pending answer and questions that got none."""
        turns = self.turns[:-1] if self.is_busy else self.turns
        pairs = zip(turns[::2], turns[1::2], strict=False)
        seen = [turn for pair in pairs if pair[1].text for turn in pair]
        seen += turns[-1:] if len(turns) % 2 else []
        return [{"role": turn.role, "content": turn.text} for turn in seen]

    def chat_view(self) -> dict[str, Any]:
        """Value of the chat pane."""
        return {"turns": [turn.view() for turn in self.turns], "busy": self.is_busy}

    def metrics_view(self) -> dict[str, Any]:
        """Value of the metrics strip."""
        return views.metrics(self.last, self.settings)


class ChatHandlers:
    """What the page's events do. All raise DartError, whose message is for the visitor."""

    def __init__(self, engine: Engine, hz: float = 20.0) -> None:
        self._engine = engine
        self._hz = hz

    def ask(self, conversation: Conversation, prompt: str, settings: Settings) -> None:
        """Add a question and the answer to come."""
        self._require_idle(conversation)
        self._add_question(conversation, check_prompt(prompt), settings)

    def edit(
        self, conversation: Conversation, turn_id: int, prompt: str, settings: Settings
    ) -> None:
        """Ask an earlier question in other words; what was said after it is forgotten."""
        self._require_idle(conversation)
        text = check_prompt(prompt)
        index = _index(conversation, turn_id, "user")
        conversation.turns = conversation.turns[:index]
        self._add_question(conversation, text, settings)

    def undo(self, conversation: Conversation) -> str:
        """Drop the last question and its answer; the question."""
        self._require_idle(conversation)
        if len(conversation.turns) < 2:
            raise ConfigError("There is nothing to undo.")
        question = conversation.turns[-2].text
        conversation.turns = conversation.turns[:-2]
        conversation.last = conversation.before = None
        return question

    def ask_again(
        self, conversation: Conversation, settings: Settings, turn_id: int | None = None
    ) -> None:
        """Drop an answer, the last one by default, and all behind it, and ask for another one."""
        self._require_idle(conversation)
        if len(conversation.turns) < 2:
            raise ConfigError("There is no answer yet to regenerate.")
        end = len(conversation.turns) - 1
        index = end if turn_id is None else _index(conversation, turn_id, "assistant")
        dropped = conversation.turns[index]
        conversation.turns = conversation.turns[:index]
        last = conversation.last
        conversation.before = None
        if index == end and last is not None and last.reason in ("eos", "length"):
            speed = last.statistics["tokens_per_second"] or 0.0
            conversation.before = (conversation.settings, dropped.text, speed)
        self._await_answer(conversation, settings)

    def answer(self, conversation: Conversation) -> Generator[Snapshot | None]:
        """Decode the pending answer; yields when there is something new to show, None else."""
        settings = conversation.settings
        turn = conversation.turns[-1]
        ids, dropped = self._engine.prompt_ids(conversation.messages(), settings.max_tokens)
        if dropped:
            turn.note = f"the {dropped} oldest messages were left out to fit the context"
        job = conversation.job = self._engine.start(ids, settings)
        with closing(pump(job, job.snapshot, self._hz)) as snapshots:
            for snapshot in snapshots:
                if snapshot is not None:
                    self._show(conversation, turn, snapshot)
                yield snapshot
        if conversation.last is not None and conversation.last.error:
            raise DartError(conversation.last.error)

    def halt(self, conversation: Conversation) -> None:
        """Let the answer end after the step it is at; settle brings the rest in order."""
        if conversation.job is not None:
            conversation.job.stop.set()

    def settle(self, conversation: Conversation) -> None:
        """Bring an answer to its end, however its run ended; harmless where there is none."""
        job, conversation.job = conversation.job, None
        if job is not None:
            job.stop.set()
            job.join(5.0)
        if not conversation.is_busy:
            return
        turn = conversation.turns[-1]
        if job is not None:
            self._show(conversation, turn, job.snapshot())
        note = turn.note
        if conversation.last is not None and job is not None:
            last, settings = conversation.last, conversation.settings
            parts = [views.turn_note(last, settings), note]
            if last.reason in ("eos", "length"):
                speed = last.statistics["tokens_per_second"] or 0.0
                parts.append(views.comparison(turn.text, speed, settings, conversation.before))
            note = " \u00b7 ".join(part for part in parts if part)
        turn.note = note or "stopped before it began"
        turn.state = "done"

    def clear(self, conversation: Conversation) -> None:
        """Forget everything said."""
        self.settle(conversation)
        conversation.turns = []
        conversation.last = conversation.before = None

    def _require_idle(self, conversation: Conversation) -> None:
        if conversation.is_busy:
            raise ConfigError("An answer is still being written: stop it first, or wait.")
        _ = self._engine.loaded  # raises while there is no model

    def _add_question(self, conversation: Conversation, text: str, settings: Settings) -> None:
        question = Turn("user", text, views.encode_pieces([(TARGET, text)]))
        conversation.before = None
        conversation.turns = [*conversation.turns[-MAX_TURNS:], question]
        self._await_answer(conversation, settings)

    def _await_answer(self, conversation: Conversation, settings: Settings) -> None:
        conversation.settings = settings
        conversation.last = None
        conversation.turns.append(Turn("assistant", state="waiting"))

    def _show(self, conversation: Conversation, turn: Turn, snapshot: Snapshot) -> None:
        if turn.state == "done":
            return  # settled by another event while this one was still looking
        conversation.last = snapshot
        turn.text, turn.encoded = snapshot.text, snapshot.encoded
        # "done" is settle's to say: until then the visitor cannot ask again.
        turn.state = "decoding" if snapshot.state == "finished" else snapshot.state


def _index(conversation: Conversation, turn_id: int, role: str) -> int:
    """Where in the conversation that turn is."""
    for index, turn in enumerate(conversation.turns):
        if turn.id == turn_id and turn.role == role:
            return index
    raise ConfigError("That message is no longer part of the conversation.")
