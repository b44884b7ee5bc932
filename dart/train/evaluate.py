"""How good the answers are: do they parse, do they end by themselves, do they loop; and tau.

Loops are counted apart, because a text that repeats itself makes any drafter look good.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from dart.stats import is_loop
from dart.train.continuations import generate_batch
from dart.train.corpus import parses

_FENCE = re.compile(r"\A```python\n(.*?)\n?```\Z", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One judged answer. `has_valid_code` is None where no code was asked for."""

    prompt: str
    text: str
    tokens: int
    has_ended: bool
    has_valid_code: bool | None
    is_loop: bool

    @property
    def is_good(self) -> bool:
        """Whether it ended, did not loop, and its code, if any was asked for, parses."""
        return self.has_ended and not self.is_loop and self.has_valid_code is not False


def asks_for_code(prompt: str) -> bool:
    """Tell whether the answer to `prompt` should be code."""
    return not re.match(r"What does|Explain|Describe", prompt)


def code_of(text: str) -> str | None:
    """Return the code of an answer that is one closed code fence, else None."""
    match = _FENCE.match(text.strip())
    return match[1] if match else None


def judge(prompt: str, tokens: Sequence[int], tokenizer: PreTrainedTokenizerFast) -> Answer:
    """Judge one answer given as token ids, EOS included where it ended."""
    text = str(tokenizer.decode(list(tokens), skip_special_tokens=True))
    valid: bool | None = None
    if asks_for_code(prompt):
        code = code_of(text)
        valid = code is not None and bool(code.strip()) and parses(code)
    return Answer(
        prompt=prompt,
        text=text,
        tokens=len(tokens),
        has_ended=bool(tokens) and tokens[-1] == tokenizer.eos_token_id,
        has_valid_code=valid,
        is_loop=is_loop(tokens),
    )


def judge_prompts(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    prompts: Sequence[str],
    *,
    max_new_tokens: int = 300,
    temperature: float = 0.0,
    batch: int = 50,
) -> list[Answer]:
    """Answer and judge prompts."""
    answers: list[Answer] = []
    for begin in range(0, len(prompts), batch):
        some = list(prompts[begin : begin + batch])
        pairs = generate_batch(
            model, tokenizer, some, max_new_tokens=max_new_tokens, temperature=temperature
        )
        answers += [
            judge(prompt, answer, tokenizer)
            for prompt, (_, answer) in zip(some, pairs, strict=True)
        ]
    return answers


def rates(answers: Sequence[Answer]) -> dict[str, float]:
    """Return shares of all answers; `valid_code` is a share of those that should be code."""
    code = [a for a in answers if a.has_valid_code is not None]
    count = max(1, len(answers))
    return {
        "answers": len(answers),
        "ended": sum(a.has_ended for a in answers) / count,
        "valid_code": sum(bool(a.has_valid_code) for a in code) / max(1, len(code)),
        "loops": sum(a.is_loop for a in answers) / count,
        "good": sum(a.is_good for a in answers) / count,
        "mean_tokens": sum(a.tokens for a in answers) / count,
    }


def acceptance(
    model: Any,
    prompts: Sequence[str],
    *,
    decoder: str = "dart",
    max_new_tokens: int = 256,
    **options: Any,
) -> dict[str, float]:
    """Return a decoder's tau on prompts, of all texts and of those that do not loop.

    model      a DartModel with the decoder's head
    options    as in DartModel.stream: temperature, seed, tree_size
    """
    tokens = forwards = clean_tokens = clean_forwards = loops = 0
    for prompt in prompts:
        steps = list(
            model.stream(model.encode(prompt), decoder, max_new_token_num=max_new_tokens, **options)
        )[1:]
        text = [token for step in steps for token in step.tokens]
        tokens, forwards = tokens + len(text), forwards + len(steps)
        if is_loop(text):
            loops += 1
        else:
            clean_tokens, clean_forwards = clean_tokens + len(text), clean_forwards + len(steps)
    return {
        "tau": tokens / max(1, forwards),
        "tau_without_loops": clean_tokens / max(1, clean_forwards),
        "loops": loops / max(1, len(prompts)),
        "prompts": len(prompts),
    }


def to_json(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """Return answers as plain values."""
    return [asdict(answer) for answer in answers]
