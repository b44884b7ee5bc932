"""EAGLE3's tree grown as it is written on paper: every chain through the whole head anew."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dart.eagle3_head import Eagle3Head
from dart.layers import rotary_tables
from dart.target import TargetModel


@dataclass(frozen=True)
class Node:
    path: tuple[int, ...]
    score: float
    log_prob: float
    rank: int


@torch.inference_mode()
def grow(
    head: Eagle3Head,
    target: TargetModel,
    successors: list[int],
    aux_hidden: torch.Tensor,
    *,
    size: int,
    depth: int,
    top_k: int,
) -> list[Node]:
    """The chosen nodes without the root, in the order in which they grew.

    successors, aux_hidden  of every token of the text so far
    """
    pool = extensions(head, target, successors, aux_hidden, Node((), 0.0, 0.0, 0), top_k)
    beam = sorted(pool, key=lambda node: -node.score)[:top_k]
    for _ in range(depth):
        grown = [
            child
            for node in beam
            for child in extensions(head, target, successors, aux_hidden, node, top_k)
        ]
        pool += grown
        beam = sorted(grown, key=lambda node: -node.score)[:top_k]
    best = sorted(range(len(pool)), key=lambda index: (-pool[index].score, index))[:size]
    return [pool[index] for index in sorted(best)]


def extensions(
    head: Eagle3Head,
    target: TargetModel,
    successors: list[int],
    aux_hidden: torch.Tensor,
    node: Node,
    top_k: int,
) -> list[Node]:
    """The likeliest tokens behind a node: no cache, no tree mask, plain causal attention."""
    features, tokens = head.features(aux_hidden), list(successors)
    hidden = run(head, target, features, tokens)
    for token in node.path:
        features = torch.cat([features, hidden[-1:]])
        tokens.append(token)
        hidden = run(head, target, features, tokens)
    log_probs = head.logits(hidden[-1]).log_softmax(dim=-1)
    order = log_probs.argsort(descending=True)[:top_k].tolist()
    return [
        Node(
            (*node.path, int(head.draft_to_target[draft_id])),
            node.score + float(log_probs[draft_id]),
            float(log_probs[draft_id]),
            rank,
        )
        for rank, draft_id in enumerate(order)
    ]


def run(
    head: Eagle3Head, target: TargetModel, features: torch.Tensor, tokens: list[int]
) -> torch.Tensor:
    rotary = rotary_tables(head.config, torch.arange(len(tokens)), features.dtype)
    return head(features[None], target.embed(tokens)[None], rotary, None)[0]
