"""Prompt templates by name, for programs that format chats themselves.

The app and the command line use the tokenizer's own template where it has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Template:
    """How one family of models writes a chat.

    `turn` holds {role} and {content}; `answer` opens the assistant's turn.
    """

    name: str
    system_prompt: str
    begin: str
    turn: str
    answer: str

    def format(self, messages: Sequence[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """The chat as one string, with `system_prompt` first if it is not empty and none is given.

        messages  {"role", "content"} each, oldest first
        """
        chat = list(messages)
        if self.system_prompt and (not chat or chat[0]["role"] != "system"):
            chat.insert(0, {"role": "system", "content": self.system_prompt})
        turns = (self.turn.format(role=m["role"], content=m["content"]) for m in chat)
        return self.begin + "".join(turns) + (self.answer if add_generation_prompt else "")


TEMPLATE_REGISTRY: dict[str, Template] = {
    template.name: template
    for template in (
        Template(
            name="qwen",
            system_prompt="You are a helpful assistant.",
            begin="",
            turn="<|im_start|>{role}\n{content}<|im_end|>\n",
            answer="<|im_start|>assistant\n",
        ),
        Template(
            name="llama3",
            system_prompt="You are a helpful assistant.",
            begin="<|begin_of_text|>",
            turn="<|start_header_id|>{role}<|end_header_id|>\n\n{content}<|eot_id|>",
            answer="<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        Template(name="plain", system_prompt="", begin="", turn="{content}\n", answer=""),
    )
}
