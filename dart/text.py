"""Chat messages -> token ids, and token ids -> text as it grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dart.errors import ConfigError

_PLACEHOLDER = "\N{REPLACEMENT CHARACTER}"


def encode_chat(
    tokenizer: Any, messages: Sequence[dict[str, str]], *, enable_thinking: bool = False
) -> list[int]:
    """Ids of a chat, with the tokenizer's own template, up to where the assistant begins.

    messages         {"role", "content"} each, oldest first
    enable_thinking  handed to the template; only those of reasoning models look at it
    raises           ConfigError where the tokenizer has no chat template
    """
    if getattr(tokenizer, "chat_template", None) is None:
        raise ConfigError(
            "the target's tokenizer has no chat template; choose one by name (--template-name)."
        )
    text = tokenizer.apply_chat_template(
        list(messages),
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=enable_thinking,
    )
    return tokenizer(text, add_special_tokens=False)["input_ids"]


class TextStream:
    """Turns tokens into text as they come, never cutting a character in two.

    A character's bytes may be spread over several tokens; text is held back until it is whole.
    All pieces and `flush()` together equal the tokenizer's text of all the tokens.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._tokens: list[int] = []
        self._settled = 0  # tokens whose text is out for good
        self._context = 0  # the tokens decoded along with new ones, for spaces between words

    def _decode(self, tokens: list[int]) -> str:
        return self._tokenizer.decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )

    def push(self, tokens: Sequence[int]) -> str:
        """Add tokens; the text that became final, possibly empty."""
        self._tokens.extend(tokens)
        before = self._decode(self._tokens[self._context : self._settled])
        after = self._decode(self._tokens[self._context :])
        if len(after) <= len(before) or after.endswith(_PLACEHOLDER):
            return ""
        self._context, self._settled = self._settled, len(self._tokens)
        return after[len(before) :]

    def flush(self) -> str:
        """What is left at the end: bytes that never became a whole character."""
        before = self._decode(self._tokens[self._context : self._settled])
        after = self._decode(self._tokens[self._context :])
        self._context = self._settled = len(self._tokens)
        return after[len(before) :]
