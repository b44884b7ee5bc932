"""DART: lossless speculative decoding with a parallel draft head and n-gram tree search."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dart.model.dart_model import DartModel, dart_generate
    from dart.model.template import TEMPLATE_REGISTRY

__all__ = ["TEMPLATE_REGISTRY", "DartModel", "dart_generate"]
__version__ = "0.1.0"

_HOMES = {
    "DartModel": "dart.model.dart_model",
    "dart_generate": "dart.model.dart_model",
    "TEMPLATE_REGISTRY": "dart.model.template",
}


def __getattr__(name: str) -> Any:
    # Loaded on first use: `import dart.errors` must not cost the import of torch.
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'dart' has no attribute {name!r}")
