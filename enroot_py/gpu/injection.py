"""What is to be put into a container, as data; every planner ends here. Pure.

Paths named `target` or `path` are paths in the container, `source` is an absolute host path. Each
item carries a `reason`, which `enroot gpu plan` prints.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple

OWN_FOLDER = "/run/enroot/gpu"
"""Where our folder usually is in the container; a rootfs without /run has it elsewhere."""

LIBCUDA_VARIABLE = "NVIDIA_CTK_LIBCUDA_DIR"
"""Variable that names the folder of libcuda inside, as NVIDIA's own specifications set it."""

FILE_OPTIONS = ("ro", "nosuid", "nodev")
SOCKET_OPTIONS = ("nosuid", "nodev", "noexec")
NODE_OPTIONS = ("nosuid", "noexec")
FOLDER_OPTIONS = ("nosuid", "nodev", "noexec")


class Device(NamedTuple):
    """A device node. A required one that cannot be put in place stops the start."""

    source: str
    target: str
    reason: str
    required: bool = True


class Library(NamedTuple):
    """A shared object, which the loader must find by `soname`.

    Attributes:
        names: further names it must be found by in the same folder (`libcuda.so`, full version).
        bits: 64 or 32.
        folder: sub-folder where programs look for it by path (`vdpau`, `gbm`), usually "".
    """

    source: str
    soname: str
    reason: str
    names: tuple[str, ...] = ()
    bits: int = 64
    folder: str = ""


class Program(NamedTuple):
    """A program, to be found through PATH by the last component of `target`."""

    source: str
    target: str
    reason: str


class Bind(NamedTuple):
    """Another file, folder or socket to bind.

    Attributes:
        kind: `file`, `folder` or `socket`.
        options: mount options in fstab's words.
        required: whether its failure stops the start.
        fstype: "" for a bind mount, else the type of a new file system (`tmpfs`).
    """

    source: str
    target: str
    reason: str
    kind: str = "file"
    options: tuple[str, ...] = FILE_OPTIONS
    required: bool = False
    fstype: str = ""


class Link(NamedTuple):
    """A symbolic link: its path and what it says."""

    path: str
    target: str
    reason: str
    required: bool = False


class Text(NamedTuple):
    """A small file that is written."""

    path: str
    content: str
    reason: str
    mode: int = 0o644


class HostHook(NamedTuple):
    """A hook of a CDI specification that has to be executed on the host.

    Attributes:
        stage: the OCI hook it is, e.g. `createContainer`.
        arguments: from argv[0] on.
        environ: `NAME=value` texts, all it gets.
        timeout: seconds, 0 for none.
    """

    stage: str
    path: str
    arguments: tuple[str, ...] = ()
    environ: tuple[str, ...] = ()
    timeout: int = 0


class Injection(NamedTuple):
    """Everything to be put into one container.

    Attributes:
        hidden: paths below /dev that must be absent.
        environ: assignments for the container's environment.
        proc: treatment of /proc/driver/nvidia: "", `params` or `full`.
        proc_gpus: PCI addresses that stay visible there with `full`.
        sysfs_classes: folders of /sys/class to narrow, with the links that stay: name and text.
        visible_gpus: positions of the selected GPUs among those that the host's processes see;
            None where GPUs were not selected.
        warnings: what the user should know.
        notes: decisions that are only worth telling when asked.
    """

    devices: tuple[Device, ...] = ()
    libraries: tuple[Library, ...] = ()
    programs: tuple[Program, ...] = ()
    binds: tuple[Bind, ...] = ()
    links: tuple[Link, ...] = ()
    texts: tuple[Text, ...] = ()
    hooks: tuple[HostHook, ...] = ()
    hidden: tuple[str, ...] = ()
    environ: tuple[tuple[str, str], ...] = ()
    proc: str = ""
    proc_gpus: tuple[str, ...] = ()
    sysfs_classes: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    visible_gpus: tuple[int, ...] | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do (there may be something to say)."""
        said = self._replace(warnings=(), notes=())
        return said == NO_INJECTION


NO_INJECTION = Injection()


def combine(injections: Iterable[Injection]) -> Injection:
    """Put several injections together; of two items for one place the later counts."""
    parts = [part for part in injections if part != NO_INJECTION]
    if len(parts) == 1:
        return parts[0]
    devices: dict[str, Device] = {}
    libraries: dict[tuple[str, int, str], Library] = {}
    programs: dict[str, Program] = {}
    binds: dict[str, Bind] = {}
    links: dict[str, Link] = {}
    texts: dict[str, Text] = {}
    for part in parts:
        devices.update((item.target, item) for item in part.devices)
        libraries.update(((item.soname, item.bits, item.folder), item) for item in part.libraries)
        programs.update((item.target, item) for item in part.programs)
        binds.update((item.target, item) for item in part.binds)
        links.update((item.path, item) for item in part.links)
        texts.update((item.path, item) for item in part.texts)
    visible = [part.visible_gpus for part in parts if part.visible_gpus is not None]
    return Injection(
        devices=tuple(devices.values()),
        libraries=tuple(libraries.values()),
        programs=tuple(programs.values()),
        binds=tuple(binds.values()),
        links=tuple(links.values()),
        texts=tuple(texts.values()),
        hooks=tuple(hook for part in parts for hook in part.hooks),
        # What one part brings in is not hidden on account of another.
        hidden=tuple(dict.fromkeys(p for part in parts for p in part.hidden if p not in devices)),
        environ=tuple(dict(pair for part in parts for pair in part.environ).items()),
        proc=next((part.proc for part in parts if part.proc), ""),
        proc_gpus=tuple(dict.fromkeys(pci for part in parts for pci in part.proc_gpus)),
        sysfs_classes=tuple(pair for part in parts for pair in part.sysfs_classes),
        visible_gpus=tuple(dict.fromkeys(i for some in visible for i in some)) if visible else None,
        warnings=tuple(dict.fromkeys(text for part in parts for text in part.warnings)),
        notes=tuple(dict.fromkeys(text for part in parts for text in part.notes)),
    )
