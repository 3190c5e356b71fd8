"""Images, a registry and a user's folders for tests of import, load and the cache."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from enroot_py.settings import Settings, load_settings
from tests.registry.images import (
    Entry,
    ImageStore,
    busybox_layer,
    character_device,
    directory,
    fifo,
    file,
    hardlink,
    opaque,
    symlink,
    whiteout,
    xattrs,
)

ROOT = Path(__file__).resolve().parents[2]


class Workplace:
    """The folders of one user, and what runs in them.

    Attributes:
        path: holds everything; commands run in `out` below it.
        environ: the whole environment of a command.
    """

    def __init__(self, path: Path, **settings: str) -> None:
        self.path = path
        self._started: list[subprocess.Popen[str]] = []
        self.out = path / "out"
        self.cache = path / "cache"
        self.data = path / "data"
        self.temp = path / "tmp"
        for folder in (self.out, self.temp):
            folder.mkdir(parents=True, exist_ok=True)
        self.environ = {
            "HOME": str(path / "home"),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "ENROOT_ALLOW_HTTP": "y",
            "ENROOT_CACHE_PATH": str(self.cache),
            "ENROOT_DATA_PATH": str(self.data),
            "ENROOT_RUNTIME_PATH": str(path / "run"),
            "ENROOT_TEMP_PATH": str(self.temp),
            "ENROOT_CONFIG_PATH": str(path / "config"),
            "ENROOT_SYSCONF_PATH": str(path / "etc"),
            **settings,
        }

    def settings(self, **changes: str) -> Settings:
        """The settings in force here, with more ENROOT_* variables (without that prefix)."""
        extra = {f"ENROOT_{key}": value for key, value in changes.items()}
        return load_settings({**self.environ, **extra})

    def command(self, *words: str) -> list[str]:
        """The command line that runs `enroot` with these words."""
        code = "import sys; from enroot_py.cli.main import main; sys.exit(main())"
        return [sys.executable, "-c", code, *words]

    def start(self, *words: str, **environ: str) -> subprocess.Popen[str]:
        """Start a command; its messages are on stderr."""
        process = subprocess.Popen(
            self.command(*words), cwd=self.out, env={**self.environ, **environ},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._started.append(process)
        return process

    def close(self) -> None:
        """Kill what a failed test left running."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def run(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        process = self.start(*words, **environ)
        output, errors = process.communicate(timeout=120)
        return subprocess.CompletedProcess(words, process.returncode, output, errors)

    def leftovers(self) -> list[str]:
        """Unfinished or temporary files anywhere, but for what a later download continues."""
        found = [*self.path.rglob(".enroot.*"), *self.path.rglob("*.lock"), *self.temp.iterdir()]
        found += [path for path in (self.cache / "partial").glob("*") if not path.stat().st_size]
        return sorted(str(path.relative_to(self.path)) for path in found)


def describe_tree(root: Path) -> dict[str, tuple[object, ...]]:
    """Every entry below `root`: type and mode, size or target, content, hard links, mtime, xattrs.

    What only its owner may read is read all the same; this user owns all of it.
    """
    found: dict[str, tuple[object, ...]] = {}
    inodes: dict[tuple[int, int], list[str]] = {}
    for folder, folders, files in os.walk(os.fsencode(root)):
        for name in sorted(folders + files):
            path = os.path.join(folder, name)
            status = os.lstat(path)
            relative = os.fsdecode(os.path.relpath(path, os.fsencode(root)))
            content: object = None
            attributes: list[tuple[str, bytes]] = []
            if stat.S_ISLNK(status.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(status.st_mode):
                with open(path, "rb") as opened:
                    content = hashlib.sha256(opened.read()).hexdigest()
            if not stat.S_ISLNK(status.st_mode):
                attributes = [
                    (key, os.getxattr(path, key))
                    for key in sorted(os.listxattr(path))
                    if key.startswith("user.")
                ]
            if not stat.S_ISDIR(status.st_mode):
                inodes.setdefault((status.st_dev, status.st_ino), []).append(relative)
            found[relative] = (oct(status.st_mode), content, int(status.st_mtime), attributes)
    groups = {tuple(sorted(names)) for names in inodes.values()}
    for group in groups:
        for name in group:
            found[name] += (group,)
    return found


def add_cases(store: ImageStore) -> None:
    """Add the images that layer merging and permissions are tried with, `t/NAME:1`.

    Every one has a shell; what they are about is in their upper layers.
    """
    base = busybox_layer()
    images: Mapping[str, list[list[Entry]]] = {
        "opq": [
            [directory("srv"), directory("srv/a"), file("srv/a/old", "old"),
             file("srv/a/keepname", "lower"), directory("srv/b"), file("srv/b/old", "old")],
            [directory("srv/a"), file("srv/a/new", "new"), file("srv/a/keepname", "upper"),
             opaque("srv/a"), directory("srv/b"), opaque("srv/b"), file("srv/b/new", "new")],
        ],
        "wh": [
            [directory("x"), directory("x/dir"), file("x/dir/f1", "1"), file("x/file", "1"),
             file("x/gone", "1")],
            [whiteout("x/dir"), whiteout("x/gone"), whiteout("x/file")],
            [file("x/dir", "now a file"), directory("x/file"), file("x/file/in", "2")],
        ],
        "perm": [
            [directory("ro", 0o555), file("ro/a", "1"), directory("ro/sub", 0o500),
             file("ro/sub/b", "2"), directory("void", 0o111), file("secret", "s", 0)],
            [directory("ro", 0o555), file("ro/c", "3")],
        ],
        "many": [
            [file(f"n/{number:03}", str(number)), file("last", str(number))]
            for number in range(140)
        ],
        "odd": [
            [file("h1", "hl"), hardlink("h2", "h1"), file("suid", "s", 0o4755), fifo("fifo"),
             character_device("dev/null", 1, 3), character_device("opt/nul", 1, 3),
             file("cap", "c", 0o755, pax=xattrs(user_note="hello")),
             symlink("dangling", "/no/where")],
        ],
        "names": [
            [file("notes.wh.txt", "keep"), directory("usr/share/dev"),
             file("usr/share/dev/x", "keep"), directory("opt/proc"), file("opt/proc/y", "keep"),
             file("\udcff\udcfe", "bytes"), file("-rf", "dash"), file("n" * 255, "long"),
             file("new\nline", "feed")],
        ],
    }  # fmt: skip
    for name, layers in images.items():
        store.image(f"t/{name}", "1", [base, *layers])
    one = [file("one", "1")]
    store.image("t/dup", "1", [base, one, one])


CASES = ("opq", "wh", "perm", "many", "odd", "names", "dup")
