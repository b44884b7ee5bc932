"""Stock models from a folder, through the command line: drafters give what plain decoding gives."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dart.__main__ import main
from dart.checkpoint import save_dart_head, save_eagle3_head
from dart.config import HeadConfig
from dart.dart_head import DartHead
from dart.eagle3_head import Eagle3Head
from dart.ngram import build
from tests.conftest import ARCHITECTURES, tiny_model

VOCABULARY = 640  # the recorded tokenizer's
PROMPT = "w5 w9 w33 w12 w5 w9"


def save_checkpoints(architecture: str, tokenizer: Path, folder: Path) -> list[str]:
    """A random target, random heads that fit it and a store of its own text; their flags."""
    model: Any = tiny_model(architecture, vocab_size=VOCABULARY, eos_token_id=2)
    model.save_pretrained(folder / "target")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, folder / "target")
    torch.manual_seed(1)
    width = model.config.hidden_size
    config = HeadConfig(
        hidden_size=width,
        target_hidden_size=width,
        intermediate_size=48,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        vocab_size=VOCABULARY,
        draft_vocab_size=VOCABULARY,
        draft_length=7,
    )
    save_dart_head(DartHead(config), folder / "dart")
    save_eagle3_head(Eagle3Head(replace(config, draft_length=0)), folder / "eagle3")
    # The target's own text, so that some drafts are right although the head is random.
    text = model.generate(torch.tensor([[5, 9, 33, 12, 5, 9]]), max_new_tokens=60, do_sample=False)
    build([text[0].tolist()], 3, folder / "own.ngram")
    return [
        "--base-model-name-or-path", str(folder / "target"),
        "--dart-model-name-or-path", str(folder / "dart"),
        "--eagle3-model-name-or-path", str(folder / "eagle3"),
        "--ngram-model-name-or-path", str(folder / "own.ngram"),
    ]  # fmt: skip


@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
def test_drafters_equal_plain_decoding(architecture, conformance, tmp_path, capsys) -> None:
    """An architecture that routes, rotates or caches in its own way must not change the text."""
    flags = save_checkpoints(architecture, conformance / "target", tmp_path)
    for sampling in (
        [],
        ["--temperature", "0.7", "--top-p", "0.9", "--top-k", "50"],
        ["--temperature", "1", "--seed", "3"],
    ):
        results = []
        for decoder in ("baseline", "dart", "eagle3"):
            capsys.readouterr()
            command = ["generate", "--prompt", PROMPT, "--decoder", decoder, "--device", "cpu"]
            command += ["--max-new-tokens", "48", "--tree-size", "30", "--json", *flags, *sampling]
            assert main(command) == 0
            results.append(json.loads(capsys.readouterr().out))
        plain, *drafted = results
        assert plain["tau"] == 1.0
        for result in drafted:
            assert result["tokens"] == plain["tokens"]
            assert result["text"] == plain["text"]
            assert len(result["accept_lengths"]) <= len(plain["accept_lengths"])
