"""Srun as a test watches it: what it says as it says it, Ctrl-C, what its step leaves."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import time
from pathlib import Path

from tests.slurm.rig import Rig


def is_there(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.02)


class Messages:
    """What a process prints to its standard error, as it comes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        self._stream = process.stderr
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        self.lines.extend(iter(self._stream.readline, ""))

    def count(self, text: str) -> int:
        return sum(text in line for line in self.lines)

    def wait_for(self, text: str, *, more_than: int, within: float = 20) -> bool:
        deadline = time.monotonic() + within
        while self.count(text) <= more_than and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.count(text) > more_than

    def all(self) -> str:
        self._reader.join()
        return "".join(self.lines)


def interrupt_twice(process: subprocess.Popen[str], messages: Messages) -> None:
    """Send srun two SIGINT within a second: the second one ends the step."""
    for _ in range(20):
        if process.poll() is not None or messages.count("sending Ctrl-C"):
            return
        said = messages.count("interrupt (one more")
        process.send_signal(signal.SIGINT)
        if not messages.wait_for("interrupt (one more", more_than=said, within=0.5):
            continue  # that was a second one
        process.send_signal(signal.SIGINT)
        messages.wait_for("sending Ctrl-C", more_than=0, within=0.5)


def remains(rig: Rig) -> list[str]:
    """What is left, but for meeting places of tasks that were all killed, which are removed."""
    left = [line for line in rig.remains() if not re.search(r"/\d+\.\d+\.[0-9a-f]{8}$", line)]
    rig.run("srun", "-N4", "sh", "-c", "rm -rf /tmp/pyxis-*/[0-9]*.*")
    return left
