"""What may be left on the machines of a rig: of a user's containers, or of the rig itself.

Looked for where it would be, not where it is expected: processes by whose they are and where they
are, mounts in every mount namespace of this machine that has a process.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

_NS_GET_OWNER_UID = 0xB704
_PROGRAMS = ("squashfuse", "pyxis-keeper", "/keeper.py", "/task_program.py")
"""What of ours outlives a step if anything does; each is to be found in a command line."""

# Root's notes of jobs count too: pyxis/jobs/ID is gone once the epilog has run.
_IN_LOCAL = ("data-*/*", "pyxis/*/[0-9]*", "pyxis/*/rc.local.*", "tmp/*", "run-*/*")
# Meeting places, which are JOB.STEP.HASH, and scratch folders, JOB.STEP.cache. On purpose there
# are rc.local and srun-MARK.options, one each, whose unfinished forms have a pid at the end.
_IN_RUNTIME = ("[0-9]*", "rc.local.*", "*.options.*")


@dataclass(frozen=True)
class Machine:
    """A machine of the rig.

    Attributes:
        name: e.g. "node1".
        folder: what it has at `local`.
        pid: a process that is there as long as the rig is.
        runs_steps: it is a node, where a user has no process but those of steps.
    """

    name: str
    folder: Path
    pid: int
    runs_steps: bool

    @property
    def mount_namespace(self) -> int:
        """The number of the namespace that the machine's own processes are in."""
        return os.stat(f"/proc/{self.pid}/ns/mnt").st_ino

    def mounts(self) -> list[str]:
        """What is mounted where the machine's own processes are."""
        return list(_mounts(self.pid))


@dataclass(frozen=True)
class _Process:
    pid: int
    uid: int
    words: str
    mount_namespace: int
    user_namespace: int
    owner: int


def left_files(machine: Machine, uid: int) -> list[str]:
    """Files and folders of a machine that steps need and that none may outlive."""
    runtime = Path(f"/proc/{machine.pid}/root/tmp/pyxis-{uid}")
    found = [path for pattern in _IN_LOCAL for path in _glob(machine.folder, pattern)]
    names = [path.name for pattern in _IN_RUNTIME for path in _glob(runtime, pattern)]
    return [*map(str, found), *(f"{machine.name}:/tmp/pyxis-{uid}/{name}" for name in names)]


def _glob(folder: Path, pattern: str) -> list[Path]:
    while True:
        try:
            return list(folder.glob(pattern))
        except FileNotFoundError:
            continue  # a folder has gone while it was being read


def left_processes(uid: int, base: Path, machines: Collection[Machine]) -> list[str]:
    """Living processes of a user that belong to a container or to a step.

    Those in a user namespace of his that have come from the rig, wherever they are now; on nodes
    all others as well, and elsewhere on the rig's machines those of our programs.

    Args:
        uid: the user.
        base: the rig's folder.
        machines: its machines.
    """
    own = os.stat("/proc/self/ns/user").st_ino
    nodes = {machine.mount_namespace: machine.runs_steps for machine in machines}
    found = []
    for process in _processes():
        inside = process.user_namespace != own
        if uid not in (process.uid, process.owner if inside else -1):
            continue
        runs_steps = nodes.get(process.mount_namespace)
        ours = runs_steps is not None and any(name in process.words for name in _PROGRAMS)
        if (inside and _is_from(process.pid, base, machines)) or runs_steps or ours:
            found.append(f"process {process.pid}: {process.words}")
    return found


def _is_from(pid: int, base: Path, machines: Collection[Machine]) -> bool:
    """Whether a process may have come from the rig, and not from the user's other tests.

    All containers of a rig are made of what is in its folder, all steps are in control groups that
    are called after nodes, or know where their slurm.conf is.
    """
    if any(base.name in mount for mount in _mounts(pid)):
        return True
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text()
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False  # it has just ended
    named = any(f"/slurm_{machine.name}/" in groups for machine in machines)
    return named or os.fsencode(base) in environ


def left_mounts(base: Path, machines: Collection[Machine], before: Collection[str]) -> list[str]:
    """Mounts that machines had not at first, and those of containers in any other namespace.

    Args:
        base: the rig's folder, out of which every container is.
        machines: the machines.
        before: what the machines' `mounts` were at first.
    """
    known = {machine.mount_namespace: machine.name for machine in machines}
    found = []
    for namespace, pid in _mount_namespaces().items():
        for mount in _mounts(pid):
            kind = mount.split()[2]
            foreign = kind.startswith("fuse") or kind == "overlay"
            # Every machine has an overlay at /etc, and a step's namespace is a copy of a machine's.
            of_container = foreign and f"{base}/" in mount and f"={base}/overlay/" not in mount
            if of_container or (namespace in known and mount not in before):
                found.append(f"mount in {known.get(namespace, f'process {pid}')}: {mount}")
    return found


def left_of_rig(base: Path, nodes: Collection[str]) -> list[str]:
    """What is left of a rig that was stopped: daemons, steps, mounts, control groups, the folder.

    Args:
        base: its folder.
        nodes: the names of its nodes.
    """
    found = [str(base)] if base.exists() else []
    mark = f"{base}/"
    for pid in _pids():
        words, mounts = _words(pid), list(_mounts(pid))
        # A slurmstepd names its step only: it is where its node was.
        if mark in words or any(mark in mount for mount in mounts):
            found.append(f"process {pid}: {words}")
    daemons = [_words(pid) for pid in _pids()]
    for node in nodes:
        if any(words.startswith(f"slurmd -D -N {node} ") for words in daemons):
            continue  # the control group is that of another rig's node
        # With a process in it, it is kept by that one, which was told above if it is of this rig.
        groups = Path("/sys/fs/cgroup").glob(f"**/slurm_{node}")
        found += [str(group) for group in groups if not _has_processes(group)]
    return found


def _has_processes(group: Path) -> bool:
    try:
        return any(path.read_text() for path in group.glob("**/cgroup.procs"))
    except OSError:
        return False  # it has just gone: so has what was in it


def _processes() -> Iterator[_Process]:
    """All processes that have not ended yet and that are no kernel's."""
    for pid in _pids():
        try:
            status = dict(
                line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            )
            # A zombie, or one that the kernel is taking down, has no memory any more.
            if Path(f"/proc/{pid}/statm").read_text().split()[0] == "0":
                continue
            fd = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
            try:
                user_namespace = os.fstat(fd).st_ino
                (owner,) = struct.unpack("I", fcntl.ioctl(fd, _NS_GET_OWNER_UID, bytes(4)))
            finally:
                os.close(fd)
            mount_namespace = os.stat(f"/proc/{pid}/ns/mnt").st_ino
        except OSError:
            continue  # it has just ended
        # The real one: who owns /proc/PID is root, for a process that is not to be dumped.
        uid = int(status["Uid"].split()[0])
        yield _Process(pid, uid, _words(pid), mount_namespace, user_namespace, owner)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _words(pid: int) -> str:
    try:
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return data.replace(b"\0", b" ").decode(errors="replace")


def _mount_namespaces() -> dict[int, int]:
    """A process of each mount namespace, by the namespace's number."""
    found: dict[int, int] = {}
    for pid in _pids():
        try:
            found.setdefault(os.stat(f"/proc/{pid}/ns/mnt").st_ino, pid)
        except OSError:
            continue  # it has just ended
    return found


def _mounts(pid: int) -> Iterator[str]:
    """What a process sees mounted: "TARGET ROOT KIND SOURCE OPTIONS"."""
    try:
        text = Path(f"/proc/{pid}/mountinfo").read_text(errors="replace")
    except OSError:
        return  # it has just ended
    for line in text.splitlines():
        where, _, what = line.partition(" - ")
        kind, source, options = what.split(" ", 2)
        root, target = where.split()[3:5]
        yield f"{target} {root} {kind} {source} {options}"
