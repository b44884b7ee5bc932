"""Visit a page that is starting: fetch it, ask `generate` and `race`, print what came as JSON.

visit.py URL SECONDS, with the environment that has gradio_client.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from typing import Any

from gradio_client import Client

ASKED = {"prompt": "Write a Python function `clamp`.", "max_tokens": 48}


def main(url: str, seconds: float) -> int:
    """Exit code 0 only if all answers came, alone and in a race, and with the same text."""
    began = time.monotonic()
    page = wait_for(lambda: fetch(url), began + seconds)
    page_seconds = time.monotonic() - began
    client = Client(url, verbose=False)

    def ask(decoder: str) -> dict[str, Any]:
        return client.predict(**ASKED, decoder=decoder, api_name="/generate")

    # The page is up before the model is: until then the answer is an error that says so.
    answers = {"dart": wait_for(lambda: ask("dart"), began + seconds)}
    ready_seconds = time.monotonic() - began
    answers["baseline"] = ask("baseline")
    trace = client.predict(**ASKED, api_name="/race")  # all decoders that the model has
    api: Any = client.view_api(print_info=False, return_format="dict")
    texts = {answer["text"] for answer in answers.values()}
    texts |= {text_in(trace, decoder) for decoder in trace["decoders"]}
    found = {
        "page": {"bytes": len(page), "seconds": round(page_seconds, 1)},
        "first_answer_seconds": round(ready_seconds, 1),
        "endpoints": sorted(api["named_endpoints"]),
        "generate": {
            name: figures(answer, answer["finish_reason"]) for name, answer in answers.items()
        },
        "race": {
            event["decoder"]: figures(event["figures"], event["reason"])
            for event in trace["events"]
            if event["kind"] == "end"
        },
        "same_text": len(texts) == 1,
        "text": answers["dart"]["text"],
    }
    json.dump(found, sys.stdout, indent=2)
    sys.stdout.write("\n")
    return 0 if len(texts) == 1 and texts != {""} and b"gradio" in page else 1


def figures(run: dict[str, Any], reason: str) -> dict[str, Any]:
    """What is worth printing of a run's figures."""
    tau = run["tau"] and round(run["tau"], 2)
    return {"tokens": len(run["tokens"]), "tau": tau, "finish_reason": reason}


def text_in(trace: dict[str, Any], decoder: str) -> str:
    """A decoder's text in a trace."""
    steps = [event for event in trace["events"] if event["kind"] == "step"]
    tokens = [token for step in steps if step["decoder"] == decoder for token in step["tokens"]]
    return "".join(text for _id, text, _source in tokens)


def fetch(url: str) -> bytes:
    """The page itself."""
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read()


def wait_for(get: Any, deadline: float) -> Any:
    """What `get` returns at last; its error where it fails until the deadline."""
    while True:
        try:
            return get()
        except Exception:
            if time.monotonic() > deadline:
                raise
        time.sleep(1.0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2])))
