"""Draft-head checkpoints on disk <-> our modules, in the published layout.

The only file that knows tensor names of checkpoints (CHECKPOINT_FORMATS sections 2.1, 2.2, 4.1).
Every tensor is checked against the config and the target before it is used.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from dart.config import HeadConfig
from dart.dart_head import DartHead
from dart.draft_head import DraftHead
from dart.eagle3_head import Eagle3Head
from dart.errors import CheckpointError, ConfigError
from dart.target import TargetModel

logger = logging.getLogger(__name__)

WEIGHTS, LEGACY_WEIGHTS, CONFIG = "model.safetensors", "pytorch_model.bin", "config.json"
_VOCABULARY_MAP = "d2t"  # int64 [Vd]: target id minus draft id
_VOCABULARY_MASK = "t2d"  # bool [V]: which target ids the draft vocabulary holds
_EMBEDDING = "embed_tokens.weight"  # [V, H]; a DART head uses the target's whatever is here
_MASK_ROW = "midlayer.mask_rep"  # what an EAGLE3 head has not

_Head = TypeVar("_Head", bound=DraftHead)


def load_dart_head(
    folder: str | os.PathLike[str],
    target: TargetModel,
    *,
    device: torch.device | str | None = None,
) -> DartHead:
    """Load a DART head that fits `target`, in the target's dtype.

    folder  holds config.json and model.safetensors (or pytorch_model.bin, read with weights_only)
    device  where the head goes; None: the device of the target's last layer
    raises  CheckpointError naming the file, the field or tensor, what was found and what fits
    """
    return _load(DartHead, Path(folder), target, device)


def load_eagle3_head(
    folder: str | os.PathLike[str],
    target: TargetModel,
    *,
    device: torch.device | str | None = None,
) -> Eagle3Head:
    """Load an EAGLE3 head that fits `target`; all else as in `load_dart_head`.

    Where the file brings an embedding other than the target's, the head drafts with its own.
    """
    return _load(Eagle3Head, Path(folder), target, device)


def save_dart_head(
    head: DartHead, folder: str | os.PathLike[str], *, dtype: torch.dtype | None = None
) -> None:
    """Write config.json and model.safetensors in the published layout, each in one rename.

    dtype  of the floating tensors on disk; None keeps the head's
    """
    _save(head, Path(folder), dtype)


def save_eagle3_head(
    head: Eagle3Head, folder: str | os.PathLike[str], *, dtype: torch.dtype | None = None
) -> None:
    """Write an EAGLE3 head as `save_dart_head` does."""
    _save(head, Path(folder), dtype)


def read_head_config(folder: Path, *, needs_draft_length: bool) -> HeadConfig:
    """Read a head's config.json with upstream's defaults; unknown fields are left alone.

    raises  CheckpointError where the file is missing, is not JSON, or holds an impossible value
    """
    path = folder / CONFIG
    if not path.is_file():
        raise CheckpointError(
            f"{path} is missing; a draft head is a folder with {CONFIG} and {WEIGHTS}. "
            "Check the path or download the head again."
        )
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: {error}.") from error
    if not isinstance(raw, dict):
        raise CheckpointError(f"{path} holds {type(raw).__name__}; expected a JSON object.")
    required = ["draft_vocab_size", *(["draft_length"] if needs_draft_length else [])]
    for name in required:
        if raw.get(name) is None:
            raise CheckpointError(
                f"{path} has no '{name}', which has no default. Is it a draft head?"
            )

    def field(name: str, default: Any) -> Any:
        value = raw.get(name)
        return default if value is None else value

    hidden, heads = field("hidden_size", 4096), field("num_attention_heads", 32)
    scaling = raw.get("rope_scaling")
    if scaling is None:
        kind, factor = None, 1.0
    elif isinstance(scaling, dict) and set(scaling) == {"type", "factor"}:
        kind, factor = scaling["type"], scaling["factor"]
        if kind not in ("linear", "dynamic") or not isinstance(factor, float) or factor <= 1:
            raise CheckpointError(
                f"{path}: rope_scaling is {scaling}; expected type 'linear' or 'dynamic' and a "
                "float factor above 1."
            )
    else:
        raise CheckpointError(
            f"{path}: rope_scaling is {scaling!r}; expected null or {{'type', 'factor'}}."
        )
    if raw.get("hidden_act", "silu") != "silu":
        raise CheckpointError(f"{path}: hidden_act is {raw['hidden_act']!r}; only 'silu' is known.")
    try:
        return HeadConfig(
            hidden_size=hidden,
            target_hidden_size=field("target_hidden_size", hidden),
            intermediate_size=field("intermediate_size", 11008),
            num_attention_heads=heads,
            num_key_value_heads=field("num_key_value_heads", heads),
            head_dim=field("head_dim", hidden // heads),
            vocab_size=field("vocab_size", 32000),
            draft_vocab_size=raw["draft_vocab_size"],
            draft_length=raw["draft_length"] if needs_draft_length else 0,
            max_position_embeddings=field("max_position_embeddings", 2048),
            rope_theta=float(field("rope_theta", 10000.0)),
            rope_scaling_type=kind,
            rope_scaling_factor=factor,
            rms_norm_eps=float(field("rms_norm_eps", 1e-6)),
        )
    except (ConfigError, TypeError, ValueError, ZeroDivisionError) as error:
        raise CheckpointError(f"{path}: {error}") from error


def _load(
    kind: type[_Head], folder: Path, target: TargetModel, device: torch.device | str | None
) -> _Head:
    config = read_head_config(folder, needs_draft_length=kind is DartHead)
    tensors = _read_tensors(folder)
    head = kind(config)
    if isinstance(head, Eagle3Head):
        if _MASK_ROW in tensors:
            raise CheckpointError(
                f"the head in {folder} has {_MASK_ROW}, which is a DART head's; expected EAGLE3's."
            )
        if config.draft_vocab_size == config.vocab_size:
            tensors.pop(_VOCABULARY_MAP, None)  # as upstream: ids are the same
        if not _has_embedding_of(target, tensors.get(_EMBEDDING)):
            head.own_embedding()
    _check_fit(head, target, folder)
    _fill(head, tensors, target, folder)
    if device is None:
        device = next(target.layers[-1].parameters()).device
    return head.to(device=device, dtype=target.dtype).eval().requires_grad_(False)


def _save(head: DraftHead, folder: Path, dtype: torch.dtype | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    config = head.config
    tensors = {name: parameter.detach().cpu() for name, parameter in head.named_parameters()}
    if dtype is not None:
        tensors = {name: tensor.to(dtype) for name, tensor in tensors.items()}
    targets = head.draft_to_target.cpu()
    mask = torch.zeros(config.vocab_size, dtype=torch.bool)
    mask[targets] = True
    tensors[_VOCABULARY_MAP] = targets - torch.arange(len(targets))
    tensors[_VOCABULARY_MASK] = mask
    written = asdict(config)
    kind = written.pop("rope_scaling_type")
    factor = written.pop("rope_scaling_factor")
    written["rope_scaling"] = None if kind is None else {"type": kind, "factor": factor}
    if isinstance(head, Eagle3Head):
        del written["draft_length"]
        if _EMBEDDING not in tensors:
            del written["target_hidden_size"]  # upstream takes it to mean an embedding in the file
        written |= {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama"}
        written |= {"num_hidden_layers": 1, "hidden_act": "silu", "tie_word_embeddings": False}
    else:
        written["architectures"] = ["DartHead"]
    _replace(folder / CONFIG, lambda path: path.write_text(json.dumps(written, indent=2) + "\n"))
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    _replace(folder / WEIGHTS, lambda path: save_file(contiguous, path))


def _has_embedding_of(target: TargetModel, embedding: torch.Tensor | None) -> bool:
    """Whether a head's embedding is the target's, or is none and the target's is meant."""
    if embedding is None:
        return True
    weight = target.embedding.weight
    return torch.equal(embedding.to(weight.device, weight.dtype), weight)


def _check_fit(head: DraftHead, target: TargetModel, folder: Path) -> None:
    config = head.config
    sizes = [
        ("target_hidden_size", config.target_hidden_size, target.hidden_size),
        ("vocab_size", config.vocab_size, target.vocab_size),
    ]
    if not (isinstance(head, Eagle3Head) and head.embed_tokens is not None):
        sizes.insert(0, ("hidden_size", config.hidden_size, target.embedding.weight.shape[1]))
    for name, found, expected in sizes:
        if found != expected:
            raise CheckpointError(
                f"the head in {folder} does not fit the target: its {name} is {found}, the "
                f"target's is {expected}. Choose the head that was trained for this target."
            )
    _ = target.draft_layers  # raises where the target has too few layers


def _read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    path = folder / WEIGHTS
    if path.is_file():
        try:
            return load_file(path)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{path} is not a readable safetensors file ({error}). Download it again."
            ) from error
    path = folder / LEGACY_WEIGHTS
    if not path.is_file():
        raise CheckpointError(f"{folder} holds neither {WEIGHTS} nor {LEGACY_WEIGHTS}.")
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError) as error:
        # Not torch's own words: they advise to load the file with the check switched off.
        raise CheckpointError(
            f"{path} cannot be read as plain tensors ({type(error).__name__}). Anything but "
            "tensors in it is refused. Download it again, or take the head as model.safetensors."
        ) from error
    if not isinstance(tensors, dict) or not all(map(torch.is_tensor, tensors.values())):
        raise CheckpointError(f"{path} does not hold a dictionary of tensors.")
    return tensors


def _fill(
    head: DraftHead, tensors: dict[str, torch.Tensor], target: TargetModel, folder: Path
) -> None:
    """Copy tensors into the head, every one present and of the right shape."""
    parameters = dict(head.named_parameters())
    missing = sorted(set(parameters) - set(tensors))
    if missing:
        raise CheckpointError(
            f"the head in {folder} lacks {', '.join(missing[:4])}"
            + (f" and {len(missing) - 4} more tensors" if len(missing) > 4 else "")
            + ". It is of another kind or incomplete."
        )
    for name, parameter in parameters.items():
        found = tensors[name]
        if found.shape != parameter.shape or not found.is_floating_point():
            raise CheckpointError(
                f"the head in {folder}: {name} is {found.dtype} {list(found.shape)}; its {CONFIG} "
                f"asks for floats {list(parameter.shape)}."
            )
        parameter.data = found
    extra = set(tensors) - set(parameters) - {_VOCABULARY_MAP, _VOCABULARY_MASK, _EMBEDDING}
    if extra:
        logger.warning("ignored unknown tensors in %s: %s", folder, ", ".join(sorted(extra)))
    offsets = tensors.get(_VOCABULARY_MAP)
    if offsets is None:
        return
    size = head.config.draft_vocab_size
    if list(offsets.shape) != [size] or offsets.is_floating_point():
        raise CheckpointError(
            f"the head in {folder}: {_VOCABULARY_MAP} is {offsets.dtype} {list(offsets.shape)}; "
            f"expected {size} integers."
        )
    targets = torch.arange(size) + offsets.long()
    if int(targets.min()) < 0 or int(targets.max()) >= target.vocab_size:
        raise CheckpointError(
            f"the head in {folder}: {_VOCABULARY_MAP} leads to token ids {int(targets.min())} to "
            f"{int(targets.max())}; the target knows 0 to {target.vocab_size - 1}."
        )
    if isinstance(head, Eagle3Head) and len(targets.unique()) < size:
        raise CheckpointError(
            f"the head in {folder}: {_VOCABULARY_MAP} leads two draft ids to one token id; the "
            "tokens behind a node of a draft tree must differ."
        )
    head.draft_to_target = targets


def _replace(path: Path, write: Any) -> None:
    """Write to a neighbour, then rename: a reader never sees half a file."""
    partial = path.with_name(f".{path.name}.partial")
    write(partial)
    partial.replace(path)
