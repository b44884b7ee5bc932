"""Visit a page that is starting: fetch it, ask `generate`, print what came as JSON.

visit.py URL SECONDS, with the environment that has gradio_client.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from typing import Any

from gradio_client import Client

PROMPT = "Write a Python function `clamp`."


def main(url: str, seconds: float) -> int:
    """Exit code 0 only if every decoder answered, all with the same text."""
    began = time.monotonic()
    page = wait_for(lambda: fetch(url), began + seconds)
    page_seconds = time.monotonic() - began
    client = Client(url, verbose=False)

    def ask(decoder: str) -> dict[str, Any]:
        return client.predict(prompt=PROMPT, decoder=decoder, max_tokens=48, api_name="/generate")

    # The page is up before the model is: until then the answer is an error that says so.
    answers = {"dart": wait_for(lambda: ask("dart"), began + seconds)}
    ready_seconds = time.monotonic() - began
    answers["baseline"] = ask("baseline")
    api: Any = client.view_api(print_info=False, return_format="dict")
    texts = {answer["text"] for answer in answers.values()}
    found = {
        "page": {"bytes": len(page), "seconds": round(page_seconds, 1)},
        "first_answer_seconds": round(ready_seconds, 1),
        "endpoints": sorted(api["named_endpoints"]),
        "answers": {
            name: {
                "tokens": len(answer["tokens"]),
                "tau": answer["tau"],
                "finish_reason": answer["finish_reason"],
            }
            for name, answer in answers.items()
        },
        "same_text": len(texts) == 1,
        "text": answers["dart"]["text"],
    }
    json.dump(found, sys.stdout, indent=2)
    sys.stdout.write("\n")
    return 0 if len(texts) == 1 and texts != {""} and b"gradio" in page else 1


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
