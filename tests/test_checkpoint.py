"""Checkpoints: every misfit is named, and what is written can be read back."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from dart.checkpoint import load_dart_head, load_eagle3_head, save_dart_head, save_eagle3_head
from dart.config import Eagle3TreeConfig
from dart.drafter import StageClock
from dart.eagle3_head import Eagle3Drafter
from dart.errors import CheckpointError
from dart.target import TargetModel


@pytest.fixture
def folder(conformance: Path, tmp_path: Path) -> Path:
    """A private copy of the recorded head."""
    return Path(shutil.copytree(conformance / "dart_head", tmp_path / "head"))


@pytest.fixture
def eagle3_folder(conformance: Path, tmp_path: Path) -> Path:
    """A private copy of the recorded EAGLE3 head."""
    return Path(shutil.copytree(conformance / "eagle3_head", tmp_path / "eagle3"))


def edit_config(folder: Path, **changes) -> None:
    """Change or (with None) remove fields of config.json."""
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))


def edit_tensors(folder: Path, **changes: torch.Tensor | None) -> None:
    """Change or (with None) remove tensors; dots in names are written as __."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name, value in changes.items():
        name = name.replace("__", ".")
        if value is None:
            tensors.pop(name)
        else:
            tensors[name] = value
    save_file(tensors, path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"draft_length": None}, "no 'draft_length'"),
        ({"draft_vocab_size": None}, "no 'draft_vocab_size'"),
        ({"hidden_size": 128}, "hidden_size is 128"),
        ({"vocab_size": 700}, "vocab_size is 700"),
        ({"hidden_size": "wide"}, "config.json"),
        ({"num_key_value_heads": 3}, "num_key_value_heads is 3"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, "rope_scaling"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"draft_vocab_size": 100}, "d2t|lm_head"),
        ({"intermediate_size": 100}, "mlp"),
    ],
)
def test_a_config_that_does_not_fit_is_named(folder, recorded_target, changes, message) -> None:
    """Upstream loads such a head without a word and drafts noise."""
    edit_config(folder, **changes)
    with pytest.raises(CheckpointError, match=message):
        load_dart_head(folder, recorded_target)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"midlayer__mask_rep": None}, "lacks midlayer.mask_rep"),
        ({"fc__weight": torch.zeros(3, 3)}, r"fc.weight is torch.float32 \[3, 3\]"),
        ({"norm__weight": torch.zeros(64, dtype=torch.int64)}, "norm.weight is torch.int64"),
        ({"d2t": torch.full((288,), 10_000)}, "d2t leads to token ids"),
        ({"d2t": torch.zeros(7, dtype=torch.int64)}, r"d2t is torch.int64 \[7\]"),
    ],
)
def test_tensors_that_do_not_fit_are_named(folder, recorded_target, changes, message) -> None:
    """A missing tensor left at random would only show as bad acceptance."""
    edit_tensors(folder, **changes)
    with pytest.raises(CheckpointError, match=message):
        load_dart_head(folder, recorded_target)


def test_missing_and_corrupt_files_are_named(folder, recorded_target, tmp_path) -> None:
    """A half-finished download must not end in a traceback."""
    with pytest.raises(CheckpointError, match="config.json is missing"):
        load_dart_head(tmp_path / "nowhere", recorded_target)
    weights = folder / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match="not a readable safetensors file"):
        load_dart_head(folder, recorded_target)
    weights.unlink()
    with pytest.raises(CheckpointError, match="holds neither"):
        load_dart_head(folder, recorded_target)
    (folder / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="cannot be read as JSON"):
        load_dart_head(folder, recorded_target)


def test_a_bin_checkpoint_loads_but_code_in_it_does_not_run(folder, recorded_target) -> None:
    """A pickle can run anything; only tensors are let through."""
    weights = folder / "model.safetensors"
    tensors = load_file(weights)
    weights.unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    head = load_dart_head(folder, recorded_target)
    assert torch.equal(head.fc.weight, tensors["fc.weight"])
    torch.save({"fc.weight": Path("x")}, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="plain tensors"):
        load_dart_head(folder, recorded_target)


def test_saving_and_loading_gives_the_same_head(
    folder: Path, recorded_target: TargetModel, tmp_path: Path
) -> None:
    """What training writes is what inference reads, in the published layout."""
    head = load_dart_head(folder, recorded_target)
    save_dart_head(head, tmp_path / "again")
    again = load_dart_head(tmp_path / "again", recorded_target)
    for (name, left), right in zip(
        head.state_dict().items(), again.state_dict().values(), strict=True
    ):
        assert torch.equal(left, right), name
    assert again.config == head.config
    published, ours = (
        load_file(folder / "model.safetensors"),
        load_file(tmp_path / "again/model.safetensors"),
    )
    assert set(ours) == set(published) - {"embed_tokens.weight"}
    for name, tensor in ours.items():
        assert tensor.shape == published[name].shape
        assert torch.equal(tensor, published[name]), name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_head_takes_the_targets_dtype(folder, recorded_target, dtype) -> None:
    """Mixed dtypes fail at the first multiplication."""
    # A copy: there and back again would leave the shared model's weights rounded.
    target = TargetModel(copy.deepcopy(recorded_target.model).to(dtype))
    head = load_dart_head(folder, target)
    assert head.fc.weight.dtype == dtype
    assert head.draft_to_target.dtype == torch.int64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"draft_vocab_size": None}, "no 'draft_vocab_size'"),
        ({"hidden_size": 128, "head_dim": 16}, "hidden_size is 128, the target's is 64"),
        ({"target_hidden_size": 32}, "target_hidden_size is 32"),
        ({"vocab_size": 700}, "vocab_size is 700"),
        ({"num_attention_heads": 2}, "q_proj|k_proj"),
    ],
)
def test_an_eagle3_config_that_does_not_fit_is_named(
    eagle3_folder, recorded_target, changes, message
) -> None:
    """The same care for the other kind of head."""
    edit_config(eagle3_folder, **changes)
    with pytest.raises(CheckpointError, match=message):
        load_eagle3_head(eagle3_folder, recorded_target)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lm_head__weight": None}, "lacks lm_head.weight"),
        ({"fc__weight": torch.zeros(3, 3)}, r"fc.weight is torch.float32 \[3, 3\]"),
        ({"d2t": torch.full((288,), -1)}, "d2t leads to token ids"),
        ({"d2t": -torch.arange(288)}, "two draft ids to one token"),
        ({"embed_tokens__weight": torch.zeros(5, 64)}, r"embed_tokens.weight is .* \[5, 64\]"),
    ],
)
def test_eagle3_tensors_that_do_not_fit_are_named(
    eagle3_folder, recorded_target, changes, message
) -> None:
    """Two siblings with one token, say, would make a tree whose nodes cannot be told apart."""
    edit_tensors(eagle3_folder, **changes)
    with pytest.raises(CheckpointError, match=message):
        load_eagle3_head(eagle3_folder, recorded_target)


def test_heads_are_not_taken_for_each_other(folder, eagle3_folder, recorded_target) -> None:
    """The tensors of one kind are nearly those of the other."""
    with pytest.raises(CheckpointError, match="no 'draft_length'"):
        load_dart_head(eagle3_folder, recorded_target)
    with pytest.raises(CheckpointError, match=r"mask_rep.*DART head"):
        load_eagle3_head(folder, recorded_target)


def test_an_eagle3_bin_checkpoint_loads(eagle3_folder, recorded_target) -> None:
    """Some of the published ones are no safetensors."""
    weights = eagle3_folder / "model.safetensors"
    tensors = load_file(weights)
    weights.unlink()
    torch.save(tensors, eagle3_folder / "pytorch_model.bin")
    head = load_eagle3_head(eagle3_folder, recorded_target)
    assert torch.equal(head.fc.weight, tensors["fc.weight"])
    assert torch.equal(head.draft_to_target, torch.arange(288) + tensors["d2t"])


def test_saving_and_loading_gives_the_same_eagle3_head(
    eagle3_folder: Path, recorded_target: TargetModel, tmp_path: Path
) -> None:
    """The published layout again: upstream must find what it looks for, and nothing else."""
    head = load_eagle3_head(eagle3_folder, recorded_target)
    save_eagle3_head(head, tmp_path / "again")
    again = load_eagle3_head(tmp_path / "again", recorded_target)
    assert again.config == head.config
    published, ours = (
        load_file(eagle3_folder / "model.safetensors"),
        load_file(tmp_path / "again/model.safetensors"),
    )
    assert set(ours) == set(published)
    for name, tensor in ours.items():
        assert torch.equal(tensor, published[name]), name
    config = json.loads((tmp_path / "again/config.json").read_text())
    assert "target_hidden_size" not in config  # upstream would look for an embedding in the file
    assert "draft_length" not in config


def test_an_embedding_of_its_own_is_used_and_kept(
    eagle3_folder: Path, recorded_target: TargetModel, tmp_path: Path
) -> None:
    """A head that was trained with another embedding guesses nothing right with the target's."""
    target_embedding = recorded_target.embedding.weight.detach()
    edit_tensors(eagle3_folder, embed_tokens__weight=target_embedding.clone())
    assert load_eagle3_head(eagle3_folder, recorded_target).embed_tokens is None
    edit_tensors(eagle3_folder, embed_tokens__weight=2 * target_embedding)
    head = load_eagle3_head(eagle3_folder, recorded_target)
    assert head.embed_tokens is not None
    assert torch.equal(head.embed_tokens.weight, 2 * target_embedding)
    save_eagle3_head(head, tmp_path / "again")
    again = load_eagle3_head(tmp_path / "again", recorded_target)
    assert again.embed_tokens is not None
    assert torch.equal(again.embed_tokens.weight, head.embed_tokens.weight)
    drafts = []
    for each in (head, again, load_eagle3_head(eagle3_folder, recorded_target)):
        drafter = Eagle3Drafter(each, recorded_target, Eagle3TreeConfig(size=8))
        with torch.inference_mode():
            drafter.start([5, 9], 33, torch.ones(2, 192), 32)
            drafts.append(drafter.propose(8, StageClock()).tokens.tolist())
    assert drafts[0] == drafts[1] == drafts[2]


def test_a_full_draft_vocabulary_has_no_map(
    eagle3_folder: Path, recorded_target: TargetModel
) -> None:
    """As upstream: where draft and target vocabulary are one, what the file says is not read."""
    size = recorded_target.vocab_size
    edit_config(eagle3_folder, draft_vocab_size=size)
    edit_tensors(eagle3_folder, lm_head__weight=torch.ones(size, 64), d2t=torch.ones(size).long())
    head = load_eagle3_head(eagle3_folder, recorded_target)
    assert torch.equal(head.draft_to_target, torch.arange(size))
