"""Names to folders; nothing here touches the network."""

from __future__ import annotations

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from dart.errors import CheckpointError, ConfigError, HubError
from dart.hub import resolve


def test_a_folder_is_taken_as_it_is(tmp_path) -> None:
    """A local path must never be looked up on a hub."""
    assert resolve(tmp_path) == tmp_path


@pytest.mark.parametrize("name", ["nowhere", "./a/b", "/no/such/folder", "a/b/c", "../x", ""])
def test_a_path_that_is_no_hub_id_is_refused(name) -> None:
    """A typo in a path must not become a download."""
    with pytest.raises(CheckpointError, match="does not exist|hub id"):
        resolve(name)


def test_a_hub_that_cannot_be_reached_is_one_clear_error(monkeypatch) -> None:
    """No network is the normal state of many machines."""

    def refuse(*args, **kwargs):
        raise LocalEntryNotFoundError("cannot connect")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(HubError, match="Qwen/Qwen3-4B is no local folder.*cannot connect"):
        resolve("Qwen/Qwen3-4B")


def test_an_unknown_hub_is_named() -> None:
    """A silent fallback would download from the wrong place."""
    with pytest.raises(ConfigError, match="huggingface, modelscope"):
        resolve("a/b", hub="elsewhere")


def test_modelscope_without_its_package_says_what_to_install(monkeypatch) -> None:
    """The extra is optional."""
    monkeypatch.setitem(__import__("sys").modules, "modelscope", None)
    with pytest.raises(HubError, match="pip install modelscope"):
        resolve("a/b", hub="modelscope")
