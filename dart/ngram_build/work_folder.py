"""What a build has done so far, kept beside its destination so that it can go on after a crash.

A folder DESTINATION.build with a manifest (JSON, replaced whole) and the files of the steps. What
the manifest does not name is not there. Knows nothing of how the steps are done.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dart.errors import CheckpointError, ConfigError
from dart.ngram_build.steps import Counted, has_levels

VERSION = 1  # of the manifest and of the files


class WorkFolder:
    """Runs and parts of one build; for one process at a time, whose threads take turns."""

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path = path
        self._manifest = manifest

    @classmethod
    @contextmanager
    def open(
        cls, destination: str | os.PathLike[str], job: Mapping[str, Any], shards: Sequence[str]
    ) -> Iterator[WorkFolder]:
        """Make the folder or take it up again.

        job        what decides about the result, by the name of the argument
        shards     keys of the inputs
        raises     ConfigError if it holds another job's work, or another process works in it;
                   CheckpointError if it cannot be written
        """
        path = folder_of(destination)
        try:
            path.mkdir(exist_ok=True)
            with _lock(path / "lock"):
                manifest = _read(path)
                wanted = {"version": VERSION, "job": dict(job), "shards": list(shards)}
                if manifest is None:
                    manifest = wanted | {"batches": [], "runs": [], "ranges": []}
                else:
                    _compare(path, manifest, wanted)
                folder = cls(path, manifest)
                folder._clean()
                yield folder
        except OSError as error:
            raise CheckpointError(
                f"{error.filename or path}: {error.strerror}; expected an existing folder with "
                "write permission and free space. Give another destination, or make room."
            ) from error

    @property
    def run_folder(self) -> Path:
        """Where runs are written."""
        return self.path / "runs"

    @property
    def runs(self) -> list[str]:
        """Paths of the runs that count."""
        return [str(self.run_folder / name) for name in self._manifest["runs"]]

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The ranges that are merged, once they are chosen."""
        return [(begin, end) for begin, end in self._manifest["ranges"]]

    @property
    def counted_shards(self) -> set[str]:
        """Keys of the shards whose windows are in the runs."""
        return {key for batch in self._manifest["batches"] for key in batch["shards"]}

    def total(self, name: str) -> int:
        """Documents, tokens or broken documents of all counted shards."""
        return sum(batch[name] for batch in self._manifest["batches"])

    @property
    def first_broken(self) -> str:
        """Where and why a document was left out, if one was."""
        named = (batch["first_broken"] for batch in self._manifest["batches"])
        return next((message for message in named if message), "")

    def part(self, index: int) -> str:
        """Prefix of the files of a range's part."""
        return str(self.path / "parts" / f"{index:05}-")

    @property
    def level_folder(self) -> Path:
        """Where the joined levels are."""
        return self.path / "levels"

    @property
    def has_all_parts(self) -> bool:
        """Whether there is nothing left to merge."""
        if has_levels(self.level_folder / "level"):
            return True
        count = len(self._manifest["ranges"])
        return count > 0 and all(has_levels(self.part(index)) for index in range(count))

    def add_batch(self, shards: Sequence[str], counted: Counted) -> None:
        """Note that shards are counted."""
        self._manifest["batches"].append(
            {
                "shards": list(shards),
                "documents": counted.documents,
                "tokens": counted.tokens,
                "broken": counted.broken,
                "first_broken": counted.first_broken,
            }
        )
        self._manifest["runs"] += [Path(run).name for run in counted.runs]
        self._write()

    def replace_runs(self, old: Sequence[str], new: str) -> None:
        """Note that a run stands for others, and remove these."""
        gone = {Path(run).name for run in old}
        kept = [name for name in self._manifest["runs"] if name not in gone]
        self._manifest["runs"] = [*kept, Path(new).name]
        self._write()
        for run in old:
            Path(run).unlink()

    def choose(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Note the ranges: they hold from now on."""
        self._manifest["ranges"] = [list(pair) for pair in ranges]
        self._write()

    def remove_runs(self) -> None:
        """Make room once all parts are there."""
        shutil.rmtree(self.run_folder)
        self.run_folder.mkdir()

    def remove(self) -> None:
        """The store is there, and this is no longer needed."""
        shutil.rmtree(self.path)

    def _clean(self) -> None:
        """Make the folders and remove what was not finished."""
        self._write()
        for folder in (self.run_folder, self.path / "parts", self.level_folder):
            folder.mkdir(exist_ok=True)
        named = set(self._manifest["runs"])
        for run in self.run_folder.iterdir():
            if run.name not in named:
                run.unlink()
        for unfinished in self.path.glob("*/*.tmp-*"):
            unfinished.unlink()

    def _write(self) -> None:
        new = self.path / "manifest.json.new"
        with new.open("w", encoding="utf-8") as file:
            json.dump(self._manifest, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path / "manifest.json")


def folder_of(destination: str | os.PathLike[str]) -> Path:
    """The work folder of a store."""
    return Path(f"{os.fspath(destination)}.build")


def discard(destination: str | os.PathLike[str]) -> None:
    """Remove unfinished work, if there is any and nobody is at it.

    raises     ConfigError if another process is
    """
    path = folder_of(destination)
    if path.is_dir():
        with _lock(path / "lock"):
            shutil.rmtree(path)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        text = (path / "manifest.json").read_text(encoding="utf-8")
    except FileNotFoundError:
        unknown = [entry.name for entry in path.iterdir() if entry.name != "lock"]
        if any(not name.startswith("manifest.json") for name in unknown):
            raise ConfigError(
                f"{path} is not a folder of unfinished work; move it, or give another destination."
            ) from None
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(
            f"{path}/manifest.json is damaged ({error}); begin anew with --restart."
        ) from error


def _compare(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raise ConfigError with the first difference between the jobs."""
    if found.get("version") != wanted["version"]:
        difference = f"of version {found.get('version')}, this is version {wanted['version']}"
    else:
        difference = _difference(found, wanted)
    if difference:
        raise ConfigError(
            f"{path} holds unfinished work {difference}. Give the same arguments to go on, or "
            "--restart to begin anew."
        )


def _difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    for name in [*wanted["job"], *found["job"]]:
        there, here = found["job"].get(name), wanted["job"].get(name)
        if there != here:
            return f"with {name} {_shown(there)}, not {_shown(here)}"
    there, here = found["shards"], wanted["shards"]
    if there == here:
        return ""
    known = set(there)
    other = next((key for key in here if key not in known), None)
    if other is not None:
        return f"of other input: it does not know {other}"
    return f"of {len(there)} shards of input, not of {len(here)}"


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold a lock file; it is free again when its holder is gone, however it went."""
    try:
        import fcntl
    except ImportError:  # Windows: the user must know
        yield
        return
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"another process is working in {path.parent}; wait for it or stop it."
            ) from error
        yield
