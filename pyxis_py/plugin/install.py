"""Put the plugin's line into plugstack.conf, take it out again, and tell how things stand.

The line is marked by a comment before it, so that what an administrator has written besides stays
as it is. Slurm reads plugstack.conf whenever srun, sbatch, salloc or slurmstepd starts: steps have
the plugin at once; only slurmd itself has to be started again, which else runs no epilog of ours.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from enroot_py import NotFoundError, SettingsError, StoreError, UnsupportedError
from pyxis_py.plugin.build import LIBRARY, PACKAGES, interpreter
from pyxis_py.plugin.node_daemon import find_daemons, note_on
from pyxis_py.plugin_config import parse_plugin_config

MARK = "# pyxis: the next line is written by `pyxis plugin install`"
_BUILD = "build it: pyxis plugin build"
_DEFAULT = Path("/etc/slurm/plugstack.conf")


@dataclass(frozen=True)
class Status:
    """How things stand on this machine.

    Attributes:
        plugstack: the file that Slurm reads.
        line: the plugin's line in it, "" if there is none.
        library: the file that the line names; "" without one.
        built_for: Slurm's release that the library was built for, e.g. "22.05.8"; "" if unknown.
        slurm: the release that runs here; "" if none is found.
        flags_shown: srun knows the flags.
        faults: what is wrong, in words; empty if steps can have containers.
        notes: what an administrator should do besides.
    """

    plugstack: Path
    line: str
    library: str
    built_for: str
    slurm: str
    flags_shown: bool
    faults: tuple[str, ...]
    notes: tuple[str, ...] = ()


def find_plugstack() -> Path:
    """Return the plugstack.conf of the Slurm at hand."""
    done = _run("scontrol", "show", "config")
    found = re.search(r"^PlugStackConfig\s*=\s*(/\S+)", done, re.MULTILINE)
    if found:
        return Path(found[1])
    conf = os.environ.get("SLURM_CONF", "")
    return Path(conf).parent / "plugstack.conf" if conf else _DEFAULT


def install(library: Path, words: tuple[str, ...], plugstack: Path, *, required: bool) -> str:
    """Write the plugin's line, in place of an earlier one of ours.

    Args:
        library: absolute path of the library; it has to be there.
        words: settings of the plugin.
        plugstack: the file to change; it is made if there is none.
        required: a step fails where the library cannot be loaded.

    Returns:
        The line.

    Raises:
        SettingsError: for a setting that is unknown or wrong.
        NotFoundError, UnsupportedError: if no step could have the plugin.
        StoreError: if the file cannot be written.
    """
    parse_plugin_config(words)
    if not library.is_file():
        raise NotFoundError(f"No such library: {library}", hint=_BUILD)
    fault = _fault_of(library, words)
    if fault:
        raise UnsupportedError(fault[0], hint=fault[1])
    line = " ".join(("required" if required else "optional", str(library), *words))
    kept = _without_ours(_read(plugstack))
    _write(plugstack, f"{kept}{MARK}\n{line}\n")
    return line


def _fault_of(library: Path, words: Iterable[str]) -> tuple[str, str] | None:
    """Return what keeps steps from having a plugin, and what to do."""
    try:
        python = parse_plugin_config(words).python
    except SettingsError as error:
        return str(error), error.hint
    closed = _closed_path([library])
    if closed:
        return closed
    built_for, slurm = library_release(library), slurm_release()
    if not built_for:
        return f"{library} is no plugin of Slurm, or none for this machine", _BUILD
    if slurm and not same_release(slurm, built_for):
        return f"{library} was built for Slurm {built_for}, this is {slurm}", _BUILD
    keeper = PACKAGES / "pyxis_py" / "keeper.py"
    if os.fsencode(keeper) + b"\0" not in library.read_bytes():
        return None  # it belongs to another installation, which may be on another machine
    return _closed_path([keeper, Path(python or interpreter())])


def _closed_path(paths: Iterable[Path]) -> tuple[str, str] | None:
    for path in paths:
        closed = closed_to_users(path)
        if closed is not None:
            mode = closed.stat().st_mode & 0o777
            return (
                f"Users cannot reach {path}: {closed} has the mode {mode:04o}",
                "have it where all can read it: the package in /opt, for example",
            )
    return None


def closed_to_users(path: Path) -> Path | None:
    """Return the first folder, or file, on the way that is its owner's alone.

    Links are looked at as they are and as what they lead to, as far as this process may know.
    """
    ways = [Path(os.path.abspath(path)), Path(os.path.realpath(path))]
    for way in dict.fromkeys(ways):
        for part in (*reversed(way.parents), way):
            try:
                mode = part.stat().st_mode
            except OSError:
                break
            # Where a group may, it is taken for that of the users.
            needed = 0o011 if stat.S_ISDIR(mode) else 0o044
            if not mode & needed:
                return part
    return None


def uninstall(plugstack: Path) -> bool:
    """Take the plugin's line out; returns whether there was one.

    Raises:
        StoreError: if the file cannot be written.
    """
    text = _read(plugstack)
    kept = _without_ours(text)
    if kept == text:
        return False
    _write(plugstack, kept)
    return True


def status(plugstack: Path) -> Status:
    """Look at what Slurm would load, and whether it can."""
    line = _our_line(_read(plugstack))
    words = line.split()
    library = words[1] if len(words) > 1 else ""
    built_for = library_release(Path(library)) if library else ""
    slurm = slurm_release()
    shown = "--container-image" in _run("srun", "--help")
    faults = []
    if not line:
        faults.append(f"{plugstack} has no line of the plugin: run `pyxis plugin install`")
    elif not os.path.isfile(library):
        faults.append(f"{library} is not there")
    elif fault := _fault_of(Path(library), words[2:]):
        faults.append(": ".join(fault))
    elif not shown:
        faults.append("srun does not show the flags: `srun --help` says why")
    notes = [note_on(daemon, library, plugstack) for daemon in find_daemons()] if line else []
    return Status(
        plugstack, line, library, built_for, slurm, shown, tuple(faults), tuple(filter(None, notes))
    )


def slurm_release() -> str:
    """Return the release of the Slurm at hand, e.g. "22.05.8", or ""."""
    found = re.search(r"(\d+\.\d+\.\d+)", _run("srun", "--version"))
    return found[1] if found else ""


def same_release(one: str, other: str) -> bool:
    """Tell whether plugins built for one release load into the other: both numbers agree."""
    return one.split(".")[:2] == other.split(".")[:2]


def library_release(library: Path) -> str:
    """Return the release that a plugin was built for, or "" if it is no plugin.

    Source: spank.h, SPANK_PLUGIN: plugin_version is 0xYYMMmm.
    """
    import ctypes

    # In a process of its own: a library that cannot be loaded must not take this one along.
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read_fd)
            # Functions of Slurm are missing here, and are looked up only when called.
            loaded = ctypes.CDLL(str(library), mode=os.RTLD_LAZY)
            number = ctypes.c_uint.in_dll(loaded, "plugin_version").value
            text = f"{number >> 16}.{number >> 8 & 255:02}.{number & 255}"
            os.write(write_fd, text.encode())
        except (OSError, ValueError):
            pass
        finally:
            os._exit(0)
    os.close(write_fd)
    with open(read_fd, "rb") as file:
        text = file.read().decode()
    os.waitpid(pid, 0)
    return text


def _our_line(text: str) -> str:
    lines = text.splitlines()
    for number, line in enumerate(lines[:-1]):
        if line == MARK:
            return lines[number + 1].strip()
    return next((line.strip() for line in lines if _names_library(line)), "")


def _names_library(line: str) -> bool:
    """Whether a line loads the plugin, also one that was written by hand."""
    words = line.split()
    return (
        len(words) > 1
        and words[0] in ("required", "optional")
        and os.path.basename(words[1]) == LIBRARY
    )


def _without_ours(text: str) -> str:
    kept, skip = [], False
    for line in text.splitlines(keepends=True):
        if line.rstrip("\n") == MARK:
            skip = True
        elif skip:
            skip = False
        elif not _names_library(line):
            kept.append(line)
    joined = "".join(kept)
    return joined if not joined or joined.endswith("\n") else joined + "\n"


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise StoreError(f"Cannot read {path}: {error.strerror}") from error


def _write(path: Path, text: str) -> None:
    path = Path(os.path.realpath(path))  # a link stays one
    try:
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=".plugstack-", delete=False
        ) as file:
            file.write(text)
        os.chmod(file.name, mode)
        os.replace(file.name, path)
    except OSError as error:
        raise StoreError(
            f"Cannot write {path}: {error.strerror}", hint="run this as the administrator of Slurm"
        ) from error


def _run(*words: str) -> str:
    if not shutil.which(words[0]):
        return ""
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout
