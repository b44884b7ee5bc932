"""A byte-level BPE tokenizer with Qwen's chat format in which indentation is cheap."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

END_OF_TEXT, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)

# A word with the space before it, one digit, punctuation with the space before it and the line end
# after it, and a line end together with the indentation that follows: `return x\n    ` ends in one
# token.
PIECES = r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+(?:\n *)?|\n+ *|\s+(?!\S)|\s+"


def train_tokenizer(texts: Iterable[str], *, size: int) -> PreTrainedTokenizerFast:
    """Train a tokenizer of exactly `size` entries, special tokens included."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END_OF_TEXT, IM_START, IM_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=24,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return wrap(tokenizer)


def wrap(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """Give a raw tokenizer its special tokens and chat template."""
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=IM_END,
        pad_token=END_OF_TEXT,
        additional_special_tokens=[IM_START, IM_END],
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Save a tokenizer under the class name that every transformers release knows."""
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    fields = json.loads(path.read_text(encoding="utf-8"))
    for name in ("backend", "is_local", "local_files_only"):
        fields.pop(name, None)
    fields["tokenizer_class"] = "PreTrainedTokenizerFast"
    path.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """Load a tokenizer saved by `save_tokenizer`."""
    return PreTrainedTokenizerFast.from_pretrained(folder)


def chat_prefix(prompt: str) -> str:
    """Return the text before the answer, as the chat template writes it."""
    return f"{IM_START}user\n{prompt}{IM_END}\n{IM_START}assistant\n"
