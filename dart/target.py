"""The target model: a stock `transformers` causal LM driven with tree attention.

A 4-D additive mask, explicit position ids and our KV cache are all that tree decoding needs; hooks
read the aux hidden states. Knows nothing about drafting.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from dart.cache import KVCache
from dart.errors import UnsupportedModelError
from dart.tree import DraftTree

_ATTENTION_WITH_MASK = ("sdpa", "eager")
# How far the difference of two logits may be off between ways to compute it, as a share of the best
# logit: some hundred units in the last place of float32, two of the half precisions.
_ROUNDING = {torch.float32: 6e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


@dataclass(frozen=True, slots=True)
class TargetOutput:
    """What a target forward over T rows gives: logits [N, V], aux_hidden [T, A*D] (A may be 0)."""

    logits: torch.Tensor
    aux_hidden: torch.Tensor


class TargetModel:
    """A causal LM whose layers all attend fully and honour a 4-D mask.

    model   a stock transformers model, on its device(s); used as it is, never modified
    raises  UnsupportedModelError with the reason where tree attention cannot work on it
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        _refuse_unsupported(model)
        self.layers: nn.ModuleList = model.base_model.layers
        self.embedding: nn.Embedding = model.get_input_embeddings()
        config = model.config
        self.hidden_size: int = config.hidden_size
        self.vocab_size: int = self.embedding.weight.shape[0]
        self.max_positions: int = config.max_position_embeddings
        self.eos_token_ids = _eos_token_ids(model)
        # Counted now: layers packed for the CPU no longer show theirs.
        self.num_parameters: int = sum(each.numel() for each in model.parameters())
        self._takes_logits_to_keep = "logits_to_keep" in inspect.signature(model.forward).parameters

    @property
    def device(self) -> torch.device:
        """Where token ids go in."""
        return self.embedding.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights and hidden states."""
        return self.embedding.weight.dtype

    @property
    def rounding(self) -> float:
        """Share of the best logit within which two logits of one row count as tied."""
        return _ROUNDING.get(self.dtype, _ROUNDING[torch.float32])

    @property
    def draft_layers(self) -> tuple[int, ...]:
        """Layers whose inputs both kinds of draft head read: 2, N//2, N-3 (as upstream)."""
        count = len(self.layers)
        if count < 7:
            raise UnsupportedModelError(
                f"the target has {count} layers; a draft head reads the inputs of layers 2, N//2 "
                "and N-3, which are distinct only from 7 layers on. Use the baseline decoder."
            )
        return (2, count // 2, count - 3)

    def new_cache(self, capacity: int) -> KVCache:
        """An empty KV cache of `capacity` rows, each layer's on that layer's device."""
        devices = [next(layer.parameters()).device for layer in self.layers]
        return KVCache(capacity, devices)

    def embed(self, tokens: list[int] | torch.Tensor) -> torch.Tensor:
        """Input embeddings [T, H]."""
        return self.embedding(torch.as_tensor(tokens, device=self.device))

    def prefill(
        self, prompt_ids: list[int], cache: KVCache, aux_layers: Sequence[int] = ()
    ) -> TargetOutput:
        """Run over the prompt and commit its T rows: logits [1, V] of the last, aux of all T."""
        ids = torch.tensor([prompt_ids], device=self.device)
        positions = torch.arange(len(prompt_ids), device=self.device)[None]
        output = self._forward(ids, positions, None, cache, aux_layers, last_only=True)
        cache.commit(len(prompt_ids))
        return output

    def forward_tree(
        self, tree: DraftTree, cache: KVCache, aux_layers: Sequence[int] = ()
    ) -> TargetOutput:
        """Run once over all N nodes behind the committed rows; N rows are appended, none committed.

        returns  logits [N, V] and aux_hidden [N, A*D]
        source   tree attention as in SpecInfer (arXiv 2305.09781)
        """
        past, nodes = cache.length, len(tree)
        ids = torch.from_numpy(tree.tokens)[None].to(self.device)
        if nodes == 1:
            positions = torch.tensor([[past]], device=self.device)
            return self._forward(ids, positions, None, cache, aux_layers)
        positions = torch.from_numpy(past + tree.depths)[None].to(self.device)
        lowest = torch.finfo(self.dtype).min
        bias = torch.zeros((nodes, past + nodes), dtype=self.dtype)
        bias[:, past:].masked_fill_(torch.from_numpy(~tree.mask), lowest)
        mask = bias[None, None].to(self.device)
        return self._forward(ids, positions, mask, cache, aux_layers)

    def _forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor | None,
        cache: KVCache,
        aux_layers: Sequence[int],
        last_only: bool = False,
    ) -> TargetOutput:
        options = {"logits_to_keep": 1} if last_only and self._takes_logits_to_keep else {}
        with self._aux_inputs(aux_layers) as states:
            output = self.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                **options,
            )
        logits = output.logits[0, -1:] if last_only else output.logits[0]
        device = logits.device
        parts = [states[index][0].to(device) for index in aux_layers]
        aux = torch.cat(parts, dim=-1) if parts else logits.new_empty((ids.shape[1], 0))
        return TargetOutput(logits, aux)

    @contextmanager
    def _aux_inputs(self, aux_layers: Sequence[int]) -> Iterator[dict[int, torch.Tensor]]:
        """Collect the inputs [1, T, D] of these layers during the block."""
        states: dict[int, torch.Tensor] = {}

        def reader(index: int) -> Any:
            def read(_module: nn.Module, args: tuple, kwargs: dict) -> None:
                states[index] = args[0] if args else kwargs["hidden_states"]

            return read

        hooks = [
            self.layers[index].register_forward_pre_hook(reader(index), with_kwargs=True)
            for index in aux_layers
        ]
        try:
            yield states
        finally:
            for hook in hooks:
                hook.remove()

    @torch.inference_mode()
    def check_tree_attention(self) -> None:
        """Prove on three tokens that this model honours a 4-D mask and explicit positions.

        Two siblings are run as a tree and the second one is compared with its own causal forward
        and with the forward in which it would wrongly see its sibling.

        raises  UnsupportedModelError where the tree's logits are not the path's own
        """
        first, second, third = (min(i, self.vocab_size - 1) for i in (11, 23, 35))
        tree = DraftTree(np.array([first, second, third]), np.array([-1, 0, 0]))

        def causal(ids: list[int]) -> torch.Tensor:
            return self.prefill([first, *ids], self.new_cache(8)).logits[-1].float()

        cache = self.new_cache(8)
        self.prefill([first], cache)
        seen = self.forward_tree(tree, cache).logits[2].float()
        right, wrong = causal([first, third]), causal([first, second, third])
        off, apart = (seen - right).abs().max(), (wrong - right).abs().max()
        noise = (1e-4 if self.dtype == torch.float32 else 5e-2) * right.abs().max()
        if not off <= max(0.25 * apart, noise):
            raise UnsupportedModelError(
                f"{type(self.model).__name__} does not follow a 4-D attention mask with position "
                f"ids: a tree's logits are off by {off:.3g} (rounding would be {noise:.1g}). Only "
                "models with full attention through 'sdpa' or 'eager' can be decoded with trees."
            )


def _refuse_unsupported(model: Any) -> None:
    name, config = type(model).__name__, model.config
    if getattr(config, "is_encoder_decoder", False) or not hasattr(model, "get_input_embeddings"):
        raise UnsupportedModelError(f"{name} is not a decoder-only causal LM.")
    if not hasattr(getattr(model, "base_model", None), "layers"):
        raise UnsupportedModelError(
            f"{name} has no `model.layers`; expected a decoder-only model such as Llama or Qwen3."
        )
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    has_window = getattr(config, "sliding_window", None) is not None
    if has_window and getattr(config, "use_sliding_window", True):
        kinds.add("sliding_attention")
    if kinds != {"full_attention"}:
        raise UnsupportedModelError(
            f"{name} has layers of kind {', '.join(sorted(kinds - {'full_attention'}))}; tree "
            "attention needs full attention in every layer. Choose a model without them."
        )
    attention = getattr(config, "_attn_implementation", "eager")
    if attention not in _ATTENTION_WITH_MASK:
        raise UnsupportedModelError(
            f"{name} runs with attention '{attention}', which ignores a 4-D mask. "
            "Load it with attn_implementation='sdpa' or 'eager'."
        )
    if "position_ids" not in inspect.signature(model.forward).parameters:
        raise UnsupportedModelError(f"{name} takes no position_ids, which tree nodes need.")


def _eos_token_ids(model: Any) -> tuple[int, ...]:
    """Every EOS id of the generation config, else of the model's config."""
    for source in (getattr(model, "generation_config", None), model.config):
        ids = getattr(source, "eos_token_id", None)
        if ids is not None:
            return tuple(ids) if isinstance(ids, (list, tuple)) else (int(ids),)
    return ()
