"""Published n-grams by name: downloaded and imported once, kept in the cache, found again.

Knows names, folders and what the cache calls a store; not what is in one.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from pathlib import Path

from dart.errors import CheckpointError
from dart.folders import cache_folder, only_one
from dart.hub import resolve
from dart.ngram import NgramStore, import_trie
from dart.progress import Progress, ProgressLine

logger = logging.getLogger(__name__)

IMPORTED = "version 2, quantised"  # what is kept; another word for another format


def trie_name(*, is_small: bool) -> str:
    """Upstream's file of the two that a published folder may hold."""
    return "small.trie" if is_small else "full.trie"


def find_source(
    name_or_path: str | os.PathLike[str],
    *,
    is_small: bool = True,
    hub: str = "huggingface",
    only_trie: bool = False,
) -> Path:
    """The store or `.trie` that a file, a folder or a hub id stands for; downloaded if need be.

    The name of a `.trie` file stands for itself, whether the file is there or not.

    is_small   small.trie rather than full.trie of a folder without a store
    only_trie  stores beside it will not do
    raises     CheckpointError where the folder holds nothing of that; as dart.hub.resolve
    """
    path = Path(name_or_path).expanduser()
    if path.suffix == ".trie":
        return path
    wanted = trie_name(is_small=is_small)
    source = resolve(name_or_path, hub=hub, patterns=[wanted] if only_trie else [wanted, "*.ngram"])
    if not source.is_dir():
        return source
    stores = [] if only_trie else sorted(source.glob("*.ngram"))
    if len(stores) > 1:
        names = ", ".join(store.name for store in stores)
        raise CheckpointError(f"{source} holds several stores ({names}); name one of them.")
    found = stores[0] if stores else source / wanted
    if not found.is_file():
        lacks = f"no {wanted}" if only_trie else f"neither a .ngram store nor {wanted}"
        raise CheckpointError(f"{name_or_path} holds {lacks}; name a folder that does, or a file.")
    return found


def open_published(
    name_or_path: str | os.PathLike[str],
    *,
    is_small: bool = True,
    hub: str = "huggingface",
    cache: Path | None = None,
    residence: str = "mapped",
) -> NgramStore:
    """Open a store, an upstream `.trie`, or a folder or hub repository that holds either.

    What was imported from a repository is used from then on without asking the hub: what it had
    downloaded may go. Remove the store from the cache to import anew.

    is_small   small.trie rather than full.trie where both are published
    cache      where imported stores are kept; None: DART_CACHE, else ~/.cache/dart
    residence  how the store is kept in memory, see NgramStore.open
    raises     as find_source, open_or_import
    """
    folder = (cache or cache_folder()) / "ngram"
    name = os.fspath(name_or_path)
    if Path(name).expanduser().exists():
        return open_or_import(
            find_source(name, is_small=is_small), cache=cache, residence=residence
        )
    words = [hub, *name.split("/"), Path(trie_name(is_small=is_small)).stem, IMPORTED]
    # Which store came from there; a link would be lost where the cache is copied.
    note = folder / f"{hashlib.sha256(chr(0).join(words).encode()).hexdigest()[:16]}.source"
    if note.is_file():
        kept = folder / note.read_text(encoding="utf-8").strip()
        if kept.is_file():
            logger.info("%s was imported before: %s", name, kept)
            return NgramStore.open(kept, residence=residence)
    source = find_source(name, is_small=is_small, hub=hub)
    store = open_or_import(source, cache=cache, residence=residence)
    if Path(store.path).parent == folder:
        fresh = note.with_suffix(f".{os.getpid()}")
        fresh.write_text(Path(store.path).name + "\n", encoding="utf-8")
        fresh.replace(note)
    return store


def open_or_import(
    source: Path,
    *,
    cache: Path | None = None,
    residence: str = "mapped",
    progress: Progress | None = None,
) -> NgramStore:
    """Open a store, or an upstream `.trie` that is imported once.

    The store is kept and found again while the source stays the same. Of several processes one
    imports, the others wait for it.

    residence  how the store is kept in memory, see NgramStore.open
    progress   told how far an import is; None: a line on stderr
    raises     CheckpointError where there is no such file; else as NgramStore.open, import_trie
    """
    if source.suffix != ".trie":
        return NgramStore.open(source, residence=residence)
    if not source.is_file():
        raise CheckpointError(f"{source} does not exist; expected an upstream .trie file.")
    store = (cache or cache_folder()) / "ngram" / f"{source.stem}-{_key(source)}.ngram"
    if store.is_file():
        return NgramStore.open(store, residence=residence)
    try:
        store.parent.mkdir(parents=True, exist_ok=True)
        with only_one(
            store.with_suffix(".lock"),
            on_wait=lambda: logger.warning("waiting for the import of %s elsewhere", source),
        ):
            if not store.is_file():
                size = source.stat().st_size
                logger.warning("importing %s (%.1f MB), once", source, size / 1e6)
                with ProgressLine(sys.stderr) as line:
                    import_trie(source, store, progress=progress or line)
    except OSError as error:
        raise CheckpointError(
            f"{error.filename or store}: {error.strerror}; expected a folder for imported stores "
            "that can be written. Set DART_CACHE to one."
        ) from error
    return NgramStore.open(store, residence=residence)


def _key(source: Path) -> str:
    """Stands for the contents of a file, without reading it."""
    path = source.resolve()
    state = path.stat()
    # In a hub's cache a file is named after its contents: the same after another download.
    is_blob = path.parent.name == "blobs"
    content = path.name if is_blob else f"{path}|{state.st_mtime_ns}"
    return hashlib.sha256(f"{IMPORTED}|{content}|{state.st_size}".encode()).hexdigest()[:16]
