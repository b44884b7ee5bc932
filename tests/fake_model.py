"""A scripted model for the app's tests: it answers by the prompt, at a known pace.

`python -m tests.fake_model [port]` serves the page with it, to work on the looks.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Generator, Sequence
from typing import TypeAlias

import numpy as np

from app.engine import Engine, Loaded
from dart.decode import Step
from dart.errors import ConfigError, DeviceError
from dart.tree import DraftTree

Steps: TypeAlias = Generator[Step, None, None]

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


THOUGHT = "<think>\nThe user wants a <b>story</b>.\n</think>\n\n"
# What each decoder's steps accept, over and over.
ACCEPTED = {"dart": (3, 1, 4, 0, 2, 4), "eagle3": (2, 1, 0, 3), "baseline": (0,)}


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

    With `break eagle3` in the prompt that decoder alone fails; `think` puts reasoning in front.

    delay  seconds a step takes
    """

    def __init__(self, delay: float = 0.01) -> None:
        self.tokenizer = Tokenizer()
        for answer in (HOSTILE, 2 * STORY, 2 * CODE, THOUGHT):
            self.tokenizer.encode(answer)  # in a forked copy it would learn the words alone
        self.delay = delay
        self.decoders: tuple[str, ...] = ("dart", "eagle3", "baseline")
        self.open_streams = 0

    def encode(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Ids of the whole chat, the last message behind the last newline."""
        return self.tokenizer.encode("\n".join(message["content"] for message in messages))

    def stream(self, input_ids: list[int], decoder: str = "dart", **options) -> Steps:
        """Steps of the scripted answer."""
        if options["temperature"] > 1.9:
            raise ConfigError("temperature is <b>too hot</b>; expected less.")
        prompt = self.tokenizer.decode(input_ids).rsplit("\n", 1)[-1]
        kinds = {"hostile": HOSTILE, "code": CODE, "prime": CODE, "endless": STORY * 200}
        answer = next((text for word, text in kinds.items() if word in prompt), STORY)
        if named := re.search(r"named (\w+)", prompt):
            answer = answer.replace("dog", named[1])
        if "think" in prompt:
            answer = THOUGHT + answer
        limit = 10_000 if "endless" in prompt else options["max_new_token_num"]
        tokens = self.tokenizer.encode(answer)
        reason = "eos" if len(tokens) <= limit else "length"
        self.open_streams += 1
        try:
            fails = "fail" in prompt or f"break {decoder}" in prompt
            yield from self._steps(tokens[:limit], decoder, reason, fails)
        finally:
            self.open_streams -= 1

    def _steps(self, tokens: list[int], decoder: str, reason: str, fails: bool) -> Steps:
        time.sleep(self.delay)
        ended = reason if len(tokens) == 1 else None
        yield Step(tokens[:1], seconds={"prefill": self.delay}, finish_reason=ended)
        done, steps = 1, 0
        while done < len(tokens):
            steps += 1
            if fails and steps > 3:
                raise DeviceError("the device ran out of <i>memory</i>.")
            time.sleep(self.delay)
            script = ACCEPTED[decoder]
            new = tokens[done : done + script[steps % len(script)] + 1]
            tree, path, chosen = _draft(decoder, tokens[done - 1], new)
            done += len(new)
            spent = {"draft": 0.1 * self.delay, "search": 0.1 * self.delay} if len(tree) > 1 else {}
            spent["verify"] = 0.8 * self.delay
            ended = reason if done >= len(tokens) else None
            yield Step(new, len(path) - 1, tree, path, chosen, spent, ended)


def _draft(decoder: str, root: int, new: list[int]) -> tuple[DraftTree, list[int], np.ndarray]:
    """A tree in which `new` but its last token is a path, and a wrong sibling beside each node."""
    accepted = new[:-1]
    path = list(range(0, 2 * len(accepted) + 1, 2))
    if decoder == "baseline":
        return DraftTree.root_only(root), [0], np.array(new[:1], np.int64)
    tokens, parents = [root], [-1]
    for depth, token in enumerate(new):
        is_drafted = depth < len(accepted)
        tokens += [ord("?") if token != ord("?") else ord("!"), token if is_drafted else ord("~")]
        parents += [path[depth]] * 2
    nodes = np.arange(len(tokens))
    probs = np.where(nodes % 2 == 0, 0.625, 0.25).astype(np.float32)
    chosen = np.full(len(tokens), ord("."), np.int64)
    chosen[path] = new
    is_dart = decoder == "dart"  # the other one knows nothing of n-grams
    tree = DraftTree(
        np.array(tokens, np.int64),
        np.array(parents, np.int64),
        scores=np.cumsum(np.log(probs)).astype(np.float32),
        draft_probs=probs,
        ngram_probs=np.where(nodes % 4 == 0, 0.5, 0).astype(np.float32) if is_dart else None,
        matched_lengths=np.where(nodes % 4 == 0, 2, 0).astype(np.int32) if is_dart else None,
        ranks=(nodes % 2).astype(np.int32),
        context_probs=np.where(nodes % 6 == 0, 0.75, 0).astype(np.float32) if is_dart else None,
        context_lengths=np.where(nodes % 6 == 0, 3, 0).astype(np.int32) if is_dart else None,
    )
    tree.validate()
    return tree, path, chosen


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
