"""Text as it grows: no character is cut, nothing is lost."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from dart.errors import ConfigError
from dart.text import TextStream, encode_chat


@pytest.fixture(scope="module")
def bytes_tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte, as the worst case for characters of several bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


@pytest.mark.parametrize("chunk", [1, 2, 3, 7])
def test_pieces_equal_the_whole(bytes_tokenizer, chunk) -> None:
    """Decoding token by token shows U+FFFD for every character of several bytes."""
    text = "naïve 日本語 👩‍👩‍👧 = 'x'\n    end"
    ids = bytes_tokenizer(text)["input_ids"]
    stream = TextStream(bytes_tokenizer)
    pieces = [stream.push(ids[i : i + chunk]) for i in range(0, len(ids), chunk)]
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)
    assert "".join(pieces) + stream.flush() == text


def test_flush_gives_what_never_became_whole(bytes_tokenizer) -> None:
    """A text cut by max_new_tokens inside a character must still equal the tokenizer's text."""
    ids = bytes_tokenizer("ab日")["input_ids"][:-1]
    stream = TextStream(bytes_tokenizer)
    assert stream.push(ids) + stream.flush() == bytes_tokenizer.decode(ids)


def test_spaces_between_words_are_kept(conformance) -> None:
    """A word-level tokenizer puts a space before every word but the first."""
    tokenizer = AutoTokenizer.from_pretrained(conformance / "target")
    ids = [10, 20, 30, 40, 50]
    stream = TextStream(tokenizer)
    text = "".join(stream.push([i]) for i in ids) + stream.flush()
    assert text == tokenizer.decode(ids)


def test_a_tokenizer_without_a_template_is_named(bytes_tokenizer) -> None:
    """The message tells the way out."""
    with pytest.raises(ConfigError, match="template-name"):
        encode_chat(bytes_tokenizer, [{"role": "user", "content": "x"}])
