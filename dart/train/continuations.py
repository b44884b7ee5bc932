"""The target's own answers to training prompts: what a draft head has to predict."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional
from tqdm import tqdm
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from dart.train.tokenizer import chat_prefix

TEMPERATURES = (0.0, 0.8, 0.0, 1.0)
"""Every document takes the next one."""


@torch.inference_mode()
def generate_batch(
    model: Any, tokenizer: Any, prompts: Sequence[str], *, max_new_tokens: int, temperature: float
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
        **options,
    )
    answers: list[list[int]] = []
    for row in output[:, width:].tolist():
        ends = [row.index(token) for token in (eos, pad) if token in row]
        answers.append([*row[: min(ends)], eos] if ends else row)
    return list(zip(ids, answers, strict=True))


@dataclass(slots=True)
class _Slot:
    """One text under way: its prompt, and what was written after it."""

    prompt: list[int]
    temperature: float
    position: int = 0
    answer: list[int] | None = None


class SlotDecoder:
    """Decodes many texts at once, a token of each a step; a text that ends makes room for another.

    Prompts run through token by token like answers, which needs no second code path. The forward
    is Qwen3's written out, because a batch with a position of its own per row is what it is about.

    capacity     tokens of the longest text, prompt included
    """

    def __init__(
        self, model: Qwen3ForCausalLM, *, slots: int, capacity: int, dtype: torch.dtype
    ) -> None:
        config = model.config
        self.heads, self.head_dim = config.num_attention_heads, config.head_dim
        self.groups: int = config.num_key_value_heads or config.num_attention_heads
        self.eps = config.rms_norm_eps
        self.capacity = capacity
        self.weights = {n: p.detach().to(dtype) for n, p in model.named_parameters()}
        self.layers = range(config.num_hidden_layers)
        shape = (config.num_hidden_layers, slots, self.groups, capacity, self.head_dim)
        self.keys, self.values = torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype)
        positions = torch.arange(capacity)
        with torch.no_grad():
            sample = torch.zeros(1, dtype=torch.float32)
            cos, sin = model.model.rotary_emb(sample, positions[None])
        self.cos, self.sin = cos[0].to(dtype), sin[0].to(dtype)

    def _norm(self, states: torch.Tensor, name: str) -> torch.Tensor:
        weight = self.weights[name]
        return functional.rms_norm(states, weight.shape, weight, self.eps)

    def _rotate(self, states: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        half = self.head_dim // 2
        swapped = torch.cat([-states[..., half:], states[..., :half]], dim=-1)
        return states * self.cos[positions][:, None] + swapped * self.sin[positions][:, None]

    @torch.inference_mode()
    def step(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Run one token of every slot, int64 [S] twice -> logits float32 [S, V]."""
        slots, last = len(tokens), int(positions.max()) + 1
        rows = torch.arange(slots)
        bias = torch.zeros(slots, last, dtype=self.keys.dtype)
        bias.masked_fill_(torch.arange(last) > positions[:, None], float("-inf"))
        hidden = self.weights["model.embed_tokens.weight"][tokens]  # [S, H]
        for layer in self.layers:
            name = f"model.layers.{layer}."

            def linear(states: torch.Tensor, part: str, name: str = name) -> torch.Tensor:
                return functional.linear(states, self.weights[f"{name}{part}.weight"])

            states = self._norm(hidden, f"{name}input_layernorm.weight")
            queries = linear(states, "self_attn.q_proj").view(slots, self.heads, self.head_dim)
            keys = linear(states, "self_attn.k_proj").view(slots, self.groups, self.head_dim)
            queries = self._norm(queries, f"{name}self_attn.q_norm.weight")
            keys = self._norm(keys, f"{name}self_attn.k_norm.weight")
            values = linear(states, "self_attn.v_proj").view(slots, self.groups, self.head_dim)
            self.keys[layer][rows, :, positions] = self._rotate(keys, positions)
            self.values[layer][rows, :, positions] = values
            queries = self._rotate(queries, positions) * self.head_dim**-0.5
            queries = queries.view(slots, self.groups, -1, self.head_dim)  # [S, K, H / K, d]
            scores = queries @ self.keys[layer, :, :, :last].transpose(2, 3)
            shares = (scores + bias[:, None, None]).float().softmax(-1).to(hidden.dtype)
            mixed = shares @ self.values[layer, :, :, :last]
            hidden = hidden + linear(mixed.reshape(slots, -1), "self_attn.o_proj")
            states = self._norm(hidden, f"{name}post_attention_layernorm.weight")
            gated = functional.silu(linear(states, "mlp.gate_proj")) * linear(states, "mlp.up_proj")
            hidden = hidden + linear(gated, "mlp.down_proj")
        hidden = self._norm(hidden, "model.norm.weight")
        return functional.linear(hidden, self.weights["model.embed_tokens.weight"]).float()


def choose(logits: torch.Tensor, temperatures: torch.Tensor, noise: torch.Generator) -> list[int]:
    """Draw a token of each row [S, V] at its temperature [S]; 0 is greedy (Gumbel-max)."""
    uniform = torch.rand(logits.shape, generator=noise).clamp_(1e-9, 1 - 1e-7)
    gumbel = -torch.log(-torch.log(uniform))
    return (logits + temperatures[:, None] * gumbel).argmax(-1).tolist()


def continuations(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    prompts: Sequence[str],
    *,
    tokens: int,
    seed: int,
    slots: int = 128,
    max_new_tokens: int = 256,
    capacity: int = 384,
    temperatures: Sequence[float] = TEMPERATURES,
    dtype: torch.dtype = torch.bfloat16,
) -> list[tuple[list[int], int]]:
    """Answer prompts in a seeded order until `tokens` answer tokens are there.

    returns    documents: prompt and answer ids (EOS included where it ended), and the length of
               the prompt
    """
    eos: Any = tokenizer.eos_token_id
    order = list(range(len(prompts)))
    random.Random(seed).shuffle(order)
    waiting = iter(enumerate(order))
    noise = torch.Generator().manual_seed(seed)

    def next_slot() -> _Slot | None:
        for number, index in waiting:
            text = chat_prefix(prompts[index])
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            if len(ids) < capacity - 16:
                return _Slot(ids, temperatures[number % len(temperatures)])
        return None

    texts = [slot for _ in range(slots) if (slot := next_slot()) is not None]
    decoder = SlotDecoder(model, slots=len(texts), capacity=capacity, dtype=dtype)
    documents: list[tuple[list[int], int]] = []
    made = 0
    with tqdm(total=tokens, desc="continuations", unit="token") as bar:
        while made < tokens and any(text.prompt for text in texts):
            inputs = [_input(text) for text in texts]
            positions = torch.tensor([text.position for text in texts])
            logits = decoder.step(torch.tensor(inputs), positions)
            heat = torch.tensor([text.temperature for text in texts])
            chosen = choose(logits, heat, noise)
            for index, (text, token) in enumerate(zip(texts, chosen, strict=True)):
                text.position += 1
                if not text.prompt or text.position < len(text.prompt):
                    text.position = min(text.position, capacity - 1)
                    continue
                text.answer = [*(text.answer or []), token]
                length = len(text.answer)
                if token == eos or length == max_new_tokens or text.position >= capacity - 1:
                    documents.append(([*text.prompt, *text.answer], len(text.prompt)))
                    made += length
                    bar.update(length)
                    texts[index] = next_slot() or _Slot([], 0.0)
    return documents


def _input(text: _Slot) -> int:
    """The token that goes in next."""
    if text.position < len(text.prompt):
        return text.prompt[text.position]
    return text.answer[-1] if text.answer else 0
