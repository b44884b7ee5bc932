"""The target's own answers to training prompts: what a draft head has to predict."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch
from tqdm import tqdm
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM, StoppingCriteria

from dart.train.tokenizer import chat_prefix


class MostEnded(StoppingCriteria):
    """Stops a batch when most of its texts have ended; the rest are kept as they are."""

    def __init__(self, prompt_length: int, eos_token_id: int, share: float) -> None:
        self.prompt_length, self.eos_token_id, self.share = prompt_length, eos_token_id, share

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> Any:
        """Tell, for every row of the batch, whether to stop."""
        if input_ids.shape[1] % 8:
            return torch.zeros(len(input_ids), dtype=torch.bool)
        ended = (input_ids[:, self.prompt_length :] == self.eos_token_id).any(1)
        return (ended.float().mean() >= self.share).expand(len(input_ids))


@torch.inference_mode()
def generate_batch(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str],
    *,
    max_new_tokens: int,
    temperature: float = 0.0,
    stop_share: float = 1.0,
) -> list[tuple[list[int], list[int]]]:
    """Return prompt ids and answer ids (EOS included where the answer ended) of each prompt."""
    ids = [tokenizer(chat_prefix(p), add_special_tokens=False)["input_ids"] for p in prompts]
    width, pad, eos = max(map(len, ids)), tokenizer.pad_token_id, tokenizer.eos_token_id
    padded = torch.tensor([[pad] * (width - len(row)) + row for row in ids])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in ids])
    options: dict[str, Any] = {"do_sample": False}
    if temperature > 0:
        options = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
    output = model.generate(
        input_ids=padded,
        attention_mask=mask,
        max_new_tokens=max_new_tokens,
        eos_token_id=[eos, pad],
        pad_token_id=pad,
        stopping_criteria=[MostEnded(width, eos, stop_share)],
        **options,
    )
    answers: list[list[int]] = []
    for row in output[:, width:].tolist():
        ends = [row.index(token) for token in (eos, pad) if token in row]
        answer = [*row[: min(ends)], eos] if ends else row
        answers.append(answer)
    return list(zip(ids, answers, strict=True))


def continuations(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    prompts: Sequence[str],
    *,
    tokens: int,
    seed: int,
    batch: int = 96,
    max_new_tokens: int = 256,
    temperatures: Sequence[float] = (0.0, 0.8, 0.0, 1.0),
) -> list[tuple[list[int], int]]:
    """Answer prompts in a seeded order until `tokens` answer tokens are there.

    returns    documents: prompt and answer ids, and the length of the prompt
    """
    order = list(range(len(prompts)))
    random.Random(seed).shuffle(order)
    torch.manual_seed(seed)
    documents: list[tuple[list[int], int]] = []
    made = number = 0
    bar = tqdm(total=tokens, desc="continuations", unit="token")
    # Prompts of like length share a batch, so that little of it is padding.
    block = batch * 16
    for begin in range(0, len(order), block):
        some = sorted(order[begin : begin + block], key=lambda i: len(prompts[i]))
        starts = list(range(0, len(some), batch))
        random.Random(seed + begin).shuffle(starts)
        for start in starts:
            chosen = [prompts[i] for i in some[start : start + batch]]
            pairs = generate_batch(
                model,
                tokenizer,
                chosen,
                max_new_tokens=max_new_tokens,
                temperature=temperatures[number % len(temperatures)],
                stop_share=0.85,
            )
            number += 1
            documents += [([*prompt, *answer], len(prompt)) for prompt, answer in pairs]
            new = sum(len(answer) for _, answer in pairs)
            made += new
            bar.update(new)
            if made >= tokens:
                bar.close()
                return documents
    bar.close()
    return documents
