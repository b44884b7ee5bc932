"""Joins a script and the modules it imports into the one script that gr.HTML takes.

The files are ES modules, each with one job and its imports at the top. They reach the page inside
`js_on_load` rather than as files of their own: so they work mounted under any path, behind any
proxy and with the server gone, and no browser cache can mix modules of two versions.

Each module keeps a scope of its own: `import { a } from "./b.js";` becomes a look-up in what b.js
returned. Only named imports, and exports in front of a declaration, are understood.
"""

from __future__ import annotations

import re
from pathlib import Path

_IMPORT = re.compile(r'^import (\{[^}]*\}) from "(\.[\w./-]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|const|class) (\w+))", re.MULTILINE)


def script(path: Path) -> str:
    """The module and, before it, every module that it needs, each once.

    raises  ValueError for an import or export in another form, and for a circle
    """
    parts: list[str] = []
    _add(path.resolve(), parts, {}, ())
    return '"use strict";\n' + "".join(parts)


def _add(path: Path, parts: list[str], names: dict[Path, str], above: tuple[Path, ...]) -> str:
    """Join the module if it is not yet there; the name of what it exports."""
    if path in above:
        raise ValueError(f"{path.name} imports itself: {[step.name for step in above]}")
    if path in names:
        return names[path]

    def imported(match: re.Match[str]) -> str:
        needed = (path.parent / match[2]).resolve()
        return f"const {match[1]} = {_add(needed, parts, names, (*above, path))};"

    source = path.read_text("utf-8")
    exported = _EXPORT.findall(source)
    body = _EXPORT.sub("", _IMPORT.sub(imported, source))
    if left := re.search(r"^(?:import|export)\b.*", body, re.MULTILINE):
        raise ValueError(f"{path.name}: cannot join the line {left.group()!r}")
    names[path] = f"$module{len(names)}"
    returned = ", ".join(exported)
    parts.append(
        f"// ---- {path.name}\n"
        f"const {names[path]} = (() => {{\n{body}\nreturn {{ {returned} }};\n}})();\n"
    )
    return names[path]
