"""List containers, and the processes that run in them.

A container runs where a process outside this mount namespace has its rootfs as root folder. Rootfs
folders are recognised by device and inode number, so that it works on any file system and below any
mount. Of each container that was started, the process that started first stands for all of it.

Source: enroot 4.1.2 runtime.sh, runtime::list().
"""

from __future__ import annotations

import os

from enroot_py.errors import NotFoundError, UsageError
from enroot_py.linux.processes import Process, namespace, process_ids, read_process, start_time
from enroot_py.settings import Settings, load_settings
from enroot_py.store.containers import LOCK_NAME, find_container, list_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple

UNKNOWN = "<unknown>"
"""The name of running containers that have no folder: started from an image, or removed since."""

_NEVER = 2**64  # later than any start time


class ContainerStatus(NamedTuple):
    """One container.

    Attributes:
        name: its name, or UNKNOWN for all those without one.
        path: its rootfs on the host; "" without a name.
        processes: the first process of each time that it was started and still runs, by pid.
    """

    name: str
    path: str
    processes: tuple[Process, ...]


def containers(*, settings: Settings | None = None) -> tuple[ContainerStatus, ...]:
    """Return the containers of ENROOT_DATA_PATH by name, and what runs in them.

    Raises:
        StoreError: if the data folder cannot be read.
    """
    settings = settings or load_settings()
    paths = {name: os.path.join(settings.data_path, name) for name in list_names(settings)}
    running = _running(paths)
    found = [
        ContainerStatus(name, path, tuple(running.pop(name, ()))) for name, path in paths.items()
    ]
    if running:
        found.append(ContainerStatus(UNKNOWN, "", tuple(running[UNKNOWN])))
    return tuple(sorted(found))


def find_running(name: str, *, settings: Settings | None = None) -> int:
    """Return the id of the process that stands for a running container.

    Raises:
        NotFoundError: if there is no such container, or it is not running.
        UsageError: if it was started several times; the hint lists the processes.
    """
    settings = settings or load_settings()
    path = find_container(settings, name)
    processes = _running({name: path}).get(name, [])
    if not processes:
        raise NotFoundError(f"Container {name} is not running", hint=f"enroot start {name}")
    if len(processes) > 1:
        pids = ", ".join(str(process.pid) for process in processes)
        raise UsageError(
            f"Container {name} was started {len(processes)} times", hint=f"say which one: {pids}"
        )
    return processes[0].pid


def _running(paths: dict[str, str]) -> dict[str, list[Process]]:
    """Map names, or UNKNOWN, to the first process of each mount namespace that has this root."""
    names = {}
    for name, path in paths.items():
        try:
            status = os.stat(path)
        except OSError:
            continue  # removed since it was listed
        names[status.st_dev, status.st_ino] = name
    running: dict[str, list[Process]] = {}
    for pids in _by_mount_namespace().values():
        found = _first_inside(pids, names)
        if found:
            running.setdefault(found[0], []).append(found[1])
    for processes in running.values():
        processes.sort()
    return running


def _by_mount_namespace() -> dict[int, list[int]]:
    own = namespace("self", "mnt")
    groups: dict[int, list[int]] = {}
    for pid in process_ids():
        inode = namespace(pid, "mnt")
        if inode not in (0, own):
            groups.setdefault(inode, []).append(pid)
    return groups


def _first_inside(pids: list[int], names: dict[tuple[int, int], str]) -> tuple[str, Process] | None:
    """The container that a mount namespace belongs to, and the process that stands for it."""
    for pid in sorted(pids, key=_precedence):
        name = _container_of(pid, names)
        process = read_process(pid) if name else None
        if process:
            return name, process
    return None


def _precedence(pid: int) -> tuple[bool, int, int]:
    # With --pid a process outside the new PID namespace waits for the container: joining it would
    # not join the namespace, so it comes last.
    waits = namespace(pid, "pid_for_children") != namespace(pid, "pid")
    started = start_time(pid)
    return waits, _NEVER if started is None else started, pid


def _container_of(pid: int, names: dict[tuple[int, int], str]) -> str:
    root = f"/proc/{pid}/root"
    try:
        status = os.stat(root)
    except OSError:
        return ""
    name = names.get((status.st_dev, status.st_ino))
    if name is None:
        return UNKNOWN if os.path.lexists(f"{root}/{LOCK_NAME}") else ""
    return name
