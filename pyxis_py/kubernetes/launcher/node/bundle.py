"""A Python for images that have none: `launcher.pyz python FOLDER`, in an init container.

Copies the Python that runs it, with the libraries and the loader that it uses: started through that
loader it needs nothing of the image it is used in, neither the same C library nor any.
"""

from __future__ import annotations

import compileall
import importlib
import os
import re
import shutil
import stat
import sys
import sysconfig
from collections.abc import Iterable

LOADER = "ld.so"
"""The loader's name in the folder, whatever it is called where it comes from."""
LIBRARIES = "lib"

_MAPPED = re.compile(r"\s(/\S*/(lib[^/]*\.so[^/]*|ld[-.][^/]*\.so[^/]*))$")
_LEFT_OUT = (
    "site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "lib2to3", "ensurepip",
    "turtledemo", "pydoc_data", "distutils", "__pycache__", "config-*", "*.a", "*.o",
)  # fmt: skip
_NEEDED = (
    "compileall", "hashlib", "hmac", "json", "pty", "random", "select", "selectors", "shutil",
    "socket", "struct", "tempfile", "termios", "typing", "zipfile", "zlib", "encodings.idna",
    "encodings.ascii", "encodings.utf_8", "encodings.latin_1",
)  # fmt: skip


class BundleError(Exception):
    """This Python cannot be copied."""


def make_bundle(folder: str) -> None:
    """Copy this Python into an empty folder.

    Raises:
        BundleError: if it does not run through a loader of its own.
        OSError: if there is no room.
    """
    for name in _NEEDED:
        importlib.import_module(name)
    libraries, loader = _mapped_files()
    target = os.path.join(folder, LIBRARIES)
    os.makedirs(os.path.join(folder, "bin"), exist_ok=True)
    os.makedirs(target, exist_ok=True)
    _copy_program(os.path.realpath(sys.executable), os.path.join(folder, "bin", "python3"))
    _copy_program(loader, os.path.join(folder, LOADER))
    for path in libraries:
        _copy_program(path, os.path.join(target, os.path.basename(path)))
        for name in _other_names(path):
            os.symlink(os.path.basename(path), os.path.join(target, name))
    source = sysconfig.get_path("stdlib")
    version = "python{}.{}".format(*sys.version_info[:2])
    modules = os.path.join(target, version)
    shutil.copytree(source, modules, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    _compile(source, modules)


def _mapped_files() -> tuple[list[str], str]:
    """Return the shared libraries of this process, and its loader."""
    libraries: dict[str, None] = {}
    loader = ""
    with open("/proc/self/maps", encoding="utf-8") as file:
        for line in file:
            match = _MAPPED.search(line.rstrip("\n"))
            if match is None:
                continue
            if match.group(2).startswith("ld"):
                loader = match.group(1)
            else:
                libraries[match.group(1)] = None
    if not loader:
        raise BundleError("this Python runs without a loader: it is linked statically")
    return list(libraries), loader


def _other_names(path: str) -> list[str]:
    """Return names of a library beside it: programs ask for libz.so.1, not for libz.so.1.2.13."""
    folder, name = os.path.split(path)
    stem = name.partition(".so")[0]
    return [
        other
        for other in os.listdir(folder)
        if other.startswith(f"{stem}.so.")
        and other != name
        and os.path.realpath(os.path.join(folder, other)) == os.path.realpath(path)
    ]


def _copy_program(source: str, target: str) -> None:
    shutil.copyfile(source, target)
    os.chmod(target, stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)


def _compile(source: str, target: str) -> None:
    """Compile the modules that are in use here: all of them would take too long."""
    for path in _module_files(source):
        copy = os.path.join(target, os.path.relpath(path, source))
        if os.path.exists(copy):
            compileall.compile_file(copy, quiet=2)


def _module_files(folder: str) -> Iterable[str]:
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if path and path.endswith(".py") and path.startswith(os.path.join(folder, "")):
            yield path


def python_words() -> list[str]:
    """Return the words that start this Python: itself, or a bundle's loader with it."""
    loader = os.readlink("/proc/self/exe")
    if os.path.basename(loader) != LOADER:
        return [sys.executable]
    libraries = os.path.join(os.path.dirname(loader), LIBRARIES)
    return [loader, "--library-path", libraries, sys.executable]
