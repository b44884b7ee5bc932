"""The app in a process of its own, on the embedded model: for what is measured or photographed."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
START_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class RunningApp:
    """Where the app answers, and its process."""

    url: str
    pid: int

    def resident_bytes(self) -> int:
        """Memory that the process holds now (Linux only)."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return 1024 * int(line.split()[1])
        raise RuntimeError("the system does not say how much memory the app holds")


@contextmanager
def running_app(*flags: str) -> Iterator[RunningApp]:
    """`python app/app.py` with these flags, once it answers; its model may still be loading.

    raises  RuntimeError with its last words where it does not come up
    """
    port = _free_port()
    url = f"http://127.0.0.1:{port}/"
    command = [sys.executable, str(ROOT / "app" / "app.py"), "--server-port", str(port), *flags]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + START_SECONDS
            while not _answers(url):
                if process.poll() is not None or time.monotonic() > deadline:
                    said.seek(0)
                    words = said.read().decode(errors="replace")[-2000:]
                    raise RuntimeError(f"the app did not come up: {words}")
                time.sleep(0.2)
            yield RunningApp(url, process.pid)
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
