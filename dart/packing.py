"""Linear layers laid out once for the CPU's matrix kernel, those of one input multiplied together.

torch's own CPU linear rearranges the whole weight at every call with a few rows, so that nine rows
cost two to three times as much as one and verifying a draft tree could not pay. Rearranged once,
twenty rows cost little more than one. A call of the packed kernel costs some 15 us whatever it
does, hence one call for all layers that read the same input. Results differ from torch's by
rounding alone. Knows the usual names of such layers, nothing else of a model.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

# Of smaller weights the plain layout is kept beside the packed one: with a single row torch's
# matrix-vector kernel is the quicker one.
_KEEP_PLAIN_BELOW = 1 << 20  # elements
_SAME_INPUT = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


class _Group:
    """The weights of layers that read the same input, as one matrix."""

    def __init__(self, linears: Sequence[nn.Linear]) -> None:
        weight = torch.cat([linear.weight.detach() for linear in linears])
        biases = [linear.bias for linear in linears if linear.bias is not None]
        self.bias = torch.cat([bias.detach() for bias in biases]) if biases else None
        self.sizes = [linear.out_features for linear in linears]
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight)
        self.plain = weight if weight.numel() < _KEEP_PLAIN_BELOW else None
        self._last: tuple[torch.Tensor | None, Sequence[torch.Tensor]] = (None, ())

    def output(self, states: torch.Tensor, index: int) -> torch.Tensor:
        """One layer's output; the others' are kept for the calls with the same input that follow.

        Safe with several threads: what is kept is told apart by the input's identity.
        """
        source, outputs = self._last
        if source is not states:
            if self.plain is not None and states.shape[-2] == 1:
                joined = functional.linear(states, self.plain, self.bias)
            else:
                joined = torch.ops.mkldnn._linear_pointwise(
                    states, self.packed, self.bias, "none", [], ""
                )
            outputs = joined.split(self.sizes, dim=-1)
            self._last = (states, outputs)
        if index == len(self.sizes) - 1:
            self._last = (None, ())
        return outputs[index]

    def weight(self, index: int) -> torch.Tensor:
        """One layer's weight in the plain layout."""
        joined = self.packed.to_dense() if self.plain is None else self.plain
        return joined.split(self.sizes)[index].clone()


class PackedLinear(nn.Module):
    """Stands in for an nn.Linear on a CPU, in float32 or bfloat16."""

    def __init__(self, linear: nn.Linear, group: _Group, index: int) -> None:
        super().__init__()
        self.bias = linear.bias
        self._group, self._index = group, index
        # A weight that another module owns too (tied embeddings) must be the same one afterwards.
        self.weight = linear.weight if group.plain is not None else None
        self._shape = (linear.out_features, linear.in_features)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """[.., in_features] -> [.., out_features]."""
        return self._group.output(states, self._index)

    def unpack(self) -> nn.Linear:
        """The plain layer again."""
        linear = nn.Linear(self._shape[1], self._shape[0], bias=False, device="meta")
        weight = self.weight
        if weight is None:
            weight = nn.Parameter(self._group.weight(self._index), requires_grad=False)
        linear.weight, linear.bias = weight, self.bias
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
        linears = {
            name: child
            for name, child in parent.named_children()
            if type(child) is nn.Linear and can_pack(child.weight.device, child.weight.dtype)
        }
        for names in _SAME_INPUT:
            together = [linears[name] for name in names if name in linears]
            if len(together) == len(names) and _alike(together):
                _pack_group(parent, names, together)
                for name in names:
                    del linears[name]
        for name, linear in linears.items():
            _pack_group(parent, (name,), [linear])


def _alike(linears: Sequence[nn.Linear]) -> bool:
    kinds = {(each.in_features, each.weight.dtype, each.bias is None) for each in linears}
    return len(kinds) == 1


def _pack_group(parent: nn.Module, names: Sequence[str], linears: Sequence[nn.Linear]) -> None:
    group = _Group(linears)
    for index, (name, linear) in enumerate(zip(names, linears, strict=True)):
        setattr(parent, name, PackedLinear(linear, group, index))


def unpack_linears(module: nn.Module) -> None:
    """Undo `pack_linears`, for a module that is to change its device or dtype."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, PackedLinear):
                setattr(parent, name, child.unpack())
