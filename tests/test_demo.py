"""The embedded demo model: lossless with every drafter, worth looking at, and small."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from dart.config import GenerationConfig, SamplingConfig
from dart.decode import generate
from dart.model.dart_model import DEMO, DartModel
from dart.stats import RunStatistics
from tests.support import AdversarialDrafter

SETTINGS = [
    {},
    {"temperature": 0.7, "top_p": 0.9, "top_k": 50, "seed": 1},
    {"temperature": 1.0, "seed": 2},
]


@pytest.fixture(scope="module")
def demo() -> DartModel:
    """What the repository ships."""
    return DartModel.demo()


def prompts(name: str) -> list[str]:
    """The prompts of assets/demo/prompts."""
    lines = (DEMO / "prompts" / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["prompt"] for line in lines]


@pytest.mark.parametrize("options", SETTINGS, ids=["greedy", "filtered", "sampled"])
def test_every_decoder_gives_the_baselines_text(demo: DartModel, options) -> None:
    """The README's first claim, on held-out prompts."""
    for prompt in prompts("heldout.jsonl")[::40]:
        texts = []
        for decoder in demo.decoders:
            steps = demo.stream(demo.encode(prompt), decoder, max_new_token_num=64, **options)
            texts.append([token for step in steps for token in step.tokens])
        assert len(texts) > 1
        assert all(text == texts[0] for text in texts)


@pytest.mark.parametrize("size", [0, 1, 5, 16, 61, 128])
@pytest.mark.parametrize("options", SETTINGS, ids=["greedy", "filtered", "sampled"])
def test_adversarial_trees_change_nothing(demo: DartModel, options, size) -> None:
    """Random, wrong, cut and empty trees: the text may not depend on a drafter."""
    ids = demo.encode(prompts("heldout.jsonl")[size])
    truth = demo.ar_generate(ids, max_new_token_num=48, **options)[0, len(ids) :].tolist()
    target = demo.target
    config = GenerationConfig(
        max_new_tokens=48, eos_token_ids=target.eos_token_ids, sampling=SamplingConfig(**options)
    )
    for seed, guesses in enumerate((truth, truth[::-1], [])):
        drafter = AdversarialDrafter(target.vocab_size, size, seed, guesses, target.draft_layers)
        steps = generate(target, drafter, ids, config)
        assert [token for step in steps for token in step.tokens] == truth


def test_example_answers_end_by_themselves_with_python_that_parses(demo: DartModel) -> None:
    """A demo that loops or breaks off is not worth looking at."""
    good = []
    for prompt in prompts("examples.jsonl"):
        statistics = RunStatistics(demo.stream(demo.encode(prompt), max_new_token_num=256))
        text = demo.tokenizer.decode(statistics.tokens, skip_special_tokens=True)
        code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
        try:
            ast.parse(code)
        except SyntaxError:
            good.append(False)
        else:
            good.append(statistics.finish_reason == "eos" and (bool(code) or "```" not in text))
    assert sum(good) >= 0.9 * len(good), good


def test_the_assets_stay_small() -> None:
    """Everybody who clones the repository downloads them."""
    total = sum(path.stat().st_size for path in Path(DEMO).rglob("*") if path.is_file())
    assert total < 60e6
