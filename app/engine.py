"""The model of this app: loaded in the background, decoding one text at a time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

from app.job import Job
from app.lanes import Mode, decode
from app.pieces import TokenTexts
from app.race import Batches, Race
from app.settings import Settings
from dart.errors import ConfigError, DartError

if TYPE_CHECKING:
    from dart.decode import Step

log = logging.getLogger(__name__)

Message = dict[str, str]
Report = Callable[[str], None]


class Model(Protocol):
    """What the app needs of a DartModel."""

    @property
    def tokenizer(self) -> Any: ...

    @property
    def decoders(self) -> tuple[str, ...]: ...

    @property
    def stream(self) -> Callable[..., Generator[Step, None, None]]: ...


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model and what the page says about it.

    encode   chat messages -> prompt ids
    context  tokens that prompt and answer may reach together
    memory   bytes held at the moment, and where
    """

    model: Model
    encode: Callable[[Sequence[Message]], list[int]]
    name: str
    parameters: int
    device: str
    dtype: str
    context: int
    is_demo: bool
    memory: Callable[[], tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be decoded; `settings.decoder` means nothing here. Plain values: it is pickled."""

    prompt_ids: list[int]
    decoders: tuple[str, ...]
    mode: Mode
    settings: Settings


# Its records; nothing is done before the first batch is asked for.
Decode = Callable[[Task], Batches]


@dataclass(frozen=True, slots=True)
class Status:
    """Where loading stands; `text` is the stage, or the reason where it failed."""

    state: Literal["loading", "ready", "failed"]
    text: str
    seconds: float


class NotReadyError(DartError):
    """A run was asked for before the model was there."""


class Engine:
    """Owns the model and the lock that lets one text at a time be decoded.

    load   brings the model, calling its argument with the name of each stage it enters
    route  takes the decoding in this process and gives the one to use; None: the same
    """

    def __init__(
        self, load: Callable[[Report], Loaded], route: Callable[[Decode], Decode] | None = None
    ) -> None:
        self._load = load
        self._decode = self._decode_here if route is None else route(self._decode_here)
        self._guard = threading.Lock()
        self._decoding = threading.Lock()
        self._loaded: Loaded | None = None
        self._token_texts: TokenTexts | None = None
        self._status = Status("loading", "Starting", 0.0)
        self._since = time.monotonic()
        self._loading = False

    def load(self) -> None:
        """Begin to load, or begin again after a failure; returns at once."""
        if self._begin_to_load():
            threading.Thread(target=self._run_load, name="dart-load", daemon=True).start()

    def load_now(self) -> None:
        """Load on this thread; NotReadyError with the reason where that fails."""
        if self._begin_to_load():
            self._run_load()
        _ = self.loaded

    def _begin_to_load(self) -> bool:
        with self._guard:
            if self._loading or self._loaded is not None:
                return False
            self._loading = True
            self._since = time.monotonic()
            self._status = Status("loading", "Starting", 0.0)
            return True

    def _run_load(self) -> None:
        def report(stage: str) -> None:
            self._status = Status("loading", stage, 0.0)

        try:
            self._loaded = self._load(report)
            self._status = Status("ready", "Ready", time.monotonic() - self._since)
        except DartError as error:
            self._status = Status("failed", str(error), 0.0)
        except Exception as error:
            # A page that waits for ever is worse than one that says it does not know why.
            log.exception("the model could not be loaded")
            reason = f"Loading failed ({type(error).__name__}: {error}); the log has more."
            self._status = Status("failed", reason, 0.0)
        finally:
            with self._guard:
                self._loading = False

    @property
    def status(self) -> Status:
        """Where loading stands now."""
        status = self._status
        if status.state == "loading":
            return Status("loading", status.text, time.monotonic() - self._since)
        return status

    @property
    def loaded(self) -> Loaded:
        """The model; NotReadyError with the reason where there is none."""
        if self._loaded is not None:
            return self._loaded
        status = self.status
        if status.state == "failed":
            raise NotReadyError(f"There is no model to run: {status.text}")
        raise NotReadyError(
            f"The model is still loading ({status.text.lower()}, {status.seconds:.0f} s so far). "
            "Try again when the header says ready."
        )

    def prompt_ids(self, messages: Sequence[Message], max_tokens: int) -> tuple[list[int], int]:
        """Ids of the chat and the number of its oldest messages left out to make room."""
        loaded = self.loaded
        room = loaded.context - min(max_tokens, loaded.context // 2)
        dropped = 0
        ids = loaded.encode(messages)
        while len(ids) > room and len(messages) - dropped > 2:
            dropped += 2  # a question and its answer
            ids = loaded.encode(messages[dropped:])
        return ids, dropped

    def start(self, prompt_ids: list[int], settings: Settings) -> Job:
        """Decode in a thread; it waits there until the text before it is done."""
        batches = self._batches(Task(prompt_ids, (settings.decoder,), "race", settings))
        return Job(settings.decoder, batches, self.loaded.model.tokenizer, self._decoding)

    def start_race(
        self, prompt_ids: list[int], decoders: Sequence[str], mode: Mode, settings: Settings
    ) -> Race:
        """The same with several decoders, whatever `settings.decoder` says."""
        batches = self._batches(Task(prompt_ids, tuple(decoders), mode, settings))
        return Race(decoders, batches, self._decoding)

    @property
    def token_texts(self) -> TokenTexts:
        """Texts of single tokens of the model that is loaded, kept for all visitors."""
        if self._token_texts is None:
            self._token_texts = TokenTexts(self.loaded.model.tokenizer)
        return self._token_texts

    def _batches(self, task: Task) -> Batches:
        able = self.loaded.model.decoders
        for name in task.decoders:
            if name not in able:
                raise ConfigError(f"decoder is {name!r}; this model can run {', '.join(able)}.")
        return self._decode(task)

    def _decode_here(self, task: Task) -> Batches:
        loaded = self.loaded
        options = {**task.settings.stream_options(), "max_length": loaded.context}
        stream = loaded.model.stream
        lanes = {name: partial(stream, task.prompt_ids, name, **options) for name in task.decoders}
        return decode(lanes, task.mode)
