"""The files that make a container image of a flattened filesystem. Pure.

======================== ==========================================================================
`/etc/rc`                the command script: working directory, entrypoint, command
`/etc/rc.local`          read by it; a place for changes
`/etc/fstab`             the volumes, as bind mounts of the rootfs on itself
`/etc/environment`       the variables
======================== ==========================================================================

The config comes from strangers. Words are quoted so that no shell sees anything but words, texts
that become comments stay on one line, volumes stay inside, and nothing is evaluated here or later.
`plan/rc.py` reads the command script where there is no shell, `plan/fstab.py` and
`plan/environ.py` read the others; tests hold both sides together.

Source: enroot 4.1.2 src/docker.sh, docker::configure(); doc/image-format.md.
"""

from __future__ import annotations

import posixpath
import stat
from collections.abc import Iterable

from enroot_py import log
from enroot_py.errors import LayerError
from enroot_py.image.config import ImageConfig
from enroot_py.layers.entry import ContentSink, Node, new_directory
from enroot_py.layers.tree import Tree

_RESERVED_FOLDERS = ("/proc", "/sys", "/dev")
_VOLUME_OPTIONS = "x-create=dir,bind,rw,nosuid,nodev"
_RC_LOCAL = """\
# The command script, /etc/rc, reads this file before it runs the command: here the words of the
# command ("$@"), the variables and the working directory can still be changed.
"""
_SCRIPT = """\
mkdir -p {workdir} 2> /dev/null
cd {workdir} || exit 1
unset OLDPWD

if [ -s /etc/rc.local ]; then
    . /etc/rc.local
fi

if [ $# -gt 0 ]; then
    exec {entrypoint}"$@"
else
    exec {everything}
fi
"""


def image_files(config: ImageConfig, provenance: str) -> dict[bytes, bytes]:
    """Return the contents of the generated files, by path inside the image.

    Args:
        config: the image's config.
        provenance: where the image comes from, the reference with its digest.
    """
    return {
        b"etc/environment": _environment(config.env),
        b"etc/fstab": _fstab(config.volumes),
        b"etc/rc": _rc(config, provenance),
        b"etc/rc.local": _RC_LOCAL.encode(),
    }


def add_image_files(
    root: Node, sink: ContentSink, config: ImageConfig, provenance: str, *, mtime: int = 0
) -> None:
    """Put the generated files into a tree, and make the working directory.

    Paths are resolved beneath the root: files land behind a symbolic link that a directory on
    their way is, but a link that has a file's own name is replaced.

    Args:
        root: the tree's root.
        sink: takes the contents.
        config: the image's config.
        provenance: where the image comes from, the reference with its digest.
        mtime: the files' time, seconds since 1970.
    """
    tree = Tree(root)
    for path, content in image_files(config, provenance).items():
        node = Node(stat.S_IFREG, 0o644, mtime=mtime)
        node.size = len(content)
        if content:
            node.content = sink.add(_Bytes(content), len(content))
        folder, _, name = path.rpartition(b"/")
        try:
            tree.place(folder, name, node)
        except LayerError:
            # The image has something else where the folder should be, or a loop of links.
            tree.place(b"", folder, new_directory())
            tree.place(folder, name, node)
    try:
        tree.directory(config.working_dir.encode())
    except LayerError as error:
        log.warn(f"The working directory cannot be made: {error}")


class _Bytes:
    """Gives bytes out piece by piece; a `ByteSource`."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def take(self, size: int) -> bytes:
        data, self._data = self._data[:size], self._data[size:]
        return data


def _environment(env: Iterable[str]) -> bytes:
    """Write variables, one a line; what a line cannot hold is annotated (see plan/environ.py)."""
    lines = []
    for assignment in env:
        name, equals, value = assignment.partition("=")
        # A shell's variable names are exactly the identifiers made of ASCII letters.
        if not equals or not name.isascii() or not name.isidentifier():
            log.warn_once("variable", f"Left out a variable without a valid name: {name[:60]!r}")
            continue
        first = value.partition("\n")[0]
        lines.append(f"{name}={first}\n")
        if first != value or "${" in value or value.strip("\"' \t\r\v\f") != value:
            exact = value.replace("\\", "\\134").replace("\n", "\\012")
            lines.append(f"# enroot-exact: {name}={exact}\n")
    return "".join(lines).encode()


def _fstab(volumes: Iterable[str]) -> bytes:
    """Write an entry for every volume; those that would cover system folders are left out."""
    lines = []
    for volume in volumes:
        path = posixpath.normpath("/" + volume.lstrip("/"))
        if path == "/" or any(
            path == folder or path.startswith(folder + "/") for folder in _RESERVED_FOLDERS
        ):
            log.warn(f"Left out the volume {volume[:300]!r}: it would cover system files")
            continue
        escaped = "".join(
            f"\\{ord(letter):03o}" if letter in " \t\n\r\v\f\\$#" else letter for letter in path
        )
        lines.append(f"${{ENROOT_ROOTFS}}{escaped} {escaped} none {_VOLUME_OPTIONS}\n")
    return "".join(lines).encode()


def _rc(config: ImageConfig, provenance: str) -> bytes:
    """Write the command script; see plan/rc.py for its form."""
    cmd = config.cmd
    if not config.entrypoint and not cmd:
        cmd = ("/bin/sh",)
    entrypoint = "".join(_quote(word) + " " for word in config.entrypoint)
    comments = [f"# enroot-provenance: {_one_line(provenance)}\n"]
    comments += [f"# {_one_line(key)} {_one_line(value)}\n" for key, value in config.labels]
    script = _SCRIPT.format(
        workdir=_quote("/" + config.working_dir.lstrip("/")),
        entrypoint=entrypoint,
        everything=(entrypoint + " ".join(map(_quote, cmd))).rstrip(),
    )
    return ("".join(comments) + "\n" + script).encode()


def _quote(word: str) -> str:
    """Quote a word for any POSIX shell: between single quotes only those have a meaning."""
    return "'" + word.replace("'", "'\\''") + "'"


def _one_line(text: str) -> str:
    """Turn control characters into blanks: whatever ends a line for whatever reads it."""
    return "".join(letter if letter >= " " and letter != "\x7f" else " " for letter in text)
