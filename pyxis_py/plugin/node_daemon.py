"""Whether the slurmd of this node has the plugin: it reads plugstack.conf only when it starts.

Steps have the plugin at once; slurmd runs its epilog only if it had the plugin at its start.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Daemon:
    """A slurmd of this machine.

    Attributes:
        pid: its process.
        started: when it started, in seconds since 1970.
        libraries: what it has loaded; None if that cannot be read: it takes root.
    """

    pid: int
    started: float
    libraries: frozenset[str] | None


def find_daemons() -> list[Daemon]:
    """Return the slurmds that run here, by process."""
    found = []
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdecimal()):
        if _read(pid, "comm").strip() == "slurmd" and (started := _start_time(pid)):
            found.append(Daemon(pid, started, _libraries(pid)))
    return found


def note_on(daemon: Daemon, library: str, plugstack: Path) -> str:
    """Return what an administrator has to know of a slurmd, "" if all is well.

    Args:
        daemon: the slurmd.
        library: the plugin's, as plugstack.conf names it.
        plugstack: that file.
    """
    without = "what killed steps and ended jobs leave on this node is not removed until it has been"
    if daemon.libraries is not None:
        if os.path.realpath(library) in daemon.libraries:
            return ""
        return f"slurmd (process {daemon.pid}) runs without the plugin: restart it; {without}"
    try:
        changed = plugstack.stat().st_mtime
    except OSError:
        return ""
    if changed <= daemon.started:
        return ""
    return (
        f"slurmd (process {daemon.pid}) started before {plugstack} was changed: if it had no line"
        f" of the plugin then, restart it; {without} (as root, this command knows)"
    )


def _libraries(pid: int) -> frozenset[str] | None:
    """Return the files that a process has mapped, also those that have been replaced since."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
            fields = [line.rstrip("\n").split(maxsplit=5) for line in file]
    except OSError:
        return None
    return frozenset(row[5].removesuffix(" (deleted)") for row in fields if len(row) == 6)


def _start_time(pid: int) -> float:
    """Source: proc(5): the 22nd field, in ticks since the machine was started."""
    fields = _read(pid, "stat").rpartition(")")[2].split()
    if len(fields) < 20:
        return 0.0
    with open("/proc/uptime", encoding="ascii") as file:
        uptime = float(file.read().split()[0])
    age = uptime - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def _read(pid: int, name: str) -> str:
    try:
        with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
