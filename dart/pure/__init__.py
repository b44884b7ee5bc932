"""The core in Python and numpy: what decoding needs of `dart._core`, where that cannot be had.

The same names, arguments, results, errors and trees; `dart.native` chooses. Also the plain version
that the compiled search is tested against. Making n-gram stores needs the compiled core.
"""

from dart.pure.context_store import ContextStore
from dart.pure.search import search_tree
from dart.pure.store import NgramStore
from dart.pure.unavailable import NgramBuilder, import_trie, time_lookups

__all__ = [
    "ContextStore",
    "NgramBuilder",
    "NgramStore",
    "import_trie",
    "search_tree",
    "time_lookups",
]
