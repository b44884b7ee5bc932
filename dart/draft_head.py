"""What both kinds of draft head have: taps in, one layer, draft-vocabulary logits out.

Module names are the checkpoint's. Knows nothing about how a head is drafted with or trained.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from dart.config import HeadConfig
from dart.layers import DraftLayer, RMSNorm, rotary_tables


class DraftHead(nn.Module):
    """The modules of a head, and its rotary tables.

    draft_to_target  int64 [Vd]; the target's id of every draft id, no two alike
    """

    layer_class: ClassVar[type[DraftLayer]] = DraftLayer
    draft_to_target: torch.Tensor

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config
        self.fc = nn.Linear(3 * config.target_hidden_size, config.hidden_size, bias=False)
        self.midlayer = self.layer_class(config)
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, config.draft_vocab_size, bias=False)
        self.register_buffer("draft_to_target", torch.arange(config.draft_vocab_size))
        # Counted now: layers packed for the CPU no longer show theirs.
        self.num_parameters = sum(each.numel() for each in self.parameters())

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[.., H] -> [.., Vd]."""
        return self.lm_head(self.norm(hidden))

    def rotary(self, length: int) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Rotary tables [length, d] for a whole text, None where they depend on how long it is."""
        if self.config.rope_scaling_type == "dynamic":
            return None
        weight = self.norm.weight
        return rotary_tables(self.config, torch.arange(length, device=weight.device), weight.dtype)
