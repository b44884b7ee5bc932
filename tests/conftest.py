"""Small models for all tests: random targets made from a config, and the recorded ones."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from dart.target import TargetModel
from tests.conformance import CONFORMANCE


@pytest.fixture(scope="session", autouse=True)
def heeds_interrupts() -> None:
    """A shell lets its background jobs ignore SIGINT, and they their children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def conformance() -> Path:
    """The folder of recorded inputs and outputs."""
    return CONFORMANCE


@pytest.fixture(scope="session")
def recorded_target(conformance: Path) -> TargetModel:
    """The recorded target model, float32."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        conformance / "target", dtype=torch.float32
    )
    return TargetModel(model.eval())


_SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 7,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.4,  # wide enough that logits differ and greedy text is no constant
    "eos_token_id": 3,
    "bos_token_id": 1,
    "pad_token_id": 0,
}
_MIXTURE = {"num_experts_per_tok": 2}
ARCHITECTURES = {
    "llama": (transformers.LlamaConfig, {}),
    "qwen3": (transformers.Qwen3Config, {"head_dim": 8}),
    "qwen3_moe": (
        transformers.Qwen3MoeConfig,
        {"head_dim": 8, "num_experts": 4, "moe_intermediate_size": 24, **_MIXTURE},
    ),
    "mixtral": (transformers.MixtralConfig, {"num_local_experts": 4, **_MIXTURE}),
}


def tiny_model(architecture: str, **changes) -> Any:
    """A random model of that architecture, always the same one."""
    config_class, extra = ARCHITECTURES[architecture]
    torch.manual_seed(0)
    config = config_class(**{**_SIZES, **extra, **changes})
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    return model.eval()


@pytest.fixture(scope="session", params=sorted(ARCHITECTURES))
def target(request: pytest.FixtureRequest) -> TargetModel:
    """A tiny random target of each supported architecture."""
    return TargetModel(tiny_model(request.param))


@pytest.fixture(scope="session")
def qwen3() -> TargetModel:
    """A tiny random Qwen3 target."""
    return TargetModel(tiny_model("qwen3"))


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium."""
    from tests.browser import chromium

    with chromium() as started:
        yield started


@pytest.fixture
def opened(browser):
    """Opens pages in it: `opened(url, tab="Chat")`."""
    from tests.browser import opener

    yield from opener(browser)
