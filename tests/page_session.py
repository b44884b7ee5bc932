"""A visitor's session as the page's script holds it, spoken in HTTP and without a browser.

The Gradio clients refuse the page's own events, which are private. What is known here of Gradio's
protocol is what its page does: join the queue, listen until the event is over, call what hangs on
its success.
"""

from __future__ import annotations

import json
import secrets
from types import TracebackType
from typing import Any

import httpx

from app.views import decode_pieces

AS_THE_PAGE = {"x-gradio-user": "app"}


class RefusedError(Exception):
    """The server answered with words instead."""


class PageSession:
    """One visitor.

    seconds  of silence until the server counts as gone; httpx.TimeoutException is raised then
    """

    def __init__(self, url: str, seconds: float = 60.0) -> None:
        self._http = httpx.Client(base_url=url, timeout=seconds, headers=AS_THE_PAGE)
        self._session = secrets.token_hex(8)
        config = self._http.get("config").raise_for_status().json()
        self._dependencies = {each["id"]: each for each in config["dependencies"]}
        self._values = {part["id"]: part["props"].get("value") for part in config["components"]}
        self._ids = {
            name: part["id"]
            for part in config["components"]
            if (name := part["props"].get("elem_id"))
        }

    def __enter__(self) -> PageSession:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._http.close()

    def race(self, prompt: str, **form: Any) -> dict[str, Any]:
        """Run on the race page: the header of the trace, and "texts" by decoder.

        form  other fields by elem_id, as "max-tokens"
        """
        view = self._run("run", {**form, "prompt": prompt})
        lines = [json.loads(line) for line in view["lines"].splitlines()]
        texts = dict.fromkeys(lines[0]["decoders"], "")
        for line in lines:
            if line["kind"] == "step":
                texts[line["decoder"]] += "".join(text for _, text, _ in line["tokens"])
        return {**lines[0], "state": view["state"], "texts": texts}

    def chat(self, prompt: str, **form: Any) -> str:
        """The answer to the first question of a chat."""
        self._at_once(self._event("clear", "click"), {})
        turns = self._run("chat-run", {**form, "chat-prompt": prompt})["turns"]
        return "".join(text for _, text in decode_pieces(turns[-1]["s"]))

    def _run(self, button: str, form: dict[str, Any]) -> Any:
        """Press a button, follow what it begins to its end; the last value of its first output."""
        pressed = self._event(button, "click")
        self._keep(pressed, self._queued(pressed, form))
        followed = self._after(pressed)
        try:
            return self._queued(followed, {})[0]
        finally:
            self._at_once(self._after(followed), {})  # what settles it, however it ended

    def _keep(self, event: int, data: list[Any]) -> None:
        """Remember an event's outputs: the page sends them along with what comes after."""
        for part, value in zip(self._dependencies[event]["outputs"], data, strict=True):
            if not isinstance(value, dict):  # else properties, or a value of the page's own panes
                self._values[part] = value

    def _event(self, elem_id: str, name: str) -> int:
        target = [self._ids[elem_id], name]
        found = (each for each, what in self._dependencies.items() if target in what["targets"])
        return next(found)

    def _after(self, event: int) -> int:
        return next(
            each
            for each, what in self._dependencies.items()
            if what["trigger_after"] == event and what["trigger_only_on_success"]
        )

    def _body(self, event: int, form: dict[str, Any]) -> dict[str, Any]:
        given = {self._ids[name]: value for name, value in form.items()}
        inputs = self._dependencies[event]["inputs"]
        data = [given.get(each, self._values.get(each)) for each in inputs]
        return {"data": data, "fn_index": event, "session_hash": self._session}

    def _at_once(self, event: int, form: dict[str, Any]) -> None:
        answer = self._http.post("gradio_api/run/predict", json=self._body(event, form))
        if answer.is_error:
            raise RefusedError(answer.text)

    def _queued(self, event: int, form: dict[str, Any]) -> list[Any]:
        joined = self._http.post("gradio_api/queue/join", json=self._body(event, form))
        if joined.is_error:
            raise RefusedError(str(joined.json().get("detail", joined.text)))
        mine = joined.json()["event_id"]
        query = {"session_hash": self._session}
        with self._http.stream("GET", "gradio_api/queue/data", params=query) as stream:
            for line in stream.iter_lines():
                if not line.startswith("data:"):
                    continue
                message = json.loads(line.removeprefix("data:"))
                if message["msg"] == "unexpected_error":
                    raise RefusedError(message.get("message") or "unexpected error")
                # Growing values come as edits before; the last message has all of them.
                if message["msg"] == "process_completed" and message["event_id"] == mine:
                    if not message["success"]:
                        raise RefusedError(str(message["output"].get("error")))
                    return message["output"]["data"]
        raise RefusedError("the server closed the line before the answer")
