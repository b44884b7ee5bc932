"""Rules of the repository that no tool knows."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "dart"
SOURCES = sorted(PACKAGE.rglob("*.py"))

# Every arrow points down: a module may import those of lower levels only.
LEVELS = [
    {"errors", "stats", "folders", "progress", "__init__"},
    {"config", "tree", "text", "hub", "packing", "_core", "pure"},
    {"native"},
    {"ngram_build", "cache"},
    {"ngram"},
    {"imported", "context_store", "layers", "drafter", "sampling", "verify", "acceptance"},
    {"search"},
    {"draft_head"},
    {"target", "dart_head", "eagle3_head"},
    {"checkpoint", "decode"},
    {"model"},
    {"train", "bench"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}
OUTER = {"train", "bench", "cli", "__main__"}


def home(path: Path) -> str:
    """The name by which LEVELS knows a file."""
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Modules of this package and `app` that a file imports, anywhere in it.

    What is imported for annotations only is no arrow: it is not there when the program runs.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "app":
                found.add("app")
            if parts[0] == "dart" and len(parts) > 1:
                found.add(parts[1] if (PACKAGE / parts[1]).is_dir() or parts[1] in LEVEL
                          or (PACKAGE / f"{parts[1]}.py").is_file() else "__init__")  # fmt: skip
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path):
    """Prevents circles, and inference that drags in training, the benchmark or the app."""
    own = home(path)
    assert own in LEVEL, f"{own} has no level yet: add it to LEVELS where it belongs"
    for name in imports(path) - {own}:
        assert name != "app", f"{path.name} imports the app"
        assert LEVEL[name] < LEVEL[own], f"{own} imports {name}, which is not below it"
        assert own in OUTER or name not in OUTER


def calls(path: Path) -> set[str]:
    """Names of the functions a file calls."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {node.id for node in found if isinstance(node, ast.Name)}


def test_only_the_command_line_prints():
    """Prevents a library that talks to whoever imports it."""
    talking = [p for p in SOURCES if "print" in calls(p) and home(p) not in ("cli", "__main__")]
    assert talking == []


def tracked() -> list[Path]:
    """Text files of the repository."""
    try:
        out = subprocess.run(
            ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    kinds = {".py", ".pyi", ".sh", ".toml", ".txt", ".md", ".cpp", ".h", ".yml", ".yaml", ""}
    paths = [ROOT / line for line in out.splitlines()]
    return [p for p in paths if p.suffix in kinds and p.is_file() and not p.is_symlink()]


def test_no_paths_of_a_machine_and_no_registry_hosts():
    """Prevents files that work on one machine only, and locks that name one registry."""
    machine = re.compile(r"(?<![\w.])/(?:home|root|work|Users|mnt|opt)/[a-z]")
    host = re.compile(
        r"(?:--(?:extra-)?index-url|--find-links)\s|registry\.npmjs|files\.pythonhosted"
    )
    for path in tracked():
        text = path.read_text(encoding="utf-8", errors="replace")
        if path == Path(__file__):
            continue
        for pattern in (machine, host):
            found = pattern.search(text)
            assert found is None, f"{path.relative_to(ROOT)}: {found}"


def test_requirements_are_pins():
    """Prevents a version that nobody tested from being installed by the launch scripts."""
    for name in ("requirements.txt", "requirements-dev.txt"):
        for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("#"):
                assert re.match(r"^[\w.-]+(\[\w+\])?==[\w.]+( *; .+)?$", line), f"{name}: {line}"


def test_launch_scripts_parse():
    """Prevents a script that nobody ran from failing with a syntax error."""
    for path in [*sorted((ROOT / "launch").glob("*.sh")), ROOT / ".ci/run"]:
        done = subprocess.run(["bash", "-n", path], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("script", "flags", "expected"),
    [
        ("qwen3_1d7b", [], ["Qwen/Qwen3-1.7B", "fvliang/qwen1.7b-dart"]),
        ("qwen3_4b", [], ["Qwen/Qwen3-4B", "fvliang/qwen4b-dart"]),
        ("qwen3_8b", [], ["Qwen/Qwen3-8B", "fvliang/qwen8b-dart"]),
        ("qwen3_14b", [], ["Qwen/Qwen3-14B", "fvliang/qwen14b-dart"]),
        ("qwen3_32b", [], ["Qwen/Qwen3-32B", "fvliang/qwen32b-dart"]),
        ("qwen3_4b", ["--hub", "modelscope"], ["Qwen/Qwen3-4B", "fvliang/Qwen3-4B-dart"]),
        ("qwen3_4b", ["--hub=modelscope"], ["fvliang/Qwen3-4B-dart"]),
        ("qwen3_4b", ["--compare-eagle3"], ["AngelSlim/Qwen3-4B_eagle3"]),
    ],
)
def test_published_checkpoints(tmp_path, script, flags, expected):
    """Prevents a wrong name of a checkpoint, lost flags, and a share link nobody asked for."""
    for name in (script, "published"):
        (tmp_path / f"{name}.sh").write_bytes((ROOT / "launch" / f"{name}.sh").read_bytes())
    (tmp_path / "demo.sh").write_text('printf "%s\\n" "$@"\n', encoding="utf-8")
    run = ["bash", tmp_path / f"{script}.sh", *flags, "--server-port", "8123", "a b"]
    said = subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()
    assert set(expected) <= set(said)
    assert said[-3:] == ["--server-port", "8123", "a b"]
    assert "fvliang/dart-qwen3-ngram" in said
    assert "--share" not in said
    assert ("--eagle3-model-name-or-path" in said) == ("--compare-eagle3" in flags)
