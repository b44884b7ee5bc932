"""Input files: names, folders, globs and URLs -> files that can be opened again, anywhere.

A URL is what fsspec knows: `hf://datasets/OWNER/NAME[@REVISION][/PATH]` is a dataset of the Hugging
Face hub, of which only what is read is fetched.
"""

from __future__ import annotations

import glob
import io
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from dart.errors import ConfigError, DartError, HubError

REMOTE_BUFFER_BYTES = 1 << 20

# What tells two contents of one name apart, in the words of the file systems that have URLs.
_VERSION_FIELDS = ("blob_id", "etag", "ETag", "md5Hash", "mtime", "LastModified", "created")


@dataclass(frozen=True, slots=True)
class File:
    """A file as it was when it was listed; any machine that sees it can open it."""

    path: str  # absolute, or a URL
    num_bytes: int
    version: str  # another one after every change: time of change, or the hub's hash

    @property
    def is_remote(self) -> bool:
        """Whether the path is a URL."""
        return "://" in self.path

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """The bytes.

        raises  ConfigError where the file is gone or is not the one that was listed; HubError
                where a URL does not answer
        """
        now = _remote(self.path) if self.is_remote else _local(Path(self.path))
        if now is None:
            raise ConfigError(f"{self.path} is gone. Every machine of a job must see its inputs.")
        if now != self:
            raise ConfigError(f"{self.path} changed while it was being read; start again.")
        if self.is_remote:
            with _answering(self.path):
                system, path = _system(self.path)
                opened = system.open(path, "rb")
            reader = io.BufferedReader(_RemoteBytes(opened, self.path), REMOTE_BUFFER_BYTES)
        else:
            reader = Path(self.path).open("rb")  # noqa: SIM115
        with reader:
            yield reader


def find_files(names: Iterable[str], is_data: Callable[[str], bool]) -> list[File]:
    """The files of inputs, each once: in the inputs' order, those of a folder or glob by path.

    names    files, folders (all in them but what begins with a dot), globs, and URLs of these
    is_data  of a path: whether it holds many documents. A folder behind a URL is a dataset, of
             which the rest (README, licence) is left out
    raises   ConfigError for a name that no file has; HubError where a URL does not answer
    """
    found: dict[str, File] = {}
    for name in names:
        files = list(_files_at_url(name, is_data) if "://" in name else _files_of(name))
        if not files:
            raise ConfigError(f"{name} is no file, nor a folder or pattern that has files.")
        for file in files:
            found.setdefault(file.path, file)
    return list(found.values())


def _files_of(name: str) -> Iterator[File]:
    path = Path(name).expanduser()
    if path.exists():
        matches = [path]
    elif glob.has_magic(name):
        # Path.glob takes no absolute patterns.
        matches = [Path(match) for match in sorted(glob.glob(str(path), recursive=True))]  # noqa: PTH207
    else:
        return
    for match in matches:
        for each in _walk(match) if match.is_dir() else [match]:
            file = _local(each)
            if file is not None:
                yield file


def _walk(folder: Path) -> Iterator[Path]:
    paths = []
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths += [Path(where, name) for name in names if not name.startswith(".")]
    return iter(sorted(paths))


def _local(path: Path) -> File | None:
    if not path.is_file():
        return None
    state = path.stat()
    return File(str(path.absolute()), state.st_size, str(state.st_mtime_ns))


def _files_at_url(url: str, is_data: Callable[[str], bool]) -> list[File]:
    with _answering(url):
        system, path = _system(url)
        if glob.has_magic(path):
            names = system.glob(path)
        elif system.isdir(path):
            names = [name for name in system.find(path) if is_data(name)]
        else:
            names = [path] if system.isfile(path) else []
        # info even where the listing has details: some systems tell them in other words there.
        found = [(system.unstrip_protocol(name), system.info(name)) for name in sorted(names)]
    return [_with_version(name, facts) for name, facts in found if facts["type"] == "file"]


def _remote(url: str) -> File | None:
    try:
        with _answering(url):
            system, path = _system(url)
            return _with_version(url, system.info(path))
    except FileNotFoundError:
        return None


def _with_version(url: str, facts: dict[str, Any]) -> File:
    version = next((str(facts[name]) for name in _VERSION_FIELDS if facts.get(name)), "")
    return File(url, int(facts["size"]), version)


def _system(url: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    return url_to_fs(url)


class _RemoteBytes(io.RawIOBase):
    """A remote file whose failures are ours."""

    def __init__(self, opened: Any, url: str) -> None:
        self._opened = opened
        self._url = url

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _answering(self._url):
            return self._opened.readinto(buffer)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._opened.seek(offset, whence)

    def tell(self) -> int:
        return self._opened.tell()

    def close(self) -> None:
        self._opened.close()
        super().close()


@contextmanager
def _answering(url: str) -> Iterator[None]:
    """Whatever a file system's client raises becomes one HubError; a missing file stays itself."""
    try:
        yield
    except (FileNotFoundError, DartError):
        raise
    except Exception as error:
        reason = (str(error).strip() or repr(error)).splitlines()[0]
        raise HubError(
            f"{url} did not answer ({reason}). Check the URL (a hub dataset is "
            "hf://datasets/OWNER/NAME) and the connection (private: log in first), or give files."
        ) from error
