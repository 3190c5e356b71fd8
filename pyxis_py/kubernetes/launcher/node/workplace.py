"""The folder of the launcher in a pod: Slurm's commands for the script, and modules ready to run.

Commands start often, and reading modules out of a zip file takes longer than most of them: the
package is unpacked and compiled once. The commands start the Python that runs the launcher,
isolated from the script's PYTHONPATH and virtual environments.
"""

from __future__ import annotations

import compileall
import os
import shlex
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Mapping

from pyxis_py.kubernetes.launcher.commands.table import ABSENT, COMMANDS
from pyxis_py.kubernetes.launcher.node.bundle import python_words

_LONGEST_FIRST_LINE = 120
_NEEDED = 4 << 20
"""Bytes that a file system should have left."""


class NoFolderError(Exception):
    """No folder of the pod can hold programs."""


class Workplace:
    """The folder; `bin` comes first in the script's PATH."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.bin = os.path.join(path, "bin")
        self.lib = os.path.join(path, "lib")

    def write_profile(self, original: str) -> str:
        """Write what bash reads after /etc/profile, which sets PATH anew; return its path.

        Args:
            original: the file that BASH_ENV names already, "" for none.
        """
        path = os.path.join(self.path, "profile")
        with open(path, "w", encoding="utf-8") as script:
            if original:
                name = shlex.quote(original)
                script.write(f"export BASH_ENV={name}\n[ ! -r {name} ] || . {name}\n")
            else:
                script.write("unset BASH_ENV\n")
            script.write(f'PATH={shlex.quote(self.bin)}:"$PATH"\n')
        return path

    def remove(self) -> None:
        """Remove the folder and all in it."""
        shutil.rmtree(self.path, ignore_errors=True)


def make_workplace(archive: str, environ: Mapping[str, str]) -> Workplace:
    """Make the folder.

    Args:
        archive: the launcher's zipapp, or a folder with its modules.

    Raises:
        NoFolderError: if no folder is writable and may hold programs.
    """
    found = Workplace(tempfile.mkdtemp(prefix="pyxis-", dir=_find_folder(environ)))
    os.chmod(found.path, 0o755)
    os.mkdir(found.bin)
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as file:
            file.extractall(found.lib)
        compileall.compile_dir(found.lib, quiet=2)
    else:
        found.lib = os.path.abspath(archive)
    for command in (*COMMANDS, *ABSENT):
        path = os.path.join(found.bin, command)
        with open(path, "w", encoding="utf-8") as script:
            script.write(_script(found.lib, command))
        os.chmod(path, 0o755)
    return found


def _script(lib: str, command: str) -> str:
    code = (
        f"import sys\nsys.path.insert(0, {lib!r})\n"
        "from pyxis_py.kubernetes.launcher.entry import run_command\n"
        f"run_command({command!r}, sys.argv[1:])\n"
    )
    words = python_words()
    first = f"#!{words[0]} -IS"
    if len(words) == 1 and len(first) <= _LONGEST_FIRST_LINE and " " not in words[0]:
        return f"{first}\n{code}"
    # The kernel cuts first lines, and has no room for a loader's options: a shell has.
    start = " ".join(map(shlex.quote, [*words, "-IS", "-c", code]))
    return f'#!/bin/sh\nexec {start} "$@"\n'


def _find_folder(environ: Mapping[str, str]) -> str:
    for folder in _candidates(environ):
        try:
            state = os.statvfs(folder)
        except OSError:
            continue
        if state.f_flag & os.ST_NOEXEC or state.f_bavail * state.f_frsize < _NEEDED:
            continue
        if os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
            return folder
    tried = ", ".join(dict.fromkeys(_candidates(environ)))
    raise NoFolderError(
        f"srun and its like need a folder that can be written and executed from; tried {tried}; "
        "give the job --tmp, which mounts one at /tmp"
    )


def _candidates(environ: Mapping[str, str]) -> Iterable[str]:
    if environ.get("TMPDIR"):
        yield environ["TMPDIR"]
    yield from ("/tmp", "/var/tmp", "/run", "/dev/shm")
