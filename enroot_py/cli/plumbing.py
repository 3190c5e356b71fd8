"""The small commands that hooks and scripts call; not for people. Each has an entry point.

They are `enroot-mount`, `enroot-nsenter`, `enroot-switchroot`, `enroot-aufs2ovlfs`,
`enroot-mksquashovlfs`, with the words of enroot's own programs of these names, and `enroot-hook`.

Source: enroot 4.1.2 bin/*.c, main().
"""

from __future__ import annotations

import os
import sys

from enroot_py import log
from enroot_py.cli.output import report, write_line, write_message
from enroot_py.errors import EnrootError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple

_LOWEST, _HIGHEST = -(2**31), 2**31 - 1


class Syntax(NamedTuple):
    """The words that a command takes.

    Attributes:
        usage: what to show for them.
        least: how many there must be after the options.
        flags: options without a value.
        values: options with one.
    """

    usage: str
    least: int
    flags: tuple[str, ...] = ()
    values: tuple[str, ...] = ()


MOUNT = Syntax("[--root DIR] [--pass NUM] FSTAB...", 1, values=("--root", "--pass"))
NSENTER = Syntax(
    "[--target PID] [--user] [--mount] [--pid] [--net] [--ipc] [--uts] [--remap-root]"
    " [--envfile FILE] [--envfd FD] [--workdir DIR] COMMAND [ARG...]",
    1,
    flags=("--user", "--mount", "--pid", "--net", "--ipc", "--uts", "--remap-root"),
    values=("--target", "--envfile", "--envfd", "--workdir"),
)
SWITCHROOT = Syntax(
    "[--norc] [--login] [--rcfile FILE] [--envfile FILE] [--workdir DIR] ROOTFS [COMMAND] [ARG...]",
    1,
    flags=("--norc", "--login"),
    values=("--rcfile", "--envfile", "--workdir"),
)
AUFS2OVLFS = Syntax("DIR", 1)
MKSQUASHOVLFS = Syntax("DIR[:DIR...] DEST [options]", 2)
HOOK = Syntax("NAME", 1)


class Words:
    """A command line: options up to the first word that is none, then the rest.

    Attributes:
        rest: the words after the options.
    """

    def __init__(self, words: Sequence[str], syntax: Syntax) -> None:
        self.rest = list(words)
        self._flags: set[str] = set()
        self._values: dict[str, str] = {}
        while self.rest:
            if self.rest[0] in syntax.flags:
                self._flags.add(self.rest.pop(0))
            elif self.rest[0] in syntax.values and len(self.rest) > 1:
                name = self.rest.pop(0)
                self._values[name] = self.rest.pop(0)
            else:
                break

    def flag(self, name: str) -> bool:
        """Tell whether an option without a value was given."""
        return name in self._flags

    def text(self, name: str, default: str = "") -> str:
        """Return an option's last value."""
        return self._values.get(name, default)

    def number(self, name: str, default: int, lowest: int = _LOWEST) -> int:
        """Return an option's last value as a number. Raises UsageError if it is none."""
        text = self._values.get(name)
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            value = _HIGHEST + 1
        if not lowest <= value <= _HIGHEST:
            raise UsageError(f"Invalid argument: {name} {text}", hint="expected a number")
        return value


def mount() -> int:
    """Run `enroot-mount`."""
    return run(_mount, MOUNT)


def _mount(words: Words) -> None:
    from enroot_py.operations.plumbing.mount import mount_files

    mount_files(words.rest, root=words.text("--root", "/"), passno=words.number("--pass", 0))


def nsenter() -> int:
    """Run `enroot-nsenter`."""
    return run(_nsenter, NSENTER)


def _nsenter(words: Words) -> None:
    from enroot_py.operations.plumbing.nsenter import run_in_namespaces

    target = words.number("--target", 0, 1)
    fd = words.number("--envfd", -1, 3)
    path = words.text("--envfile")
    run_in_namespaces(
        tuple(words.rest),
        [kind[2:] for kind in NSENTER.flags[:-1] if words.flag(kind)],
        fd if fd >= 0 else path or _own_environment(),
        target=target,
        remap_root=words.flag("--remap-root"),
        workdir=words.text("--workdir"),
    )


def switchroot() -> int:
    """Run `enroot-switchroot`."""
    return run(_switchroot, SWITCHROOT)


def _switchroot(words: Words) -> None:
    from enroot_py.operations.plumbing.environment import read_environment
    from enroot_py.operations.plumbing.switchroot import run_in_root

    rootfs, *command = words.rest
    path = words.text("--envfile")
    run_in_root(
        rootfs,
        tuple(command),
        read_environment(path) if path else _own_environment(),
        login=words.flag("--login"),
        use_rc=not words.flag("--norc"),
        rc=words.text("--rcfile"),
        workdir=words.text("--workdir"),
    )


def aufs2ovlfs() -> int:
    """Run `enroot-aufs2ovlfs`."""
    return run(_aufs2ovlfs, AUFS2OVLFS)


def _aufs2ovlfs(words: Words) -> None:
    from enroot_py.operations.plumbing.whiteouts import convert_whiteouts

    convert_whiteouts(words.rest[0], user_xattrs="ENROOT_SET_USER_XATTRS" in os.environ)


def mksquashovlfs() -> int:
    """Run `enroot-mksquashovlfs`."""
    return run(_mksquashovlfs, MKSQUASHOVLFS)


def _mksquashovlfs(words: Words) -> None:
    from enroot_py.operations.plumbing.squash import squash_overlay

    folders, image, *options = words.rest
    mount_point = os.environ.get("MOUNTPOINT", "/mnt")
    squash_overlay(folders, image, options, mount_point=mount_point)


def hook() -> int:
    """Run `enroot-hook`."""
    return run(_hook, HOOK)


def _hook(words: Words) -> None:
    from enroot_py.operations.plumbing.hook import run_hook

    run_hook(words.rest[0], os.environ)


def run(action: Callable[[Words], None], syntax: Syntax) -> int:
    """Run a command and turn its errors into a line and an exit status.

    Parity: with too few words the usage goes to stdout, and the status is 0.
    """
    log.set_sink(_show)
    words = Words(sys.argv[1:], syntax)
    if len(words.rest) < syntax.least or words.rest[0] in ("-h", "--help"):
        write_line(f"Usage: {os.path.basename(sys.argv[0])} {syntax.usage}")
        return 0
    try:
        action(words)
    except EnrootError as error:
        report(error)
        return error.exit_code
    except OSError as error:
        from enroot_py.cli.system_errors import explain

        report(explain(error))
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _own_environment() -> dict[str, str]:
    """Return this process's environment without what the interpreter put into it.

    Source: PEP 538: in the C locale, LC_CTYPE is set to one for UTF-8, which a container may lack.
    """
    environ = dict(os.environ)
    if environ.get("LC_CTYPE") in ("C.UTF-8", "C.utf8", "UTF-8") and "LANG" not in environ:
        del environ["LC_CTYPE"]
    return environ


def _show(level: str, text: str) -> None:
    write_message(log.format_line(level, text, colour=False) + "\n")
