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
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.02)


def meet(folder: str, tasks: int | str) -> str:
    """A shell command by which tasks are all there at one time, in a folder that is empty before.

    What tells containers apart may be given again when one has gone: numbers of namespaces are.
    """
    return (
        f"touch {folder}/$SLURM_PROCID; i=0;"
        f" until test $(ls {folder} | wc -l) = {tasks} || test $i -ge 600;"
        " do sleep 0.1; i=$((i+1)); done"
    )


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

    def wait_for(self, text: str, *, more_than: int, within: float = 60) -> bool:
        deadline = time.monotonic() + within
        while self.count(text) <= more_than and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.count(text) > more_than

    def all(self) -> str:
        self._reader.join()
        return "".join(self.lines)


_ONCE, _TWICE = "interrupt (one more", "sending Ctrl-C"


def interrupt_twice(process: subprocess.Popen[str], messages: Messages) -> None:
    """Send srun two SIGINT within a second: the second one ends the step.

    Each is sent when srun has said something to the one before, so that none more is sent; where
    the second comes too late for a busy machine it counts as a first one.
    """
    for _ in range(20):
        if process.poll() is not None or messages.count(_TWICE):
            return
        said = messages.count(_ONCE)
        process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + 10
        while (
            messages.count(_ONCE) <= said
            and not messages.count(_TWICE)
            and process.poll() is None
            and time.monotonic() < deadline
        ):
            time.sleep(0.01)


def remains(rig: Rig) -> list[str]:
    """What is left, but for meeting places of tasks that were all killed, which are removed."""
    left = [line for line in rig.remains() if not re.search(r"/\d+\.\d+\.[0-9a-f]{8}$", line)]
    rig.run("srun", "-N4", "sh", "-c", "rm -rf /tmp/pyxis-*/[0-9]*.*")
    return left
