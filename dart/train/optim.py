"""Muon for hidden matrices, AdamW for the rest; rates warm up, stay, and decay linearly."""

from __future__ import annotations

import torch
from torch import nn

from dart.errors import ConfigError


def build_optimizers(
    model: nn.Module, *, matrix_rate: float, vector_rate: float, weight_decay: float
) -> list[torch.optim.Optimizer]:
    """Return Muon for matrices inside layers and AdamW for embeddings, output and vectors.

    source     Muon: Jordan et al. 2024, with the update scaled to AdamW's size (Moonshot, arXiv
    2502.16982).
    raises     ConfigError where torch has no Muon yet
    """
    if not hasattr(torch.optim, "Muon"):
        raise ConfigError(
            f"training needs torch 2.9 or newer, for torch.optim.Muon; this is {torch.__version__}."
        )
    matrices, others = [], []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        is_hidden = parameter.ndim == 2 and "embed_tokens" not in name and "lm_head" not in name
        (matrices if is_hidden else others).append(parameter)
    muon = torch.optim.Muon(
        matrices,
        lr=matrix_rate,
        weight_decay=weight_decay,
        momentum=0.95,
        adjust_lr_fn="match_rms_adamw",
    )
    adamw = torch.optim.AdamW(others, lr=vector_rate, betas=(0.9, 0.95), weight_decay=0.0)
    optimizers: list[torch.optim.Optimizer] = [muon, adamw]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak_lr"] = group["lr"]
    return optimizers


def rate_factor(progress: float, *, warmup: float = 0.02, decay: float = 0.4) -> float:
    """Return the learning rate's factor at `progress` (0 to 1) of the run."""
    if progress < warmup:
        return max(progress / warmup, 0.02)
    if progress < 1.0 - decay:
        return 1.0
    return max(0.0, (1.0 - progress) / decay)


def set_rates(optimizers: list[torch.optim.Optimizer], factor: float) -> None:
    """Set every group's learning rate to `factor` of its peak."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak_lr"] * factor
