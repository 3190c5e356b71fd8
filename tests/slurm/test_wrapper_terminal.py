"""`--pty` through srun and through pyxis-srun: what is typed shows the same on the terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from dataclasses import dataclass

import pytest

from tests.slurm.rig import Rig
from tests.slurm.watching import remains

pytestmark = pytest.mark.slurm

SIZE, OTHER_SIZE = (24, 80), (31, 97)
_SHELL = ("/bin/busybox", "sh")  # the same in the image as without it
_PATIENCE = 60
_NUMBERS = re.compile(r"node\d+|StepId=\S+")
_OTHERS = re.compile(r"(?:srun: job \d+ |pyxis: ).*\n")
_OWN = re.compile(r"srun: .*\n")


@dataclass(frozen=True)
class Row:
    """A conversation with a task.

    Attributes:
        name: as tests show it.
        script: what the task's shell runs; "" for one that is typed to.
        turns: what is waited for on the terminal, and what is typed then; a pair of numbers is
            the size that the terminal gets.
        options: of srun.
    """

    name: str
    script: str
    turns: tuple[tuple[str, str | tuple[int, int]], ...] = ()
    options: tuple[str, ...] = ()


ROWS = [
    Row("a terminal", "for fd in 0 1 2; do test -t $fd && echo $fd; done; echo $TERM; exit 6"),
    Row(
        "its size",
        "stty size; trap 'stty size; exit 3' WINCH; echo ready; while :; do sleep 0.1; done",
        (("ready", OTHER_SIZE),),
    ),
    Row("its modes", "stty -a"),
    Row("a line", "echo ready; read x; echo got $x; exit 2", (("ready", "a b\n"),)),
    Row("the end of input", "echo ready; cat; echo over; exit 5", (("ready", "abc\n\x04"),)),
    Row(
        "an interrupt",
        "trap caught=1 INT; echo ready; until test $caught; do sleep 0.1; done 2>/dev/null;"
        " echo then; read x; echo $x; exit 4",
        (("ready", "\x03"), ("then", "x\n")),
    ),
    Row("an interrupt that kills", "echo ready; sleep 60", (("ready", "\x03"),)),
    Row(
        "a quit",
        "trap 'echo caught; exit 7' QUIT; echo ready; while :; do sleep 0.1; done 2>/dev/null",
        (("ready", "\x1c"),),
    ),
    Row(
        "a shell",
        "",
        (("> ", "echo $((6*7))\n"), ("\r\n42\r\n", "sh -c 'echo begun; exec sleep 60'\n"),
         ("begun\r\n", "\x03"), ("> ", "exit 9\n")),
    ),
    Row("only the first", "test -t 0; echo $SLURM_PROCID $?", options=("-n3",)),
]  # fmt: skip

FLAGS = {
    "plain": (),
    "saving": ("--container-writable", "--container-save={shared}/terminal.sqsh"),
}


class Terminal:
    """A terminal, and the command that controls it."""

    def __init__(self, rig: Rig, words: tuple[str, ...]) -> None:
        self._ours, theirs = pty.openpty()
        self._text = ""
        self.resize(SIZE)
        self.process = subprocess.Popen(
            rig.as_user(("setsid", "-c", "-w", *words)), env=rig.environ(TERM="vt100", PS1="> "),
            stdin=theirs, stdout=theirs, stderr=theirs,
        )  # fmt: skip
        os.close(theirs)

    def resize(self, size: tuple[int, int]) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))

    def write(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def wait_for(self, pattern: str, start: int) -> int:
        """Return where the text behind what matches begins."""
        deadline = time.monotonic() + _PATIENCE
        while not (match := re.compile(pattern).search(self._text, start)):
            assert self._read(deadline), f"no {pattern!r} in {self._text!r}"
        return match.end()

    def _read(self, deadline: float) -> bool:
        left = max(0.0, deadline - time.monotonic())
        if not select.select([self._ours], [], [], left)[0]:
            return False
        try:
            data = os.read(self._ours, 4096)
        except OSError:  # EIO: no process has it open any more
            return False
        self._text += data.decode(errors="replace")
        return bool(data)

    def end(self) -> tuple[int, str]:
        """Return how the command ended, and all that it showed."""
        deadline = time.monotonic() + _PATIENCE
        while self._read(deadline):
            pass
        return self.process.wait(timeout=_PATIENCE), self._text

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._ours)
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait()


def converse(rig: Rig, words: tuple[str, ...], row: Row) -> tuple[int, str]:
    command = (*_SHELL, "-c", row.script) if row.script else (*_SHELL, "-i")
    with Terminal(rig, (*words, "-D/", "-wnode1", "--pty", *row.options, *command)) as terminal:
        at = 0
        for pattern, answer in row.turns:
            at = terminal.wait_for(pattern, at)
            if isinstance(answer, tuple):
                terminal.resize(answer)
            else:
                terminal.write(answer)
        return terminal.end()


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_a_terminal_shows_the_same(rig: Rig, row: Row, flags: str) -> None:
    shared = rig.shared
    container = (f"--container-image={shared}/image.sqsh",
                 *(flag.format(shared=shared) for flag in FLAGS[flags]))  # fmt: skip
    bare = converse(rig, ("srun",), row)
    wrapped = converse(rig, ("pyxis-srun", *container), row)
    assert (wrapped[0], shown(wrapped[1])) == (bare[0], shown(bare[1]))
    assert remains(rig) == []


def shown(text: str) -> tuple[list[str], list[str]]:
    """What srun says itself, which may be first or last, and the task's lines.

    Without numbers of nodes and steps, and what is said of the job and the container.
    """
    text = _NUMBERS.sub("", text.replace("\r\n", "\n"))
    text, own = _OTHERS.sub("", text), []
    for message in _OWN.findall(text):
        text = text.replace(message, "", 1)
        own.append(message)
    return sorted(own), [line for line in text.splitlines() if line]
