"""The training loop, the same for targets and heads: schedule, clipping, logs, checkpoints, resume.

Knows nothing of models, data or losses: those come as functions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

from dart.train.dataset import Packer
from dart.train.optim import build_optimizers, rate_factor, set_rates
from dart.train.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """What every run has. Exactly one of `steps` and `minutes` is positive.

    decay    share of the run, at its end, over which the rate falls to zero
    """

    steps: int = 0
    minutes: float = 0.0
    matrix_rate: float = 4e-3
    vector_rate: float = 2e-3
    weight_decay: float = 0.01
    clip: float = 1.0
    decay: float = 0.5
    seed: int = 1
    compile: bool = True
    eval_every: int = 200
    save_every: int = 200

    def __post_init__(self) -> None:
        if (self.steps > 0) == (self.minutes > 0):
            raise ValueError(
                f"give either steps or minutes, got steps={self.steps}, minutes={self.minutes}"
            )


def train(
    name: str,
    settings: LoopSettings,
    model: nn.Module,
    packer: Packer,
    batch_loss: Callable[[float], tuple[torch.Tensor, torch.Tensor]],
    check: Callable[[], dict[str, Any]],
    out: Path,
    *,
    generators: Mapping[str, torch.Generator] | None = None,
    stop_after: int | None = None,
) -> bool:
    """Train or resume `model` in folder `out`; whether the run has reached its end.

    packer      where the batches come from; its place is part of a checkpoint
    batch_loss  progress (0 to 1) -> a batch's mean loss, and the segments [B, T] of its tokens
                (negative ones are padding)
    check       figures on held-out data
    generators  sources of randomness that a checkpoint must hold, by name
    stop_after  end early after this many steps of this call, as a signal would
    """
    generators = generators or {}
    optimizers = build_optimizers(
        model,
        matrix_rate=settings.matrix_rate,
        vector_rate=settings.vector_rate,
        weight_decay=settings.weight_decay,
    )
    run = Run(out)
    run.describe(parameters=sum(p.numel() for p in model.parameters()), **asdict(settings))
    step, tokens, seconds = 0, 0, 0.0
    state = run.load()
    if state is not None:
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        packer.load_state_dict(state["packer"])
        for key, generator in generators.items():
            generator.set_state(state["generators"][key])
        step, tokens, seconds = state["step"], state["tokens"], state["seconds"]

    def save() -> None:
        run.save(
            {
                "model": model.state_dict(),
                "optimizers": [optimizer.state_dict() for optimizer in optimizers],
                "packer": packer.state_dict(),
                "generators": {key: each.get_state() for key, each in generators.items()},
                "step": step,
                "tokens": tokens,
                "seconds": seconds,
                "settings": asdict(settings),
            }
        )

    def progress() -> float:
        return step / settings.steps if settings.steps else seconds / (60 * settings.minutes)

    begun = step
    done = min(1000, int(1000 * progress()))
    bar = tqdm(total=1000, initial=done, desc=name, unit="permille", smoothing=0.05)
    last = time.perf_counter()
    with run, bar:
        while (
            progress() < 1.0
            and not run.should_stop
            and (stop_after is None or step - begun < stop_after)
        ):
            factor = rate_factor(progress(), decay=settings.decay)
            set_rates(optimizers, factor)
            loss, segments = batch_loss(progress())
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            step += 1
            tokens += int((segments >= 0).sum())
            now = time.perf_counter()
            elapsed, last = now - last, now
            seconds += elapsed
            speed = segments.numel() / elapsed
            bar.update(min(1000, int(1000 * progress())) - bar.n)
            bar.set_postfix(step=step, loss=f"{loss.item():.3f}", speed=f"{speed:.0f} tokens/s")
            if step % 10 == 0:
                figures = {"loss": loss.item(), "norm": norm.item(), "rate": factor}
                run.log(step=step, **figures, tokens=tokens, seconds=seconds, speed=speed)
                left = seconds * (1 / max(progress(), 1e-6) - 1) / 60
                run.status(
                    f"{name} step {step} loss {loss.item():.3f} progress {progress():.3f} "
                    f"{speed:.0f} tokens/s, {left:.0f} min left"
                )
            if step % settings.eval_every == 0:
                run.log(step=step, tokens=tokens, epochs=packer.epochs(), **check())
            if step % settings.save_every == 0:
                save()
    save()
    if progress() < 1.0:
        return False
    run.log(step=step, tokens=tokens, seconds=seconds, epochs=packer.epochs(), **check())
    return True
