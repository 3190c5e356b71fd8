"""What of a command line's outcome is a fact: compared, and free of any program's own words."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from enroot_py.layers.entry import Node
from enroot_py.squashfs.reader import SquashfsImage

BY_NAME_ONLY = {
    "etc/rc", "etc/rc.local", "etc/fstab", "etc/environment", "bin/busybox",
    "etc/passwd", "etc/group", "etc/passwd-", "etc/group-",
    "etc/shadow", "etc/gshadow",
}  # fmt: skip
"""Files that each program words its own way, or that depend on the machine: only that they are."""

_USAGE = re.compile(r"^Usage: ", re.MULTILINE)
_WARNING = re.compile(r"^(\[WARN|enroot-\w+: )", re.MULTILINE)
_PROGRESS = re.compile(r"\[INFO\] .*")


def message_kind(status: int, stdout: str, stderr: str) -> str:
    """Tell what kind of message came: "usage", "error", "warning" or "none"."""
    if _USAGE.search(stdout) or _USAGE.search(stderr):
        return "usage"
    if status != 0 and any(not _PROGRESS.fullmatch(line) for line in stderr.splitlines() if line):
        return "error"
    return "warning" if _WARNING.search(stderr) else "none"


def usage_stream(stdout: str, stderr: str) -> str:
    """Tell where the usage went."""
    found = (("stdout", stdout), ("stderr", stderr))
    return "+".join(name for name, text in found if _USAGE.search(text))


def table_facts(text: str) -> list[str]:
    """The cells of `list -f`, with what differs from run to run replaced.

    Processes of containers that belong to other data folders are on the machine's account, and
    left out; so are further processes of a container, whose lines have no name.
    """
    rows = []
    for line in text.splitlines():
        if line.startswith((" ", "<unknown>")):
            continue
        cells = re.split(r"\s{2,}", line.strip())
        rows.append(" | ".join(_cell(cell) for cell in cells))
    return rows


def _cell(text: str) -> str:
    if re.fullmatch(r"[\d:-]*:\d\d", text):
        return "TIME"
    text = re.sub(r"\b[1-9]\d{2,}\b", "N", text)
    return re.sub(r"^S[sN+]*$", "S", text)


def variable_facts(text: str) -> list[str]:
    """The variables that `info` shows, sorted; where the program itself lies is left out."""
    found = re.findall(r"^ +(ENROOT_\w+)=(.*)$", text, re.MULTILINE)
    own = ("ENROOT_LIBRARY_PATH", "ENROOT_SYSCONF_PATH")
    return sorted(name if name in own else f"{name}={value}" for name, value in found)


def folder_tree(root: Path) -> list[str]:
    """One line for everything below a folder: type, mode, contents' hash or target, path."""
    return sorted(_folder_lines(root, ""))


def _folder_lines(folder: Path, prefix: str) -> Iterator[str]:
    for entry in os.scandir(folder):
        status = entry.stat(follow_symlinks=False)
        path = prefix + entry.name
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFREG:
            unreadable = not os.access(entry.path, os.R_OK)
            content = "unreadable" if unreadable else _hash(path, Path(entry.path).read_bytes())
        else:
            content = os.readlink(entry.path) if kind == stat.S_IFLNK else "-"
        yield _line(status.st_mode, content, path)
        if kind == stat.S_IFDIR and os.access(entry.path, os.R_OK | os.X_OK):
            yield from _folder_lines(Path(entry.path), f"{path}/")


def image_tree(path: Path) -> list[str]:
    """Like `folder_tree`, of an image, with owners that are not root."""
    with SquashfsImage(str(path)) as image:
        lines = [_image_line(image, os.fsdecode(name), node) for name, node in image.walk()]
    return sorted(lines)


def _image_line(image: SquashfsImage, path: str, node: Node) -> str:
    content = "-"
    if stat.S_ISREG(node.kind):
        content = _hash(path, image.read(path))
    elif stat.S_ISLNK(node.kind):
        content = os.fsdecode(node.target)
    owner = f" {node.uid}:{node.gid}" if node.uid or node.gid else ""
    return _line(node.kind | node.mode, content, path) + owner


def _line(mode: int, content: str, path: str) -> str:
    letter = stat.filemode(mode)[0]
    shown = "" if letter == "l" else f" {stat.S_IMODE(mode):04o}"
    return f"{path} {letter}{shown} {content}"


def _hash(path: str, data: bytes) -> str:
    return "made" if path in BY_NAME_ONLY else hashlib.sha256(data).hexdigest()[:12]
