"""The core in Python and numpy: what decoding needs of `dart._core`, where that cannot be had.

The same names, arguments, results, errors and trees; `dart.native` chooses. Also the plain version
that the compiled search is tested against. Making n-gram stores needs the compiled core.
"""

from dart.pure.context_store import ContextStore
from dart.pure.search import search_tree
from dart.pure.store import NgramStore
from dart.pure.unavailable import (
    NgramBuilder,
    combine_runs,
    encode_levels,
    import_trie,
    join_level,
    merge_runs,
    time_lookups,
)

__all__ = [
    "ContextStore",
    "NgramBuilder",
    "NgramStore",
    "combine_runs",
    "encode_levels",
    "import_trie",
    "join_level",
    "merge_runs",
    "search_tree",
    "time_lookups",
]
