"""Packed linear layers: the same numbers, and the way back."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dart.packing import PackedLinear, can_pack, pack_linears, unpack_linears

pytestmark = pytest.mark.skipif(
    not can_pack(torch.device("cpu"), torch.float32), reason="this torch has no packed CPU kernel"
)


@pytest.mark.parametrize("width", [32, 1000], ids=["plain kept", "packed alone"])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 9, 33])
@torch.inference_mode()
def test_results_are_torchs(width, has_bias, rows) -> None:
    """A wrong layout, or another layer's share of a joint product, would give another model."""
    torch.manual_seed(0)
    sizes = {"q_proj": 2 * width, "k_proj": 24, "v_proj": width, "gate_proj": 7, "alone": width}
    plain = {n: nn.Linear(width, size, bias=has_bias) for n, size in sizes.items()}
    model = nn.ModuleDict(plain)
    pack_linears(model)
    first, second = torch.randn(1, rows, width), torch.randn(1, rows, width)
    for name in ("q_proj", "k_proj", "v_proj", "v_proj", "q_proj", "gate_proj", "alone"):
        for states in (first, second, first):
            assert isinstance(model[name], PackedLinear)
            assert torch.allclose(model[name](states), plain[name](states), atol=1e-4)
    unpack_linears(model)
    for name in sizes:
        again = model[name]
        assert type(again) is nn.Linear
        assert torch.equal(again.weight, plain[name].weight)
        assert torch.equal(again(first), plain[name](first))


def test_a_model_survives_packing_and_unpacking() -> None:
    """`.to(device)` unpacks first; tied weights must still be tied."""
    embedding, linear = nn.Embedding(20, 8), nn.Linear(8, 20, bias=False)
    linear.weight = embedding.weight
    model = nn.Sequential(embedding, linear)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    pack_linears(model)
    assert isinstance(model[1], PackedLinear)
    unpack_linears(model)
    assert type(model[1]) is nn.Linear
    assert model[1].weight is embedding.weight
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_half_precision_is_left_alone() -> None:
    """The kernel has no float16."""
    model = nn.Sequential(nn.Linear(8, 8).half())
    pack_linears(model)
    assert type(model[0]) is nn.Linear
