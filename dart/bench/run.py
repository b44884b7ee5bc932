"""Running the decoders against each other: interleaved, prompt by prompt, in one process.

Knows the order of the runs and the clocks; the loop itself measures the stages. What the runs were
worth together is for report.py.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dart.progress import DetailedProgress
from dart.stats import RunStatistics

if TYPE_CHECKING:
    from dart.decode import Step

BASELINE = "baseline"
_WARM_UP_TOKENS = 32

Decode = Callable[[list[int], int], "Iterator[Step]"]  # prompt ids, most new tokens


@dataclass(frozen=True, slots=True)
class Run:
    """One text: prompt (index), repeat, decoder, and what its steps came to.

    wall_seconds  prefill and decoding by an outside clock, what `statistics.seconds` must add up to
    """

    prompt: int
    repeat: int
    decoder: str
    statistics: RunStatistics
    wall_seconds: float


def run_benchmark(
    decoders: Mapping[str, Decode],
    prompt_ids: Sequence[list[int]],
    *,
    max_new_tokens: int,
    repeats: int = 1,
    warm_up: int = 1,
    progress: DetailedProgress | None = None,
) -> list[Run]:
    """Decode every prompt with every decoder, `repeats` times over.

    Before the clock counts, every decoder runs on the first `warm_up` prompts. The decoders take
    turns at each prompt, and who begins rotates, so that a machine that slows down or speeds up
    favours none of them.

    progress  told how many texts are done, with the speed of the last one
    """
    names = list(decoders)
    for ids in prompt_ids[:warm_up]:
        for name in names:
            for _ in decoders[name](ids, min(max_new_tokens, _WARM_UP_TOKENS)):
                pass
    runs: list[Run] = []
    tell = progress or (lambda *_: None)
    total = len(names) * len(prompt_ids) * repeats
    tell("decoding", 0, total, "")
    with _quiet_collector():
        for repeat in range(repeats):
            for prompt, ids in enumerate(prompt_ids):
                gc.collect()
                for name in rotated(names, prompt + repeat):
                    runs.append(_run(decoders[name], ids, max_new_tokens, prompt, repeat, name))
                    tell("decoding", len(runs), total, _in_short(runs[-1]))
    return runs


def _in_short(run: Run) -> str:
    tau, rate = run.statistics.tau or 0.0, run.statistics.tokens_per_second or 0.0
    return f"{run.decoder}: tau {tau:.2f}, {rate:.1f} tokens/s"


def rotated(names: Sequence[str], by: int) -> list[str]:
    """The names in their order, beginning with another one."""
    start = by % len(names)
    return [*names[start:], *names[:start]]


def _run(
    decode: Decode, ids: list[int], max_new_tokens: int, prompt: int, repeat: int, name: str
) -> Run:
    statistics = RunStatistics()
    start = time.perf_counter()
    for step in decode(ids, max_new_tokens):
        statistics.add(step)
    return Run(prompt, repeat, name, statistics, time.perf_counter() - start)


@contextmanager
def _quiet_collector() -> Iterator[None]:
    """Collect garbage between texts only; what is loaded by now is not looked at again."""
    was_on = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_on:
            gc.enable()


def stock_generate(model: Any, eos_token_ids: Sequence[int]) -> Decode:
    """transformers' own greedy `generate` on a stock model, told as Steps of one token.

    The seconds come from a stopping criterion, which transformers calls after every token; it
    never stops anything.
    """
    import torch
    from transformers import GenerationConfig, StoppingCriteria, StoppingCriteriaList

    from dart.decode import Step
    from dart.tree import DraftTree

    def now() -> float:
        if model.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    class Clock(StoppingCriteria):
        def __init__(self) -> None:
            self.times: list[float] = []

        def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
            self.times.append(now())
            return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)

    def decode(prompt_ids: list[int], max_new_tokens: int) -> Iterator[Step]:
        room = model.config.max_position_embeddings - len(prompt_ids)
        config = GenerationConfig(
            max_new_tokens=min(max_new_tokens, room),
            do_sample=False,
            use_cache=True,
            eos_token_id=list(eos_token_ids) or None,
            pad_token_id=next(iter(eos_token_ids), 0),
        )
        ids = torch.tensor([prompt_ids], device=model.device)
        clock, start = Clock(), now()
        output = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            generation_config=config,
            stopping_criteria=StoppingCriteriaList([clock]),
        )
        tokens = output[0, len(prompt_ids) :].tolist()
        times = [start, *clock.times]
        for index, token in enumerate(tokens):
            seconds = times[index + 1] - times[index]
            if index == 0:
                yield Step([token], seconds={"prefill": seconds})
            else:
                tree = DraftTree.root_only(tokens[index - 1])
                yield Step([token], 0, tree, [0], seconds={"verify": seconds})

    return decode
