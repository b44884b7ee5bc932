"""A scripted model for the app's tests: it answers by the prompt, at a known pace.

`python -m tests.fake_model [port]` serves the page with it, to work on the looks.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np

from app.engine import Engine, Loaded
from dart.decode import Step
from dart.errors import ConfigError, DeviceError
from dart.tree import DraftTree

HOSTILE = (
    "<img src=x onerror=\"document.body.setAttribute('data-pwned', 1)\"> "
    "${document.body.setAttribute(/data-pwned/.source, 2)} {{value}} `backticks` "
    "</script><script>document.body.setAttribute('data-pwned', 3)</script> "
    "<b>bold</b> &lt; \x1e separators \x1f inside"
)
STORY = (
    "Once upon a time there was a small dog. He lived in a garden with a big tree. One day he saw "
    "a red ball under the tree. \u201cWhat a nice ball!\u201d he said. He ran to the ball and "
    "played with it until the sun went down.\n\nHis friend the cat looked at him from the wall. "
    "She did not like balls, but she liked the dog \U0001f436. So she came down and played. "
)
CODE = (
    "Here is a function that does it:\n\n```python\ndef is_prime(number):\n    if number < 2:\n"
    "        return False\n    for divisor in range(2, int(number ** 0.5) + 1):\n"
    "        if number % divisor == 0:\n            return False\n    return True\n```\n\n"
    "It tries every divisor up to the square root. "
)


class Tokenizer:
    """Words as tokens, and the bytes of what is no word, so that characters come in parts."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = [bytes([byte]) for byte in range(256)]
        self._ids = {piece: index for index, piece in enumerate(self.pieces)}

    def encode(self, text: str) -> list[int]:
        """Ids of the text."""
        ids = []
        for word in re.findall(r" ?[A-Za-z_]+|.", text, re.DOTALL):
            raw = word.encode()
            if word.strip().isascii():
                if raw not in self._ids:
                    self._ids[raw] = len(self.pieces)
                    self.pieces.append(raw)
                ids.append(self._ids[raw])
            else:
                ids.extend(raw)
        return ids

    def decode(self, tokens: Sequence[int], **_options: object) -> str:
        """Text of the ids; a broken character becomes U+FFFD."""
        return b"".join(self.pieces[token] for token in tokens).decode("utf-8", errors="replace")


class FakeModel:
    """Answers by what the prompt contains: `hostile`, `fail`, `endless`, `code`, else a story.

    delay  seconds a step takes
    """

    def __init__(self, delay: float = 0.01) -> None:
        self.tokenizer = Tokenizer()
        self.delay = delay
        self.decoders = ("dart", "baseline")
        self.open_streams = 0

    def encode(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Ids of the whole chat, the last message behind the last newline."""
        return self.tokenizer.encode("\n".join(message["content"] for message in messages))

    def stream(self, input_ids: list[int], decoder: str = "dart", **options) -> Iterator[Step]:
        """Steps of the scripted answer; DART accepts 0 to 4 tokens in turn."""
        if options["temperature"] > 1.9:
            raise ConfigError("temperature is <b>too hot</b>; expected less.")
        prompt = self.tokenizer.decode(input_ids).rsplit("\n", 1)[-1]
        kinds = {"hostile": HOSTILE, "code": CODE, "prime": CODE, "endless": STORY * 200}
        answer = next((text for word, text in kinds.items() if word in prompt), STORY)
        limit = 10_000 if answer is kinds["endless"] else options["max_new_token_num"]
        tokens = self.tokenizer.encode(answer)[:limit]
        self.open_streams += 1
        try:
            yield from self._steps(tokens, decoder, fails="fail" in prompt)
        finally:
            self.open_streams -= 1

    def _steps(self, tokens: list[int], decoder: str, fails: bool) -> Iterator[Step]:
        time.sleep(self.delay)
        yield Step(tokens[:1], seconds={"prefill": self.delay})
        done, steps = 1, 0
        while done < len(tokens):
            steps += 1
            if fails and steps > 3:
                raise DeviceError("the device ran out of <i>memory</i>.")
            time.sleep(self.delay)
            drafted = (3, 1, 4, 0, 2, 4)[steps % 6] if decoder == "dart" else 0
            new = tokens[done : done + drafted + 1]
            done += len(new)
            accepted = len(new) - 1
            size = 1 + (4 if decoder == "dart" else 0)
            tree = DraftTree(np.zeros(size, np.int64), np.arange(-1, size - 1))
            spent = {"verify": 0.8 * self.delay}
            if decoder == "dart":
                spent = {"draft": 0.1 * self.delay, "search": 0.1 * self.delay, **spent}
            reason = "eos" if done >= len(tokens) else None
            yield Step(new, accepted, tree, list(range(accepted + 1)), None, spent, reason)


def fake_loaded(model: FakeModel | None = None) -> Loaded:
    """The model with what the header says about it."""
    model = model or FakeModel()
    return Loaded(
        model=model,
        encode=model.encode,
        name="embedded demo",
        parameters=24_600_000,
        device="CPU",
        dtype="float32",
        context=2048,
        is_demo=True,
        memory=lambda: (812_000_000, "resident memory of this process"),
    )


def fake_engine(model: FakeModel | None = None, wait: bool = True) -> Engine:
    """An engine that has loaded the model."""
    engine = Engine(lambda report: fake_loaded(model))
    engine.load()
    while wait and engine.status.state == "loading":
        time.sleep(0.005)
    return engine


if __name__ == "__main__":
    from app.layout import build_ui, launch_options

    port = int(sys.argv[1]) if len(sys.argv) > 1 else None
    page = build_ui(fake_engine(FakeModel(delay=0.03)))
    page.launch(server_name="127.0.0.1", server_port=port, quiet=True, **launch_options())
