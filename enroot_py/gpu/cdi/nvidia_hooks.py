"""NVIDIA's CDI hooks, understood instead of executed. Pure.

All of them are createContainer hooks that run `nvidia-cdi-hook` (or `nvidia-ctk hook`) on the host,
as whoever starts the container: too late for a root file system that cannot be written, and with an
ldconfig run that often fails. What they would do is known, so it is planned like everything else.

Source: NVIDIA container toolkit, cmd/nvidia-cdi-hook.
"""

from __future__ import annotations

from enroot_py.gpu.cdi.records import HookEdit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple

_PROGRAMS = ("nvidia-cdi-hook", "nvidia-ctk")
_KNOWN = (
    "create-symlinks", "update-ldcache", "enable-cuda-compat", "disable-device-node-modification",
    "update-application-profile", "chmod",
)  # fmt: skip


class HookMeaning(NamedTuple):
    """What the hooks of a request come to.

    Attributes:
        links: (what the link says, its path in the container).
        folders: folders whose libraries the loader must find.
        compat: the image's forward-compatible libraries are to be used where they serve.
        compat_driver, compat_cuda: versions of the host's driver, as the hook states them.
        compat_folder: where the image keeps them; "" for the usual place.
        no_modification: device nodes must not be modified from inside.
        profile: an application profile for the visible GPUs is wanted.
        unknown: hooks that are not understood.
        notes: what was passed over.
    """

    links: tuple[tuple[str, str], ...] = ()
    folders: tuple[str, ...] = ()
    compat: bool = False
    compat_driver: str = ""
    compat_cuda: str = ""
    compat_folder: str = ""
    no_modification: bool = False
    profile: bool = False
    unknown: tuple[HookEdit, ...] = ()
    notes: tuple[str, ...] = ()


def subcommand(hook: HookEdit) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the subcommand of one of NVIDIA's hooks, and its options; ("", ()) of any other.

    Options may be written `--name value`, `--name=value` or with one dash; an option that is
    followed by another option, or by nothing, is a switch.
    """
    if hook.path.rpartition("/")[2] not in _PROGRAMS:
        return "", ()
    words = list(hook.args[1:])
    command = ""
    options: list[tuple[str, str]] = []
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            if not command and word != "hook":
                command = word
            continue
        name, equals, value = word.lstrip("-").partition("=")
        if not equals and words and not words[0].startswith("-") and words[0] not in _KNOWN:
            value = words.pop(0)
        if command:
            options.append((name, value))
    return (command, tuple(options)) if command in _KNOWN else ("", ())


def understand(hooks: tuple[HookEdit, ...]) -> HookMeaning:
    """Return what the hooks come to."""
    links: list[tuple[str, str]] = []
    folders: list[str] = []
    facts: dict[str, str] = {}
    done: set[str] = set()
    unknown: list[HookEdit] = []
    notes: list[str] = []
    for hook in hooks:
        command, options = subcommand(hook)
        if not command:
            unknown.append(hook)
            continue
        done.add(command)
        if command == "create-symlinks":
            for name, value in options:
                target, separator, path = value.partition("::")
                if name == "link" and separator and target and path.startswith("/"):
                    links.append((target, path))
                elif name == "link":
                    notes.append(f'cdi: "{value}" is no link (target::path); left out')
        elif command == "update-ldcache":
            folders += [value for name, value in options if name == "folder"]
        elif command == "enable-cuda-compat":
            facts.update(options)
    return HookMeaning(
        links=tuple(dict.fromkeys(links)),
        folders=tuple(dict.fromkeys(folder.rstrip("/") for folder in folders)),
        compat="enable-cuda-compat" in done,
        compat_driver=facts.get("host-driver-version", ""),
        compat_cuda=facts.get("host-cuda-version", ""),
        compat_folder=facts.get("cuda-compat-container-root", ""),
        no_modification="disable-device-node-modification" in done,
        profile="update-application-profile" in done,
        unknown=tuple(unknown),
        notes=tuple(notes),
    )
