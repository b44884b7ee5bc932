"""Which core a process gets, and how the compiled one is made where it is missing."""

from __future__ import annotations

import json
import logging
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path

import pytest

from dart import native, pure
from dart.native import BuildError, build

ROOT = Path(__file__).parents[1]
CMAKE = (ROOT / "csrc" / "CMakeLists.txt").read_text("utf-8")

# A compiler for tests: says what it was asked for, takes its time, and leaves a file.
FAKE = """\
#!/bin/sh
echo "$*" >> "{log}"
while [ $# -gt 1 ] && [ "$1" != -o ]; do shift; done
{body}
"""


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts a fake compiler in the place of the real one; the log has a line a run."""
    log, path = tmp_path / "log", tmp_path / "fake-c++"

    def install(body: str = 'echo module > "$2"') -> Path:
        path.write_text(FAKE.format(log=log, body=body), encoding="utf-8")
        path.chmod(0o755)
        monkeypatch.setattr(native, "find_compiler", lambda: str(path))
        return log

    return install


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A csrc folder whose name would be several words, or an option, to a shell."""
    folder = tmp_path / "a b; -o $(touch pwned)"
    (folder / "src").mkdir(parents=True)
    (folder / "include" / "dart").mkdir(parents=True)
    (folder / "include" / "dart" / "a.h").write_text("// a", encoding="utf-8")
    (folder / "src" / "a.cpp").write_text("int a;", encoding="utf-8")
    (folder / "bindings.cpp").write_text("int b;", encoding="utf-8")
    return folder


@pytest.fixture
def fresh_choice():
    """A process that has not chosen yet; what it chooses stays in the test."""
    native._choose.cache_clear()
    yield
    native._choose.cache_clear()


def test_the_module_appears_whole_and_is_found_again(tmp_path, sources, compiler):
    """Prevents a compiler run at every start, and half a module where it was cut off."""
    log = compiler('test ! -e "$2" || exit 9; echo module > "$2"')
    made = build(tmp_path / "cache", sources)
    assert made.read_text() == "module\n"
    assert made.name == f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"
    assert build(tmp_path / "cache", sources) == made
    assert len(log.read_text().splitlines()) == 1
    assert sorted(path.name for path in made.parent.iterdir()) == sorted([made.name, "lock"])
    assert not (tmp_path / "pwned").exists()
    assert not Path("pwned").exists()


@pytest.mark.parametrize("changed", ["src/a.cpp", "bindings.cpp", "include/dart/a.h"])
def test_other_sources_make_another_module(tmp_path, sources, compiler, changed):
    """Prevents an old module from being loaded after an update."""
    compiler()
    before = build(tmp_path / "cache", sources)
    (sources / changed).write_text("int other;", encoding="utf-8")
    assert build(tmp_path / "cache", sources) != before


def test_processes_do_not_race(tmp_path, sources, compiler):
    """Prevents ten workers of one machine from compiling the same ten times over."""
    log = compiler('sleep 0.5; echo module > "$2"')
    made: list[Path] = []
    threads = [
        threading.Thread(target=lambda: made.append(build(tmp_path / "cache", sources)))
        for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(made) == 5
    assert len(set(made)) == 1
    assert len(log.read_text().splitlines()) == 1


def test_a_lock_left_behind_stops_nobody(tmp_path, sources, compiler):
    """Prevents a process that was killed while compiling from blocking all later ones."""
    compiler()
    made = build(tmp_path / "cache", sources)
    made.unlink()
    assert (made.parent / "lock").exists()
    assert build(tmp_path / "cache", sources, seconds=5) == made


def test_a_compiler_that_hangs_is_ended_with_its_children(tmp_path, sources, compiler):
    """Prevents a start that never ends, and compilers that go on behind it."""
    compiler(f'sleep 60 & echo $! > "{tmp_path}/child"; wait')
    began = time.monotonic()
    with pytest.raises(BuildError, match="took more than 1 s"):
        build(tmp_path / "cache", sources, seconds=1)
    assert time.monotonic() - began < 20
    child = int((tmp_path / "child").read_text())
    for _ in range(100):
        state = Path(f"/proc/{child}/stat")
        if not state.exists() or state.read_text().split()[2] == "Z":
            break
        time.sleep(0.05)
    else:
        pytest.fail("the compiler's child is still there")
    assert not list((tmp_path / "cache").rglob("*.so"))


def test_a_failing_compiler_is_quoted(tmp_path, sources, compiler, caplog):
    """Prevents a fallback that nobody can explain."""
    compiler("echo 'a.cpp:1: fatal error: Python.h: No such file'; exit 1")
    with pytest.raises(BuildError, match=r"failed \(a.cpp:1: fatal error: Python.h"):
        build(tmp_path / "cache", sources)
    assert "Python.h" in caplog.text


def test_what_is_missing_is_named(tmp_path, sources, monkeypatch):
    """Prevents a traceback at import where sources, compiler, pybind11 or rights are missing."""
    with pytest.raises(BuildError, match="sources are not in"):
        build(tmp_path / "cache", tmp_path / "none")
    monkeypatch.setattr(native, "find_compiler", lambda: None)
    with pytest.raises(BuildError, match="no C\\+\\+ compiler"):
        build(tmp_path / "cache", sources)
    monkeypatch.setattr(native, "find_compiler", lambda: "c++")
    (tmp_path / "file").write_text("")
    with pytest.raises(BuildError, match="file"):
        build(tmp_path / "file" / "cache", sources)
    monkeypatch.setitem(sys.modules, "pybind11", None)
    with pytest.raises(BuildError, match="pybind11 is not installed"):
        build(tmp_path / "cache", sources)


def test_without_a_module_the_search_in_python_is_used(monkeypatch, caplog, fresh_choice):
    """Prevents a Space without a compiler from failing, and from being slow without a word."""

    def no_build(folder: Path):
        raise BuildError("there is no C++ compiler")

    monkeypatch.setitem(sys.modules, native.MODULE, None)
    monkeypatch.setattr(native, "build", no_build)
    with caplog.at_level(logging.WARNING):
        assert native.core() is pure
    assert native.fallback_reason() == "there is no C++ compiler"
    assert "slower core" in caplog.text


def test_the_flags_are_those_of_cmake():
    """Prevents scores that depend on who compiled, and sources that one of the two forgets."""
    for flag in ("-O3", "-DNDEBUG", "-ffp-contract=off"):
        assert flag in native.FLAGS
        assert flag in CMAKE
    if platform.system() == "Linux" and platform.machine() == "x86_64":
        assert "-mpopcnt" in native.FLAGS
        assert "-mpopcnt" in CMAKE
    assert "-std=c++20" in native.FLAGS
    assert "CMAKE_CXX_STANDARD 20" in CMAKE
    for path in (ROOT / "csrc" / "src").glob("*.cpp"):
        assert f"src/{path.name}" in CMAKE


def test_importing_dart_compiles_nothing(tmp_path):
    """Prevents `import dart` from taking half a minute."""
    code = "import dart, sys; sys.exit('dart.native' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


# What a bare copy of the repository does at its first start, with the real compiler.
SCRIPT = """\
import json, sys
# An editable install finds its own core for whatever `dart` is imported.
sys.meta_path = [each for each in sys.meta_path if "ScikitBuild" not in type(each).__name__]
import numpy as np
from dart import native, ngram, pure
from dart.search import search_tree
random = np.random.default_rng(0)
store = ngram.build(random.integers(9, size=(8, 40)).tolist(), 4, sys.argv[1] + "/x.ngram")
copy = ngram.NgramStore(pure.NgramStore.open(store.path), store.path)
for _ in range(50):
    tokens, probs = random.integers(9, size=(6, 8)), random.random((6, 8))
    trees = []
    for core, given in ((native.core(), store), (pure, copy)):
        sys.modules["dart.search"]._core = core
        tree = search_tree(tokens, probs, given, [1, 2, 3], eos_token=0, tree_size=30)
        trees.append([tree.tokens.tolist(), tree.parents.tolist(), tree.scores.tolist()])
    assert trees[0] == trees[1]
print(json.dumps([native.core().__name__, native.core().__file__, native.fallback_reason()]))
"""


@pytest.mark.slow
@pytest.mark.skipif(native.find_compiler() is None, reason="there is no C++ compiler")
def test_a_bare_copy_compiles_its_core(tmp_path):
    """Prevents a Space that falls back to Python because the one call of the compiler is wrong."""
    ignore = shutil.ignore_patterns("*.so", "__pycache__")
    for name in ("dart", "csrc"):
        shutil.copytree(ROOT / name, tmp_path / "copy" / name, ignore=ignore)
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        cwd=tmp_path / "copy",
        env={**os.environ, "DART_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    name, path, reason = json.loads(run.stdout)
    assert (name, reason) == ("dart._core", None)
    assert Path(path).is_relative_to(tmp_path / "cache")
