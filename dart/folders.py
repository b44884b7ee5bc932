"""Where files are kept that can be made again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """DART_CACHE, else ~/.cache/dart; it need not exist."""
    return Path(os.environ.get("DART_CACHE") or Path("~/.cache/dart").expanduser())
