"""TargetModel: a tree forward equals each path's own causal forward, on stock models."""

from __future__ import annotations

import pytest
import torch
import transformers

from dart.errors import UnsupportedModelError
from dart.target import TargetModel
from tests.conftest import tiny_model
from tests.support import make_tree

PROMPT = [5, 9, 33, 12, 40, 7]
#          7
#        / | \
#      11 23  2
#      |  |
#      4  4
TREE = make_tree([7, 11, 23, 4, 2, 4, 50], [-1, 0, 0, 1, 0, 2, 5])


def causal(target: TargetModel, ids: list[int]) -> torch.Tensor:
    """Logits of the last token by a plain forward, no cache."""
    return target.model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]


@torch.inference_mode()
def test_tree_logits_equal_the_paths_own(target: TargetModel) -> None:
    """The contract with transformers' mask and cache, which may change between versions."""
    cache = target.new_cache(32)
    target.prefill(PROMPT[:-1], cache)
    logits = target.forward_tree(TREE, cache).logits
    for node in range(len(TREE)):
        path = TREE.tokens[TREE.path_to(node)].tolist()
        expected = causal(target, PROMPT[:-1] + path)
        assert torch.allclose(logits[node], expected, atol=1e-4)


@torch.inference_mode()
def test_decoding_goes_on_right_after_a_path_was_kept(target: TargetModel) -> None:
    """A cache with rows of another branch would show only in later tokens."""
    cache = target.new_cache(32)
    target.prefill(PROMPT[:-1], cache)
    target.forward_tree(TREE, cache)
    cache.keep([0, 2, 5])
    logits = target.forward_tree(make_tree([8, 1], [-1, 0]), cache).logits
    assert torch.allclose(logits[1], causal(target, [*PROMPT, 23, 4, 8, 1]), atol=1e-4)


@torch.inference_mode()
def test_aux_hidden_states_are_the_layers_inputs(target: TargetModel) -> None:
    """A head fed with the wrong layer drafts noise and nobody is told why."""
    layers = target.draft_layers
    output = target.prefill(PROMPT, target.new_cache(16), layers)
    states = target.model(input_ids=torch.tensor([PROMPT]), output_hidden_states=True).hidden_states
    expected = torch.cat([states[i][0] for i in layers], -1)
    assert output.aux_hidden.shape == (len(PROMPT), 3 * target.hidden_size)
    assert torch.allclose(output.aux_hidden, expected, atol=1e-5)
    for layer in target.layers:
        assert not layer._forward_pre_hooks  # none is left behind


def test_supported_models_pass_the_check(target: TargetModel) -> None:
    """A check that refuses good models would lock users out."""
    target.check_tree_attention()


def test_a_model_that_ignores_the_mask_is_refused(monkeypatch) -> None:
    """Without the mask the text would silently differ from the target's own."""
    target = TargetModel(tiny_model("llama"))
    forward = target.model.forward
    monkeypatch.setattr(
        target.model, "forward", lambda **options: forward(**{**options, "attention_mask": None})
    )
    with pytest.raises(UnsupportedModelError, match="4-D attention mask"):
        target.check_tree_attention()


def test_sliding_windows_are_refused_by_name() -> None:
    """A window forgets rows that the tree still needs."""
    with pytest.raises(UnsupportedModelError, match="sliding_attention"):
        TargetModel(tiny_model("mixtral", sliding_window=16))


def test_attention_without_a_mask_argument_is_refused() -> None:
    """Flash attention drops a 4-D mask without a word."""
    model = tiny_model("llama")
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(UnsupportedModelError, match="flash_attention_2"):
        TargetModel(model)


def test_encoder_decoder_models_are_refused() -> None:
    """T5 loads happily and cannot be decoded with a tree."""
    config = transformers.T5Config(vocab_size=32, d_model=16, d_ff=16, num_layers=1, num_heads=2)
    with pytest.raises(UnsupportedModelError, match="decoder-only"):
        TargetModel(transformers.T5ForConditionalGeneration(config))


def test_too_few_layers_are_named_when_a_head_asks() -> None:
    """Layers 2, N//2 and N-3 coincide in shallow models."""
    target = TargetModel(tiny_model("llama", num_hidden_layers=6))
    with pytest.raises(UnsupportedModelError, match="6 layers"):
        _ = target.draft_layers


def test_all_eos_ids_of_the_generation_config_count() -> None:
    """Qwen and Llama 3 end a turn with another id than config.json's."""
    model = tiny_model("llama")
    model.generation_config.eos_token_id = [3, 9]
    assert TargetModel(model).eos_token_ids == (3, 9)
