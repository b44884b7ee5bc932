"""What a Hugging Face Space needs of the repository."""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from app import app, layout
from tests.fake_model import FakeModel, fake_engine

ROOT = Path(__file__).parents[1]
SPACE = ROOT / "launch" / "space"
HOSTING = (ROOT / "docs" / "hosting.md").read_text("utf-8")
REQUIREMENTS = (ROOT / "requirements.txt").read_text("utf-8")
COLORS = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}


def front_matter(text: str) -> str | None:
    """The block between the dashes that a README begins with."""
    found = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    return found.group(1) if found else None


def settings(kind: str) -> dict[str, Any]:
    return yaml.safe_load((SPACE / f"{kind}.yml").read_text("utf-8"))


@pytest.mark.parametrize("kind", ["gradio", "docker"])
def test_settings_are_what_the_hub_takes(kind):
    """Prevents a push that the hub refuses: unknown colours, a description too long, no licence."""
    header = settings(kind)
    assert header["sdk"] == kind
    assert {header["colorFrom"], header["colorTo"]} <= COLORS
    assert 0 < len(header["short_description"]) <= 60
    assert header["license"] == "apache-2.0"
    assert "hardware" not in header, "is ignored; it is set when the Space is made"


def test_gradio_settings_fit_the_repository():
    """Prevents a Space with another Gradio than the tested one, or without its app."""
    header = settings("gradio")
    assert f"\ngradio=={header['sdk_version']}\n" in REQUIREMENTS
    assert (ROOT / header["app_file"]).samefile(app.__file__)
    assert header["python_version"] == "3.12"
    assert isinstance(header["python_version"], str), "3.10 unquoted would be the number 3.1"


def test_docker_settings_fit_the_dockerfile():
    """Prevents a proxy that knocks at the wrong port, and a container that runs as root."""
    dockerfile = (SPACE / "Dockerfile").read_text("utf-8")
    port = settings("docker")["app_port"]
    assert f"EXPOSE {port}" in dockerfile
    assert f'"--server-port", "{port}"' in dockerfile
    assert "--uid 1000" in dockerfile
    assert dockerfile.rindex("USER user") < dockerfile.index("COPY")
    for line in dockerfile.splitlines():
        if line.startswith("COPY"):
            assert "--chown=user" in line


def test_the_page_on_hosting_shows_the_settings():
    """Prevents instructions that differ from what is used."""
    block = (SPACE / "gradio.yml").read_text("utf-8")
    assert f"```yaml\n---\n{block}---\n```" in HOSTING
    for name in ("DART_FLAGS", "DART_CACHE", "GRADIO_SSR_MODE"):
        assert name in HOSTING


def test_readme_begins_with_the_settings():
    """Prevents a repository that is no Space when it is pushed as it is."""
    found = front_matter((ROOT / "README.md").read_text("utf-8"))
    if found is None:
        pytest.skip("README.md has no settings of a Space yet")
    assert yaml.safe_load(found) == settings("gradio")


def test_requirements_do_not_name_the_repository():
    """Prevents a build that fails: they are installed before the repository is there."""
    lines = [line.split("#")[0].strip() for line in REQUIREMENTS.splitlines()]
    names = {re.split(r"[\[=<>;]", line)[0].strip().lower() for line in lines if line}
    assert not {"dart", "dart-decoding", "."} & names
    assert not any(line.startswith(("-e", ".", "/", "git+", "-r")) for line in lines)
    assert "pybind11" in names, "the core is compiled there"


@pytest.fixture
def launched(monkeypatch):
    """Starts the app's main with no model and no server; what it would have launched with."""
    monkeypatch.delenv("SPACE_ID", raising=False)
    monkeypatch.delenv("DART_FLAGS", raising=False)
    options: dict[str, Any] = {}

    def run(*argv: str, **variables: str) -> dict[str, Any]:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["app.py", *argv])
        monkeypatch.setattr("app.engine.Engine", lambda load: fake_engine())
        monkeypatch.setattr(
            "gradio.Blocks.launch", lambda self, **given: options.update(given) or (None, "", "")
        )
        assert app.main() == 0
        return options

    return run


@pytest.mark.parametrize(
    ("argv", "space", "expected"),
    [
        ([], "", ("127.0.0.1", False)),
        (["--listen"], "", ("0.0.0.0", False)),
        (["--share"], "", ("127.0.0.1", True)),
        ([], "someone/dart", ("0.0.0.0", False)),
        (["--share"], "someone/dart", ("0.0.0.0", False)),
    ],
)
def test_who_can_reach_the_page(launched, argv, space, expected):
    """Prevents a page that is open to the network unasked, and one that a Space cannot reach."""
    options = launched(*argv, SPACE_ID=space)
    assert (options["server_name"], options["share"]) == expected
    assert options["ssr_mode"] is False, "would hide routes, and needs Node"


def test_a_space_sets_flags_by_a_variable(launched, monkeypatch):
    """Prevents a Space that can show the demo model only; what is typed wins."""
    asked = []

    def take(args: argparse.Namespace):
        asked.append(args)
        return {"server_name": "127.0.0.1", "share": False}

    monkeypatch.setattr(app, "reach", take)
    launched("--hz", "10", DART_FLAGS="--base-model-name-or-path 'Qwen/Qwen3 4B' --hz 5")
    assert asked[0].base_model_name_or_path == "Qwen/Qwen3 4B"
    assert asked[0].hz == 10


def test_visitors_may_queue():
    """Prevents ZeroGPU's own limit of one waiting visitor."""
    demo = layout.build_ui(fake_engine())
    assert demo._queue.max_size == layout.QUEUE_SIZE > 10


@pytest.mark.parametrize("kind", ["gradio", "docker"])
def test_assembling_takes_what_is_needed(tmp_path, kind):
    """Prevents a Space without its model or sources, and one that carries tests and caches."""
    run = ["bash", SPACE / "assemble.sh", kind, tmp_path / "space"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    if "not a git repository" in done.stderr:
        pytest.skip("not a git checkout")
    assert done.returncode == 0, done.stderr
    space = tmp_path / "space"
    needed = ["app/app.py", "dart/native.py", "csrc/bindings.cpp", "csrc/src/tree_search.cpp"]
    needed += ["assets/demo/target/model.safetensors", "requirements.txt", "LICENSE"]
    for path in needed:
        assert (space / path).is_file(), path
    assert {path.name for path in space.iterdir()} <= {
        *("app", "dart", "csrc", "assets", "requirements.txt", "LICENSE", "README.md"),
        *(["Dockerfile"] if kind == "docker" else []),
    }
    assert not list(space.rglob("test*"))
    readme = (space / "README.md").read_text("utf-8")
    assert yaml.safe_load(front_matter(readme) or "") == settings(kind)
    assert readme.count("sdk:") == 1
    again = subprocess.run(run, capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "not empty" in again.stderr


class Lying(FakeModel):
    """Its EAGLE3 answers something else."""

    def stream(self, input_ids: list[int], decoder: str = "dart", **options: Any) -> Any:
        if decoder == "eagle3":
            input_ids = self.tokenizer.encode("code")
        return super().stream(input_ids, decoder, **options)


@pytest.mark.parametrize(("model", "expected"), [(FakeModel, 0), (Lying, 1)])
def test_a_visit_asks_every_decoder_and_compares(capsys, model, expected):
    """Prevents a simulated Space that passes although a race there fails or is not lossless."""
    pytest.importorskip("gradio_client")
    spec = importlib.util.spec_from_file_location("visit", SPACE / "visit.py")
    assert spec is not None
    assert spec.loader is not None
    visit = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(visit)
    demo = layout.build_ui(fake_engine(model(0.001)))
    _, url, _ = demo.launch(
        prevent_thread_lock=True, quiet=True, server_name="127.0.0.1", **layout.launch_options()
    )
    try:
        capsys.readouterr()
        assert visit.main(url, 20) == expected
        found = json.loads(capsys.readouterr().out)
    finally:
        demo.close()
    assert set(found["race"]) == {"dart", "eagle3", "baseline"}
    assert found["race"]["dart"] == found["generate"]["dart"]
    assert found["same_text"] is (expected == 0)


@pytest.mark.parametrize("script", ["assemble", "simulate"])
def test_scripts_parse_and_refuse_nonsense(script):
    """Prevents a script that nobody ran from failing with a syntax error."""
    run = ["bash", SPACE / f"{script}.sh", "nonsense"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "usage:" in done.stderr
