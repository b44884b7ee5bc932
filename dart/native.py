"""Which core decodes: the compiled `dart._core`, made here where it is missing, or `dart.pure`.

Wheels and in-place builds bring the compiled module. A bare copy of the repository, as a Space runs
it, does not: then one call of the compiler makes it, from csrc/, into a folder of the user's own
that is named after all it is made from, so that another checkout or Python never gets it. Where
that cannot be done decoding goes on with `dart.pure`, slower, and `fallback_reason` says why.

The choice is made when dart.ngram or dart.search is first imported: importing `dart` costs nothing,
and a process that is forked later has its core.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import logging
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType

from dart.folders import cache_folder, only_one

logger = logging.getLogger(__name__)

MODULE = "dart._core"
SOURCES = Path(__file__).parents[1] / "csrc"
X86_64 = ("x86_64", "AMD64", "amd64")  # by system
BUILD_SECONDS = 600.0  # half a minute on an idle core
# Those of csrc/CMakeLists.txt that matter: scores are the same numbers whoever compiled.
FLAGS = (
    *("-std=c++20", "-O3", "-DNDEBUG", "-ffp-contract=off"),
    *(("-mpopcnt",) if platform.machine() in X86_64 and sys.platform != "darwin" else ()),
    *("-pthread", "-fPIC", "-shared", "-fvisibility=hidden", "-fvisibility-inlines-hidden"),
    *(("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ()),
)


class BuildError(Exception):
    """The core cannot be compiled here; the message is the reason."""


def core() -> ModuleType:
    """The core of this process, with the names of _core.pyi; always the same one."""
    return _choose()[0]


def fallback_reason() -> str | None:
    """Why the compiled core is not in use, as the end of a sentence; None where it is."""
    return _choose()[1]


@functools.cache
def _choose() -> tuple[ModuleType, str | None]:
    try:
        return importlib.import_module(MODULE), None
    except ImportError as error:
        # Not there, or made for another Python or C++ library.
        logger.debug("%s cannot be imported: %s", MODULE, error)
    try:
        return _load(build(cache_folder() / "core")), None
    except (BuildError, ImportError) as error:
        reason = str(error)
    logger.warning("decoding with the slower core in pure Python: %s", reason)
    return importlib.import_module("dart.pure"), reason


def build(folder: Path, sources: Path = SOURCES, seconds: float = BUILD_SECONDS) -> Path:
    """The compiled module for these sources and this Python, from `folder` or made there now.

    folder   must be the user's own: what lies there is loaded into the process
    seconds  the compiler, or another process that compiles the same, gets that long
    raises   BuildError
    """
    units = sorted([*sources.glob("src/*.cpp"), *sources.glob("bindings.cpp")])
    if not units:
        raise BuildError(f"its sources are not in {sources}")
    try:
        import pybind11
    except ImportError as error:
        raise BuildError("pybind11 is not installed") from error
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    key = hashlib.sha256("\0".join([*FLAGS, suffix, pybind11.__version__]).encode())
    for path in [*sorted(sources.glob("include/**/*.h")), *units]:
        key.update(f"\0{path.relative_to(sources)}\0".encode() + path.read_bytes())
    wanted = folder / key.hexdigest()[:16] / f"_core{suffix}"
    if wanted.is_file():
        return wanted
    compiler = find_compiler()
    if compiler is None:
        raise BuildError("there is no C++ compiler")
    includes = [sources / "include", pybind11.get_include(), sysconfig.get_path("include")]
    command = [compiler, *FLAGS, *(f"-I{path}" for path in includes), *map(str, units)]
    try:
        wanted.parent.mkdir(parents=True, exist_ok=True)
        with only_one(wanted.with_name("lock"), seconds=seconds):
            if not wanted.is_file():
                logger.warning("compiling the C++ core into %s, once", wanted.parent)
                _compile(command, wanted, seconds)
    except TimeoutError as error:
        raise BuildError(f"another process has been compiling it for {seconds:.0f} s") from error
    except OSError as error:
        raise BuildError(f"{error.filename or wanted}: {error.strerror}") from error
    return wanted


def find_compiler() -> str | None:
    """Path of a C++ compiler: the one this Python was made with, else any."""
    own = shlex.split(sysconfig.get_config_var("CXX") or "")[:1]
    found = (shutil.which(name) for name in [*own, "c++", "g++", "clang++"])
    return next((path for path in found if path), None)


def _compile(command: list[str], wanted: Path, seconds: float) -> None:
    """Run the compiler; the module appears whole or not at all."""
    with tempfile.TemporaryDirectory(dir=wanted.parent) as scratch:
        made = Path(scratch) / wanted.name
        # A session of its own: the driver's children must end with it.
        with subprocess.Popen(
            [*command, "-o", str(made)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=seconds)
            except BaseException as error:
                os.killpg(process.pid, signal.SIGKILL)
                if isinstance(error, subprocess.TimeoutExpired):
                    raise BuildError(f"{command[0]} took more than {seconds:.0f} s") from error
                raise
        if process.returncode != 0 or not made.is_file():
            logger.warning("%s failed:\n%s", shlex.join(command), output.strip())
            first = next((line for line in output.splitlines() if "error" in line), "no message")
            raise BuildError(f"{command[0]} failed ({first.strip()[:200]})")
        made.replace(wanted)


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(MODULE, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no extension module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[MODULE] = module
    return module
