"""The decoding loop: the whole algorithm, for every decoder.

DART, EAGLE3 and plain decoding differ in the drafter alone. The app, the command line, the
benchmark and the tests consume this one generator.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field

import numpy as np
import torch

from dart.config import GenerationConfig
from dart.drafter import Drafter, StageClock
from dart.errors import ConfigError, PromptTooLongError
from dart.sampling import Draw, Sampler
from dart.target import TargetModel
from dart.tree import DraftTree
from dart.verify import accept


@dataclass(frozen=True, slots=True)
class Step:
    """What one target forward brought.

    tokens         new tokens, bonus token last (unless the text ended before it)
    accept_length  how many of them were drafted, that is without the bonus token
    tree           the draft tree, None after the prefill
    path           accepted nodes of the tree from the root, those that became tokens
    chosen         int64 [N]; the target's own token after each node, None after the prefill
    seconds        by stage: prefill, or draft, search, verify
    finish_reason  None while the text goes on; then "eos" or "length"
    """

    tokens: list[int]
    accept_length: int = 0
    tree: DraftTree | None = None
    path: list[int] = field(default_factory=list)
    chosen: np.ndarray | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    finish_reason: str | None = None


@torch.inference_mode()
def generate(
    target: TargetModel, drafter: Drafter, prompt_ids: list[int], config: GenerationConfig
) -> Generator[Step, None, None]:
    """Yield the target's own text, step by step; one target forward a step.

    The tokens are those that `target` alone would produce with the same seed: each is drawn from
    the target's logits given the tokens before it. `drafter` decides only how many come at once.

    raises  PromptTooLongError, ConfigError before anything is computed
    """
    limit = _length_limit(target, prompt_ids, config)
    clock = StageClock(_synchronizer(target))
    sampler = Sampler(config.sampling)
    cache = target.new_cache(limit + drafter.max_tree_size)
    length = len(prompt_ids)

    output = target.prefill(prompt_ids, cache, drafter.aux_layers)
    token = int(sampler.draw(output.logits, [length]).tokens)
    drafter.start(prompt_ids, token, output.aux_hidden, limit)
    text = [*prompt_ids, token]
    length += 1
    reason = _finish_reason([token], length, limit, config)
    clock.lap("prefill")
    yield Step([token], seconds=clock.seconds, finish_reason=reason)

    while reason is None:
        clock = StageClock(_synchronizer(target))
        # A path longer than what is still wanted could not be used.
        tree = drafter.propose(limit - length - 1, clock)
        output = target.forward_tree(tree, cache, drafter.aux_layers)
        positions = (length + tree.depths).tolist()
        draw = sampler.draw(output.logits, positions)
        chosen = draw.tokens.cpu().numpy()
        path = _accept_firm(target, sampler, text, tree, draw, chosen, config.tie_tolerance)
        tokens = [*tree.tokens[path[1:]].tolist(), int(chosen[path[-1]])]
        cache.keep(path)
        ended = _end(tokens, config.eos_token_ids)
        if ended is None:
            drafter.observe(tokens, output.aux_hidden[path])
        else:
            tokens = tokens[:ended]
            path = path[: ended + 1]
        text += tokens
        length += len(tokens)
        reason = _finish_reason(tokens, length, limit, config)
        clock.lap("verify")
        yield Step(tokens, len(path) - 1, tree, path, chosen, clock.seconds, reason)


def _accept_firm(
    target: TargetModel,
    sampler: Sampler,
    text: list[int],
    tree: DraftTree,
    draw: Draw,
    chosen: np.ndarray,
    tolerance: float | None,
) -> list[int]:
    """Accept, and settle the choices on the path that rounding could turn; in `chosen`, too.

    The same position gives logits that differ in the last digits when it is computed alone, in a
    tree, or behind rows that were. Where that could decide the token, no decoder trusts its own
    rows: the token is drawn from one fresh forward over the text before it, which is the same
    computation for all of them.
    """
    rounding = target.rounding if tolerance is None else tolerance
    path = accept(tree, chosen)
    if rounding == 0:
        return path
    settled: set[int] = set()
    while True:
        firm = draw.is_firm(path, rounding)
        doubtful = [i for i, node in enumerate(path) if not firm[i] and node not in settled]
        if not doubtful:
            return path
        end = doubtful[0]
        prefix = [*text, *tree.tokens[path[1 : end + 1]].tolist()]
        logits = target.prefill(prefix, target.new_cache(len(prefix))).logits
        chosen[path[end]] = int(sampler.draw(logits, [len(prefix)]).tokens)
        settled.add(path[end])
        path = accept(tree, chosen)


def _length_limit(target: TargetModel, prompt_ids: list[int], config: GenerationConfig) -> int:
    """Tokens the text may reach, prompt included."""
    length = len(prompt_ids)
    if length == 0:
        raise ConfigError("the prompt is empty; give at least one token.")
    bad = [token for token in prompt_ids if not 0 <= token < target.vocab_size]
    if bad:
        raise ConfigError(
            f"the prompt holds token id {bad[0]}; the target knows 0 to {target.vocab_size - 1}. "
            "Encode it with the target's own tokenizer."
        )
    limit = target.max_positions
    what = "the model's context"
    if config.max_length is not None and config.max_length < limit:
        limit, what = config.max_length, "max_length"
    if length >= limit:
        raise PromptTooLongError(
            f"the prompt has {length} tokens and {what} is {limit}, which leaves no room for a new "
            "one. Shorten the prompt" + (" or raise max_length." if what == "max_length" else ".")
        )
    return min(limit, length + config.max_new_tokens)


def _end(tokens: list[int], eos_token_ids: tuple[int, ...]) -> int | None:
    """How many tokens are left when the text ends with the first EOS among them."""
    return next((i + 1 for i, token in enumerate(tokens) if token in eos_token_ids), None)


def _finish_reason(
    tokens: list[int], length: int, limit: int, config: GenerationConfig
) -> str | None:
    if tokens[-1] in config.eos_token_ids:
        return "eos"
    return "length" if length >= limit else None


def _synchronizer(target: TargetModel) -> Callable[[], None] | None:
    return torch.cuda.synchronize if target.device.type == "cuda" else None
