"""The joining of browser scripts; that they then run is for the browser tests."""

from __future__ import annotations

import re

import pytest

from app.components import STATIC
from app.scripts import script


def write(folder, **modules):
    for name, source in modules.items():
        (folder / f"{name}.js").write_text(source, encoding="utf-8")
    return folder / "main.js"


def test_modules_come_once_and_before_those_that_need_them(tmp_path):
    """Twice would declare a name twice; too late would read it before it is there."""
    main = write(
        tmp_path,
        main='import { a } from "./a.js";\nimport { b } from "./b.js";\na(b);\n',
        a='import { b } from "./b.js";\nexport function a() { return b; }\n',
        b='export const b = "import { x } from \\"./y.js\\";";\n',
    )
    joined = script(main)
    headings = re.findall(r"^// ---- (\w+)\.js$", joined, re.MULTILINE)
    assert headings == ["b", "a", "main"]
    assert not re.search(r"^(import|export)\b", joined, re.MULTILINE)
    assert 'const b = "import { x }' in joined
    assert "return { b };" in joined


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ('import all from "./a.js";\n', "cannot join"),
        ('import "./a.js";\n', "cannot join"),
        ("export default 1;\n", "cannot join"),
        ('import { a } from "./main.js";\n', "imports itself"),
    ],
)
def test_what_cannot_be_joined_is_said(tmp_path, source, complaint):
    """Joined wrongly, a page would stay empty with an error that only its console has."""
    with pytest.raises(ValueError, match=complaint):
        script(write(tmp_path, main=source, a=""))


def test_every_import_names_an_export():
    """A name that the other module does not give would be `undefined` until it is used."""
    for path in STATIC.rglob("*.js"):
        for names, other in re.findall(
            r'^import \{([^}]*)\} from "([^"]+)";$', path.read_text("utf-8"), re.MULTILINE
        ):
            given = set(re.findall(
                r"^export (?:async )?(?:function|const|class) (\w+)",
                (path.parent / other).read_text("utf-8"), re.MULTILINE,
            ))  # fmt: skip
            wanted = {name.strip() for name in names.split(",")} - {""}
            assert wanted <= given, f"{path.name} imports {wanted - given} from {other}"
