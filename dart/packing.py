"""Linear layers whose weights are laid out once for the CPU's matrix kernel.

torch's own CPU linear rearranges the whole weight at every call with a few rows, so that nine rows
cost two to three times as much as one and verifying a draft tree could not pay. Rearranged once,
twenty rows cost little more than one. The results differ from torch's by rounding alone.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

# Of smaller weights the plain layout is kept beside the packed one: with a single row torch's
# matrix-vector kernel is quicker by the fixed 15 us that a call of the packed kernel costs.
_KEEP_PLAIN_BELOW = 1 << 20  # elements


class PackedLinear(nn.Module):
    """Stands in for an nn.Linear on a CPU, in float32 or bfloat16."""

    weight: nn.Parameter | None

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = linear.bias
        keeps_plain = weight.numel() < _KEEP_PLAIN_BELOW
        self.weight = linear.weight if keeps_plain else None
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """[.., in_features] -> [.., out_features]."""
        if self.weight is not None and states.shape[-2] == 1:
            return functional.linear(states, self.weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(states, self._packed, self.bias, "none", [], "")

    def unpack(self) -> nn.Linear:
        """The plain layer again."""
        linear = nn.Linear(self.in_features, self.out_features, bias=False, device="meta")
        plain = self.weight
        if plain is None:
            plain = nn.Parameter(self._packed.to_dense(), requires_grad=False)
        linear.weight, linear.bias = plain, self.bias
        return linear


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this build of torch has the packed kernel for that device and dtype."""
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    operators = torch.ops.mkldnn
    if not hasattr(operators, "_linear_pointwise") or dtype == torch.float16:
        return False
    return dtype == torch.float32 or operators._is_mkldnn_bf16_supported()


def pack_linears(module: nn.Module) -> None:
    """Replace every nn.Linear below `module` that lies on a CPU by a PackedLinear."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and can_pack(child.weight.device, child.weight.dtype):
                setattr(parent, name, PackedLinear(child))


def unpack_linears(module: nn.Module) -> None:
    """Undo `pack_linears`, for a module that is to change its device or dtype."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, PackedLinear):
                setattr(parent, name, child.unpack())
