"""The container's /dev: add nodes to one of its own, or build one that lacks some of the host's.

Only /dev of a container that shares the host's is built anew, and only if nodes have to be absent
or to be added: a tmpfs into which everything of the old one is bound, but the nodes to hide.
"""

from __future__ import annotations

import os
from stat import S_ISDIR, S_ISLNK

from enroot_py.errors import DeviceError, KernelError
from enroot_py.gpu.injection import NODE_OPTIONS, Device
from enroot_py.gpu.rootfs.attach import Attacher
from enroot_py.gpu.rootfs.placement import DevPlan
from enroot_py.linux.kernel import MNT_DETACH, Kernel
from enroot_py.linux.path import resolve
from enroot_py.plan.mount_options import MS_MOVE, MS_NOEXEC, MS_NOSUID, MS_PRIVATE

_DEVPTS = "newinstance,ptmxmode=0666,mode=620"


def add_nodes(attacher: Attacher, root_fd: int, nodes: tuple[Device, ...]) -> list[str]:
    """Bind nodes in a /dev that is the container's own; returns what was left out, and why.

    Raises:
        DeviceError: if one that is required cannot be put in place.
    """
    notes = []
    for node in nodes:
        try:
            with resolve(root_fd, node.target, create="file") as place:
                attacher.bind(node.source, place, NODE_OPTIONS)
        except KernelError as error:
            notes.append(_failed(node, error))
    return notes


def rebuild_dev(
    kernel: Kernel, attacher: Attacher, root_fd: int, workdir: str, plan: DevPlan
) -> None:
    """Replace the container's /dev by a tmpfs with everything of it but the hidden nodes.

    Not sticky and not writable by everybody: on such a folder the kernel refuses to open a bound
    node with O_CREAT, as a shell's redirection does.

    Raises:
        DeviceError: if a required node cannot be put in place.
    """
    staging = f"{workdir}/gpu-dev"
    os.mkdir(staging, 0o755)
    kernel.mount("tmpfs", staging, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755")
    kernel.mount("", staging, "", MS_PRIVATE)
    with resolve(root_fd, "/dev") as place:
        builder = _Builder(kernel, attacher, plan)
        builder.copy(place.path, staging, "/dev")
        builder.add_missing(staging)
        # The old tree could be uncovered again by whoever may unmount inside.
        kernel.umount(place.path, MNT_DETACH)
    with resolve(root_fd, "/dev") as place:
        kernel.mount(staging, place.path, "", MS_MOVE)
    os.rmdir(staging)


class _Builder:
    def __init__(self, kernel: Kernel, attacher: Attacher, plan: DevPlan) -> None:
        self.kernel = kernel
        self.attacher = attacher
        self.hidden = frozenset(plan.hidden)
        self.nodes = {node.target: node for node in plan.nodes}
        touched = (*plan.hidden, *self.nodes)
        self.opened = {path[:i] for path in touched for i in range(len(path)) if path[i] == "/"}

    def copy(self, source: str, target: str, path: str) -> None:
        """Fill `target`, the new folder for `path`, from `source`, the old one."""
        for name in os.listdir(source):
            own = f"{path}/{name}"
            if own in self.hidden or own in self.nodes:
                continue
            old, new = f"{source}/{name}", f"{target}/{name}"
            if os.path.lexists(new):
                continue
            try:
                self._copy_entry(old, new, own, os.lstat(old).st_mode)
            except FileNotFoundError:
                continue  # a device that was just unplugged

    def _copy_entry(self, old: str, new: str, own: str, mode: int) -> None:
        if S_ISLNK(mode):
            os.symlink(os.readlink(old), new)
        elif own == "/dev/ptmx":
            # It only works beside the very devpts that it belongs to, see _copy_terminals().
            os.symlink("pts/ptmx", new)
        elif own == "/dev/pts":
            self._copy_terminals(old, new)
        elif S_ISDIR(mode):
            os.mkdir(new, 0o755)
            if own in self.opened:
                self.copy(old, new, own)
            else:
                self.attacher.bind(old, new, ("rbind",))
        else:
            os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self.attacher.bind(old, new, ())

    def _copy_terminals(self, old: str, new: str) -> None:
        """Take the host's terminals along if new ones can be opened there, else make a new set.

        `/dev/ptmx` itself looks for a folder `pts` beside it and ignores mounts, so bound into
        another folder it fails with ENOENT; the one inside devpts is closed on most hosts.
        """
        os.mkdir(new, 0o755)
        if os.access(f"{old}/ptmx", os.R_OK | os.W_OK, effective_ids=True):
            self.attacher.bind(old, new, ("rbind",))
            return
        try:
            self.kernel.mount("devpts", new, "devpts", MS_NOSUID | MS_NOEXEC, _DEVPTS)
        except KernelError:
            # Some outer containers forbid it; the terminals that there are can still be used.
            self.attacher.bind(old, new, ("rbind",))
            return
        try:
            terminal = os.ttyname(0)
        except OSError:
            return
        console = f"{new.rpartition('/')[0]}/console"
        if not os.path.lexists(console):
            os.close(os.open(console, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        # Programs that ask for the terminal's name find it here, as with a restricted /dev.
        self.attacher.bind(terminal, console, NODE_OPTIONS)

    def add_missing(self, staging: str) -> None:
        for node in self.nodes.values():
            path = staging + node.target[len("/dev") :]
            os.makedirs(path.rpartition("/")[0], 0o755, exist_ok=True)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            try:
                self.attacher.bind(node.source, path, NODE_OPTIONS)
            except KernelError as error:
                _failed(node, error)


def _failed(node: Device, error: KernelError) -> str:
    text = f"gpu: cannot put {node.source} at {node.target}: {error.strerror}"
    if node.required:
        raise DeviceError(text) from error
    return f"{text}; left out"
