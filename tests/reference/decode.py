"""Plain decoding as it is written on paper: the whole text through the model for every token."""

from __future__ import annotations

import torch

from dart.config import GenerationConfig
from dart.sampling import Sampler
from dart.target import TargetModel


@torch.inference_mode()
def decode(target: TargetModel, prompt_ids: list[int], config: GenerationConfig) -> list[int]:
    """New tokens; no cache, no tree, no mask."""
    tokens: list[int] = []
    sampler = Sampler(config.sampling)
    limit = min(config.max_length or target.max_positions, target.max_positions)
    while len(tokens) < config.max_new_tokens and len(prompt_ids) + len(tokens) < limit:
        text = torch.tensor([prompt_ids + tokens])
        logits = target.model(input_ids=text, use_cache=False).logits[0, -1:]
        tokens.append(int(sampler.draw(logits, [text.shape[1]]).tokens))
        if tokens[-1] in config.eos_token_ids:
            break
    return tokens
