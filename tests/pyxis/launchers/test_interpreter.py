"""What Python does to a process is not seen by the programs that it becomes."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SHOW = "cat /proc/self/status; echo LC_CTYPE=${LC_CTYPE-unset}"
_BECOME = """
import os
from pyxis_py.launchers.interpreter import forget_interpreter
from pyxis_py.launchers.srun import become
forget_interpreter()
become("sh", ["-c", os.environ["SHOW"]])
"""


def become_shell(show: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _BECOME],
        env={"PATH": "/usr/bin:/bin", "SHOW": show, "PYTHONPATH": ":".join(sys.path), **environ},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "unset"), ({"LANG": "C"}, "unset"), ({"LC_ALL": "POSIX"}, "unset"),
        ({"LC_CTYPE": "C.UTF-8"}, "C.UTF-8"), ({"LC_CTYPE": "C"}, "C"),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, "C.UTF-8"),
    ],
)  # fmt: skip
def test_the_locale_is_as_it_was_given(environ: dict[str, str], expected: str) -> None:
    assert f"LC_CTYPE={expected}" in become_shell(_SHOW, **environ).stdout


def ignored_signals(status: str) -> set[int]:
    """Without 32 and 33, which are the C library's own: its posix_spawn leaves them ignored."""
    (line,) = (line for line in status.splitlines() if line.startswith("SigIgn:"))
    mask = int(line.split()[1], 16)
    return {number for number in range(1, 65) if mask >> (number - 1) & 1} - {32, 33}


def test_no_signal_is_ignored_that_was_not_before() -> None:
    plain = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, check=True)
    assert ignored_signals(become_shell(_SHOW).stdout) == ignored_signals(plain.stdout)


def test_an_interrupt_is_no_traceback() -> None:
    code = "from pyxis_py.launchers.interpreter import *; import os; forget_interpreter(); "
    done = subprocess.run(
        ["env", "--default-signal=INT", sys.executable, "-c", code + "os.kill(os.getpid(), 2)"],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (-2, "")
