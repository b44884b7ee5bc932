"""What a build has done so far, kept beside its destination so that it can go on after a crash.

A folder DESTINATION.build with the files of the steps and two JSON files: job.json says what is
built of which shards, done.json (replaced whole) which shards are in which runs. What it does not
name is not there. Knows nothing of how the steps are done.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from dart.errors import CheckpointError, ConfigError
from dart.folders import only_one
from dart.ngram_build.steps import Counted, has_levels

VERSION = 1  # of the manifest and of the files


class WorkFolder:
    """Runs and parts of one build; for one process at a time, whose threads take turns."""

    def __init__(self, path: Path, shards: Sequence[str]) -> None:
        self.path = path
        self._shards = list(shards)
        self._done: dict[str, Any] = {"batches": [], "runs": [], "ranges": []}

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
            _refuse_foreign(path)
            with _only_one_in(path):
                folder = cls(path, shards)
                folder._begin({"version": VERSION, "job": dict(job), "shards": list(shards)})
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
        return [str(self.run_folder / name) for name in self._done["runs"]]

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The ranges that are merged, once they are chosen."""
        return [(begin, end) for begin, end in self._done["ranges"]]

    @property
    def counted_shards(self) -> set[str]:
        """Keys of the shards whose windows are in the runs."""
        done = (index for batch in self._done["batches"] for index in batch["shards"])
        return {self._shards[index] for index in done}

    def total(self, name: str) -> int:
        """Documents, tokens or broken documents of all counted shards."""
        return sum(batch[name] for batch in self._done["batches"])

    @property
    def first_broken(self) -> str:
        """Where and why a document was left out, if one was."""
        named = (batch["first_broken"] for batch in self._done["batches"])
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
        count = len(self._done["ranges"])
        return count > 0 and all(has_levels(self.part(index)) for index in range(count))

    def add_batch(self, shards: Sequence[str], counted: Counted) -> None:
        """Note that shards are counted."""
        places = {key: place for place, key in enumerate(self._shards)}
        self._done["batches"].append(
            {
                "shards": [places[key] for key in shards],
                "documents": counted.documents,
                "tokens": counted.tokens,
                "broken": counted.broken,
                "first_broken": counted.first_broken,
            }
        )
        self._done["runs"] += [Path(run).name for run in counted.runs]
        self._write()

    def replace_runs(self, old: Sequence[str], new: str) -> None:
        """Note that a run stands for others, and remove these."""
        gone = {Path(run).name for run in old}
        kept = [name for name in self._done["runs"] if name not in gone]
        self._done["runs"] = [*kept, Path(new).name]
        self._write()
        for run in old:
            Path(run).unlink()

    def choose(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Note the ranges: they hold from now on."""
        self._done["ranges"] = [list(pair) for pair in ranges]
        self._write()

    def remove_runs(self) -> None:
        """Make room once all parts are there."""
        shutil.rmtree(self.run_folder)
        self.run_folder.mkdir()

    def remove(self) -> None:
        """The store is there, and this is no longer needed."""
        shutil.rmtree(self.path)

    def _begin(self, wanted: dict[str, Any]) -> None:
        """Compare with the job that is there, read what is done, remove what was not finished."""
        found = _read(self.path / "job.json")
        if found is None:
            _write(self.path / "job.json", wanted)
        else:
            _compare(self.path, found, wanted)
        self._done = _read(self.path / "done.json") or self._done
        for folder in (self.run_folder, self.path / "parts", self.level_folder):
            folder.mkdir(exist_ok=True)
        named = set(self._done["runs"])
        for run in self.run_folder.iterdir():
            if run.name not in named:
                run.unlink()
        for unfinished in self.path.glob("*/*.tmp-*"):
            unfinished.unlink()

    def _write(self) -> None:
        _write(self.path / "done.json", self._done)


def folder_of(destination: str | os.PathLike[str]) -> Path:
    """The work folder of a store."""
    return Path(f"{os.fspath(destination)}.build")


def discard(destination: str | os.PathLike[str]) -> None:
    """Remove unfinished work, if there is any and nobody is at it.

    raises     ConfigError if another process is, or the folder is no work folder
    """
    path = folder_of(destination)
    if path.is_dir():
        _refuse_foreign(path)
        with _only_one_in(path):
            shutil.rmtree(path)


def _refuse_foreign(path: Path) -> None:
    names = {entry.name for entry in path.iterdir()}
    if "job.json" not in names and not names <= {"lock", "job.json.new"}:
        raise ConfigError(
            f"{path} is not a folder of unfinished work; move it, or give another destination."
        )


def _write(path: Path, facts: Mapping[str, Any]) -> None:
    new = path.with_name(f"{path.name}.new")
    with new.open("w", encoding="utf-8") as file:
        json.dump(facts, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ConfigError(f"{path} is damaged ({error}); begin anew with --restart.") from error


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
def _only_one_in(path: Path) -> Iterator[None]:
    with ExitStack() as stack:
        try:  # around taking the lock alone: work under it may time out for reasons of its own
            stack.enter_context(only_one(path / "lock", seconds=0))
        except TimeoutError as error:
            raise ConfigError(
                f"another process is working in {path}; wait for it or stop it."
            ) from error
        yield
