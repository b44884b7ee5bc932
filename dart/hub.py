"""Model names -> local folders: a folder as it is, else a hub's repository, downloaded once."""

from __future__ import annotations

import os
from pathlib import Path

from dart.errors import CheckpointError, ConfigError, HubError

HUBS = ("huggingface", "modelscope")


def resolve(
    name_or_path: str | os.PathLike[str],
    *,
    hub: str = "huggingface",
    patterns: list[str] | None = None,
) -> Path:
    """A local folder (or file) for a path or a hub id such as "Qwen/Qwen3-4B".

    patterns  the files wanted from a repository; None: all
    raises    CheckpointError where the path does not exist; HubError where a hub has no answer
    """
    if hub not in HUBS:
        raise ConfigError(f"hub is {hub!r}; expected one of {', '.join(HUBS)}.")
    name = os.fspath(name_or_path)
    path = Path(name).expanduser()
    if name and path.exists():
        return path
    parts = name.split("/")
    looks_like_id = len(parts) == 2 and all(parts) and parts[0] not in (".", "..", "~")
    if not looks_like_id or "\\" in name:
        raise CheckpointError(
            f"{name} does not exist. Give a folder, or a hub id of the form owner/name."
        )
    download = _from_modelscope if hub == "modelscope" else _from_huggingface
    return Path(download(name, patterns))


def _from_huggingface(name: str, patterns: list[str] | None) -> str:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return snapshot_download(name, allow_patterns=list(patterns) if patterns else None)
    except HFValidationError as error:
        raise CheckpointError(f"{name} is neither a folder nor a valid hub id: {error}") from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise HubError(_advice(name, "Hugging Face", error)) from error


def _from_modelscope(name: str, patterns: list[str] | None) -> str:
    try:
        from modelscope import snapshot_download  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise HubError(
            "--hub modelscope needs the package 'modelscope'; pip install modelscope, or use "
            "--hub huggingface."
        ) from error
    try:
        return snapshot_download(name, allow_patterns=patterns)
    except Exception as error:
        raise HubError(_advice(name, "ModelScope", error)) from error


def _advice(name: str, hub: str, error: BaseException) -> str:
    reason = str(error).strip().splitlines()
    return (
        f"{name} is no local folder and {hub} did not give it "
        f"({reason[0] if reason else error!r}). Check the name and the connection (private: "
        "log in first), or give a local folder."
    )
