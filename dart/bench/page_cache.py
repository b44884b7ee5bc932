"""What of a file is in memory: in the system's page cache and in this process. Linux only."""

from __future__ import annotations

import ctypes
import ctypes.util
import mmap
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dart.errors import ConfigError

PAGE = mmap.PAGESIZE
_SMAPS = Path("/proc/self/smaps")
_CLEAR = Path("/proc/self/clear_refs")


def is_supported() -> bool:
    """Whether this system tells."""
    return sys.platform == "linux" and _SMAPS.exists()


def drop(path: str | os.PathLike[str]) -> float:
    """Take a file out of the page cache; the share of it that stays nevertheless, 0 to 1.

    What a process has mapped stays, so every store of the file must be closed before.
    """
    with Path(path).open("rb") as file:
        os.fsync(file.fileno())  # unwritten pages stay, too
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return cached_share(path)


def cached_share(path: str | os.PathLike[str]) -> float:
    """The share of a file's pages that the page cache holds, by mincore(2)."""
    libc = ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True)
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            return 0.0
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapping:
            flags = np.zeros(-(-size // PAGE), np.uint8)
            view = np.frombuffer(mapping, np.uint8)
            address = ctypes.c_void_p(view.ctypes.data)
            failed = libc.mincore(
                address, ctypes.c_size_t(size), flags.ctypes.data_as(ctypes.c_void_p)
            )
            del view  # or the mapping could not be closed
    if failed:
        raise ConfigError(f"mincore of {path} failed: {os.strerror(ctypes.get_errno())}")
    return float((flags & 1).mean())


@dataclass(frozen=True, slots=True)
class Resident:
    """Bytes of a file's mappings in this process."""

    resident: int  # in its page tables
    referenced: int  # read since `forget_references`
    huge: int  # of `resident`, mapped as huge pages


def resident(path: str | os.PathLike[str]) -> Resident:
    """What of a file this process has mapped at this moment."""
    wanted = os.path.realpath(path)
    totals = {"Rss": 0, "Referenced": 0, "FilePmdMapped": 0}
    is_wanted = False
    for line in _SMAPS.read_text(encoding="utf-8", errors="replace").splitlines():
        name, colon, rest = line.partition(":")
        if colon and name in totals and is_wanted:
            totals[name] += int(rest.split()[0]) * 1024
        elif "-" in name.split(" ", 1)[0]:  # the head of a mapping: addresses, .., path
            is_wanted = line.split(maxsplit=5)[5:] == [wanted]
    return Resident(totals["Rss"], totals["Referenced"], totals["FilePmdMapped"])


def forget_references() -> None:
    """Begin anew to note which pages this process reads."""
    _CLEAR.write_text("1", encoding="ascii")
