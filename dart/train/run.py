"""A training run's folder: metrics, a status line, atomic checkpoints, a clean stop."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import torch

CHECKPOINT = "checkpoint.pt"


class Run:
    """One run's folder. As a context manager it turns SIGINT and SIGTERM into `should_stop`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.should_stop = False
        folder.mkdir(parents=True, exist_ok=True)
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Run:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._stop)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.should_stop = True

    def log(self, **values: Any) -> None:
        """Append one line to metrics.jsonl."""
        line = {"time": round(time.time(), 1)}
        line |= {k: round(v, 5) if isinstance(v, float) else v for k, v in values.items()}
        with (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def describe(self, **settings: Any) -> None:
        """Write the settings to settings.json."""
        text = json.dumps(settings, indent=1) + "\n"
        (self.folder / "settings.json").write_text(text, encoding="utf-8")

    def status(self, text: str) -> None:
        """Write one line to STATUS."""
        (self.folder / "STATUS").write_text(
            f"{time.strftime('%H:%M:%S')} {text}\n", encoding="utf-8"
        )

    def save(self, state: dict[str, Any], name: str = CHECKPOINT) -> None:
        """Write a checkpoint; the old one stays whole until the new one is."""
        path = self.folder / name
        temporary = path.with_suffix(".tmp")
        torch.save(state, temporary)
        temporary.replace(path)

    def load(self, name: str = CHECKPOINT) -> dict[str, Any] | None:
        """Read the checkpoint, or None if there is none."""
        path = self.folder / name
        if not path.exists():
            return None
        return torch.load(path, map_location="cpu", weights_only=True)
