"""What this host and this process are: read once, passed down, so that planning stays pure.

Not for GPUs (gpu/) and not for settings.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple


class HostFacts(NamedTuple):
    """Facts about this process and its machine.

    Attributes:
        pid: this process's id, as /proc shows it.
        uid, gid: real user and group.
        euid, egid: effective user and group: the ones that a user namespace maps.
        architecture: as `uname -m` prints it, e.g. "x86_64".
        release: the kernel's (major, minor) version.
        hostname: the node's name.
        cwd: the working directory, absolute; "/" if it cannot be told.
        terminal: standard input is a terminal.
    """

    pid: int
    uid: int
    gid: int
    euid: int
    egid: int
    architecture: str
    release: tuple[int, int]
    hostname: str
    cwd: str
    terminal: bool


def observe_host() -> HostFacts:
    """Read the facts of this process and its machine; opens no file."""
    system = os.uname()
    try:
        cwd = os.getcwd()
    except OSError:
        cwd = "/"
    return HostFacts(
        pid=os.getpid(),
        uid=os.getuid(),
        gid=os.getgid(),
        euid=os.geteuid(),
        egid=os.getegid(),
        architecture=system.machine,
        release=parse_release(system.release),
        hostname=system.nodename,
        cwd=cwd,
        terminal=os.isatty(0),
    )


def parse_release(text: str) -> tuple[int, int]:
    """Return (major, minor) of a kernel release such as "5.14.0-427.el9.x86_64"."""
    numbers = []
    for part in text.split(".")[:2]:
        end = 0
        while end < len(part) and part[end] in "0123456789":
            end += 1
        numbers.append(int(part[:end] or 0))
    numbers += [0, 0]
    return numbers[0], numbers[1]
