"""The EAGLE3 head against recordings of upstream's, its growth, and EAGLE3 decoding as a whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dart.checkpoint import load_eagle3_head
from dart.config import Eagle3TreeConfig, GenerationConfig, HeadConfig, SamplingConfig
from dart.decode import generate
from dart.drafter import NoDrafter, StageClock
from dart.eagle3_head import Eagle3Drafter, Eagle3Head
from dart.layers import rotary_tables
from dart.target import TargetModel
from dart.tree import DraftTree
from tests.conformance import check_generation
from tests.reference import eagle3 as reference

EVERY_NODE = Eagle3TreeConfig(size=1024)  # more than grow: nothing is left out on the way


@pytest.fixture(scope="module")
def head(conformance: Path, recorded_target: TargetModel) -> Eagle3Head:
    """The recorded head."""
    return load_eagle3_head(conformance / "eagle3_head", recorded_target)


def random_head(target: TargetModel, draft_vocabulary: int, seed: int, scale: float = 0.3) -> Any:
    """A head that fits a tiny target and knows some of its tokens, in no order."""
    torch.manual_seed(seed)
    head = Eagle3Head(
        HeadConfig(
            hidden_size=target.hidden_size,
            target_hidden_size=target.hidden_size,
            intermediate_size=48,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            vocab_size=target.vocab_size,
            draft_vocab_size=draft_vocabulary,
            draft_length=0,
        )
    )
    for parameter in head.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=scale)
    head.draft_to_target = torch.randperm(target.vocab_size)[:draft_vocabulary]
    return head.eval().requires_grad_(False)


def recording(conformance: Path) -> dict[str, dict[str, np.ndarray]]:
    """The arrays of eagle3_logits.npz by forward, as in "p0.s0.d0"."""
    forwards: dict[str, dict[str, np.ndarray]] = {}
    with np.load(conformance / "eagle3_logits.npz") as arrays:
        for name in arrays:
            forward, field = name.rsplit(".", 1)
            forwards.setdefault(forward, {})[field] = arrays[name]
    return forwards


def entries(conformance: Path) -> list[dict[str, Any]]:
    """The recorded generations."""
    found = json.loads((conformance / "generate.json").read_text())["entries"]
    assert found
    return found


class SpyingDrafter(Eagle3Drafter):
    """Keeps what went into and came out of every head forward of a step."""

    def propose(self, max_depth: int, clock: StageClock) -> DraftTree:
        """As always."""
        self.forwards: list[dict[str, torch.Tensor]] = []
        spy = self.head.register_forward_hook(self._see, with_kwargs=True)
        try:
            return super().propose(max_depth, clock)
        finally:
            spy.remove()

    def _see(self, _head: Any, args: tuple, _kwargs: dict, output: torch.Tensor) -> None:
        features, embeddings, rotary, bias, cache = args
        self.forwards.append(
            {
                "features": features[0],
                "embeddings": embeddings[0],
                "cos": rotary[0],
                "bias": bias.clone(),
                "past": torch.tensor(cache.length),
                "output": output[0],
                "logits": self.head.logits(output[0]),
            }
        )


@torch.inference_mode()
def test_every_forward_of_a_step_equals_upstreams(
    conformance: Path, recorded_target: TargetModel, head: Eagle3Head
) -> None:
    """At prefill and after it, over known tokens and level by level: inputs, masks and logits."""
    recorded = recording(conformance)
    prompts = sorted({name.split(".")[0] for name in recorded if "." in name})
    for prompt in prompts:
        drafter = SpyingDrafter(head, recorded_target, EVERY_NODE)
        steps = sorted({name.split(".")[1] for name in recorded if name.startswith(f"{prompt}.s")})
        for step in steps:
            known = recorded[f"{prompt}.{step}.d0"]
            aux, successors = torch.from_numpy(known["aux_hidden"]), known["embed_ids"].tolist()
            if step == "s0":
                ids = recorded[prompt]["prompt_ids"].tolist()
                assert ids[1:] == successors[:-1]
                drafter.start(ids, successors[-1], aux, recorded_target.max_positions)
            else:
                drafter.observe(successors, aux)
            drafter.propose(99, StageClock())
            assert len(drafter.forwards) == EVERY_NODE.depth + 1
            forward = drafter.forwards[0]
            assert forward["past"] == known["past_len"]
            near(forward["output"][-1], known["hidden_out_last"])
            near(forward["logits"][-1], known["logits_last"])
            committed = int(known["past_len"]) + len(successors)
            for level, forward in enumerate(drafter.forwards[1:], start=1):
                case = recorded.get(f"{prompt}.{step}.d{level}")
                if case is None:
                    continue
                assert forward["past"] == case["past_len"]
                near(forward["features"], case["hidden_in"])
                near(forward["embeddings"], recorded_target.embed(case["embed_ids"].tolist()))
                cos, _ = rotary_tables(
                    head.config, torch.from_numpy(case["positions"]), torch.float32
                )
                near(forward["cos"].expand_as(cos), cos)
                assert (forward["bias"][:, :committed] == 0).all()
                seen = forward["bias"][:, committed:] == 0
                np.testing.assert_array_equal(seen, case["tree_mask"].astype(bool))
                near(forward["output"], case["hidden_out"])
                near(forward["logits"], case["logits"])


def near(ours: Any, theirs: Any) -> None:
    """Equal but for rounding."""
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_generations_equal_upstreams(
    conformance: Path, recorded_target: TargetModel, head: Eagle3Head
) -> None:
    """Tokens, first trees and accept lengths of whole generations, step by step."""
    for entry in entries(conformance):
        drafter = Eagle3Drafter(head, recorded_target, Eagle3TreeConfig())
        check_generation(recorded_target, drafter, entry, "eagle3")


@pytest.mark.parametrize("size", [0, 5, 59])
@pytest.mark.parametrize(
    "sampling",
    [
        SamplingConfig(),
        SamplingConfig(temperature=0.7, top_p=0.9, top_k=50, seed=1),
        SamplingConfig(temperature=1.0, seed=2),
    ],
    ids=["greedy", "filtered", "sampled"],
)
def test_eagle3_equals_baseline(
    conformance: Path, recorded_target, head: Eagle3Head, sampling, size
) -> None:
    """The promise: the same text, token for token, at any temperature and tree size."""
    for entry in entries(conformance)[:3]:
        config = GenerationConfig(max_new_tokens=32, eos_token_ids=(2,), sampling=sampling)
        texts = []
        for drafter in (
            NoDrafter(),
            Eagle3Drafter(head, recorded_target, Eagle3TreeConfig(size=size)),
        ):
            steps = generate(recorded_target, drafter, entry["prompt"], config)
            texts.append([token for step in steps for token in step.tokens])
        assert texts[0] == texts[1]


def test_random_heads_change_no_text(target: TargetModel) -> None:
    """A head that guesses badly costs time, never a token; on every architecture."""
    for seed, temperature in enumerate((0.0, 0.8)):
        drafter = Eagle3Drafter(random_head(target, 40, seed), target, Eagle3TreeConfig(size=20))
        sampling = SamplingConfig(temperature=temperature, seed=seed)
        config = GenerationConfig(max_new_tokens=24, eos_token_ids=(3,), sampling=sampling)
        expected = list(generate(target, NoDrafter(), [5, 9, 33], config))
        steps = list(generate(target, drafter, [5, 9, 33], config))
        assert [t for s in steps for t in s.tokens] == [t for s in expected for t in s.tokens]


class CheckedDrafter(Eagle3Drafter):
    """Compares every tree with the one that the slow reference grows from the whole text."""

    def start(
        self, prompt_ids: list[int], token: int, aux_hidden: torch.Tensor, capacity: int
    ) -> None:
        """Begin a text."""
        super().start(prompt_ids, token, aux_hidden, capacity)
        self.successors, self.aux = [*prompt_ids[1:], token], aux_hidden

    def propose(self, max_depth: int, clock: StageClock) -> DraftTree:
        """As always, and check."""
        tree = super().propose(max_depth, clock)
        tree.validate()
        if max_depth > 0:
            depth = min(self.config.depth, max_depth - 1)
            rest = {"size": self.config.size, "depth": depth, "top_k": self.config.top_k}
            nodes = reference.grow(self.head, self.target, self.successors, self.aux, **rest)  # type: ignore[arg-type]
            paths = [tuple(tree.tokens[tree.path_to(i)[1:]]) for i in range(1, len(tree))]
            assert paths == [node.path for node in nodes]
            assert tree.scores is not None
            assert tree.draft_probs is not None
            assert tree.ranks is not None
            near(tree.scores[1:], [node.score for node in nodes])
            near(tree.draft_probs[1:], np.exp([node.log_prob for node in nodes]))
            assert tree.ranks[1:].tolist() == [node.rank for node in nodes]
        return tree

    def observe(self, tokens: list[int], aux_hidden: torch.Tensor) -> None:
        """Follow the text."""
        super().observe(tokens, aux_hidden)
        self.successors, self.aux = [*self.successors, *tokens], torch.cat([self.aux, aux_hidden])


@pytest.mark.parametrize(
    ("draft_vocabulary", "size", "depth", "top_k"),
    [
        (40, 12, 3, 4),  # much is left out
        (40, 500, 2, 5),  # nothing is
        (64, 30, 4, 3),  # ids are the target's
        (3, 20, 3, 10),  # fewer tokens than a node is to be extended by
        (40, 1, 5, 1),
        (40, 6, 5, 1),  # a chain
        (40, 8, 0, 10),  # one level
    ],
)
def test_trees_are_those_of_the_slow_reference(
    qwen3: TargetModel, draft_vocabulary, size, depth, top_k
) -> None:
    """A wrong mask, position, cache row or cut shows only as fewer accepted tokens."""
    for seed in range(2):
        head = random_head(qwen3, draft_vocabulary, seed)
        tree = Eagle3TreeConfig(size=size, depth=depth, top_k=top_k)
        config = GenerationConfig(max_new_tokens=5, eos_token_ids=())
        list(generate(qwen3, CheckedDrafter(head, qwen3, tree), [5, 9, 33], config))


def test_trees_behind_accepted_paths_are_those_of_the_slow_reference(
    conformance: Path, recorded_target: TargetModel, head: Eagle3Head
) -> None:
    """Rows of drafted tokens that were accepted must be made anew from the target's states."""
    config = GenerationConfig(max_new_tokens=12, eos_token_ids=())
    tree = Eagle3TreeConfig(size=14, depth=3, top_k=3)
    drafter = CheckedDrafter(head, recorded_target, tree)
    steps = list(generate(recorded_target, drafter, entries(conformance)[0]["prompt"], config))
    assert max(step.accept_length for step in steps) > 0


@pytest.mark.parametrize("scale", [0.0, 1e4])
@pytest.mark.parametrize("size", [1, 7, 20, 59])
def test_ties_do_not_part_children_from_parents(qwen3: TargetModel, scale, size) -> None:
    """All tokens equally likely, or one certain: a child then ties with its parent."""
    head = random_head(qwen3, 40, 0)
    head.lm_head.weight *= scale
    drafter = Eagle3Drafter(head, qwen3, Eagle3TreeConfig(size=size))
    config = GenerationConfig(max_new_tokens=12, eos_token_ids=())
    steps = list(generate(qwen3, drafter, [5, 9, 33], config))
    for step in steps[1:]:
        assert step.tree is not None
        step.tree.validate()
    assert len(steps[1].tree) == size + 1  # type: ignore[arg-type]
    expected = list(generate(qwen3, NoDrafter(), [5, 9, 33], config))
    assert [t for s in steps for t in s.tokens] == [t for s in expected for t in s.tokens]


def test_trees_are_no_deeper_than_what_is_wanted(qwen3: TargetModel) -> None:
    """A path longer than the rest of the text is work for nothing."""
    head = random_head(qwen3, 40, 0)
    drafter = Eagle3Drafter(head, qwen3, Eagle3TreeConfig(size=40, depth=4, top_k=2))
    for wanted in range(8):
        drafter.start([5, 9], 33, torch.ones(2, 3 * qwen3.hidden_size), 64)
        with torch.inference_mode():
            tree = drafter.propose(wanted, StageClock())
        assert tree.depths.max() == min(wanted, 5)
        assert tree.tokens[0] == 33
