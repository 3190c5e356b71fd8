"""Subordinate ids: be root over what they own, for a moment and in a child process.

Files of such ids come from engines that map them (rootless podman, `unshare --map-auto`); neither
chmod nor a user namespace of one id lets their folders be emptied. Not for starting containers,
which never need them. Off the start path.

Source: subuid(5), newuidmap(1), user_namespaces(7).
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Callable
from errno import EIO
from typing import NoReturn

from enroot_py.errors import UnsupportedError
from enroot_py.linux.kernel import CLONE_NEWUSER, Kernel

_READY = b"R"
_HINT = "install newuidmap (uidmap) and give the user subordinate ids (usermod --add-subuids)"


def find_ranges(path: str, uid: int) -> list[tuple[int, int]]:
    """Return a user's ranges of subordinate ids, as (first id, number of ids).

    Args:
        path: /etc/subuid or /etc/subgid; no ranges if it cannot be read.
        uid: of the user, who may be listed by name or by number.
    """
    names = {str(uid)}
    try:
        names.add(pwd.getpwuid(uid).pw_name)
    except KeyError:
        pass
    ranges = []
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                name, _, rest = line.strip().partition(":")
                first, _, count = rest.partition(":")
                if name in names and first.isdigit() and count.isdigit() and int(count):
                    ranges.append((int(first), int(count)))
    except OSError:
        return []
    return ranges


def run_as_mapped_root(action: Callable[[], None], *, kernel: Kernel | None = None) -> None:
    """Run `action` in a child process that is root over this user and his subordinate ids.

    Args:
        action: what to do; an OSError that it raises is raised here too.
        kernel: makes the user namespace.

    Raises:
        UnsupportedError: if there are no subordinate ids, or nothing here may map them.
        OSError: as `action`.
    """
    commands = [
        _map_command("newuidmap", "/etc/subuid", os.getuid()),
        _map_command("newgidmap", "/etc/subgid", os.getgid()),
    ]
    go_read, go_write = os.pipe()
    said_read, said_write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go_write)
        _run_child(action, kernel or Kernel(), go_read, said_write)
    os.close(go_read)
    os.close(said_write)
    with open(said_read, "rb", buffering=0) as said, open(go_write, "wb", buffering=0) as go:
        try:
            mapped = said.read(1) == _READY and all(
                _succeeds(command, child) for command in commands
            )
            if mapped:
                go.write(_READY)
            go.close()
            answer = said.read()
        finally:
            os.waitpid(child, 0)
    if not mapped:
        raise UnsupportedError("Subordinate ids cannot be mapped here", hint=_HINT)
    number, _, filename = os.fsdecode(answer).partition(" ")
    if number != "0":
        code = int(number or EIO)
        raise OSError(code, os.strerror(code), filename or None)


def _map_command(program: str, path: str, own: int) -> list[str]:
    """Return a command that maps root to this user and 1, 2, … to his subordinate ids.

    The process whose ids they become is the word "PID".
    """
    found = shutil.which(program)
    ranges = find_ranges(path, os.getuid())
    if found is None or not ranges:
        missing = f"the program {program}" if found is None else f"an entry in {path}"
        raise UnsupportedError(f"There is no use of subordinate ids without {missing}", hint=_HINT)
    words = ["0", str(own), "1"]
    inside = 1
    for first, count in ranges:
        words += [str(inside), str(first), str(count)]
        inside += count
    return [found, "PID", *words]


def _succeeds(command: list[str], child: int) -> bool:
    words = [str(child) if word == "PID" else word for word in command]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return done.returncode == 0


def _run_child(action: Callable[[], None], kernel: Kernel, go_fd: int, said_fd: int) -> NoReturn:
    status = 1
    try:
        kernel.unshare(CLONE_NEWUSER)
        os.write(said_fd, _READY)
        if os.read(go_fd, 1) == _READY:
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
            action()
            os.write(said_fd, b"0")
            status = 0
    except OSError as error:
        os.write(said_fd, os.fsencode(f"{error.errno or EIO} {error.filename or ''}"))
    finally:
        # Also for an error that nobody expected: a child must not return into its parent's work.
        os._exit(status)
