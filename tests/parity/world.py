"""Images and folders that every command line of the comparison finds, whichever enroot runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.registry.images import (
    BuiltImage,
    ImageStore,
    directory,
    fifo,
    file,
    hardlink,
    opaque,
    symlink,
    whiteout,
)
from tests.registry.images import busybox_layer as base

IMAGES = ("app", "entry", "layers", "modes", "bare")
"""Those imported once, as `NAME.sqsh`, for the scenarios that begin with an image."""

_APP = {
    "Env": [
        "PATH=/usr/local/bin:/usr/bin:/bin",
        "PLAIN=value",
        "SPACES=two words ",
        'DOUBLE="in quotes"',
        "SINGLE='in quotes'",
        "INNER=a \"b\" 'c'",
        "DOLLAR=$PLAIN and ${PLAIN}",
        "BACKSLASH=a\\nb\\\\c",
        "HASH=#no comment",
        "EQUALS=a=b=c",
        "EMPTY=",
        "lower_case=1",
        "UNICODE=é",
        "ENROOT_FROM_IMAGE=1",
        "dots.in.name=1",
    ],
    "Cmd": ["echo", "from", "cmd"],
    "WorkingDir": "/work/dir",
    "Labels": {"org.example.b": "two\nlines", "org.example.a": "text"},
    "Volumes": {"/vol": {}},
    "User": "nobody",
}


def make_images() -> tuple[ImageStore, dict[str, str]]:
    """Return the registry's images, and what to call their digests in the facts."""
    store = ImageStore()
    built = {
        "app": store.image("t/app", "1", [base(), [file("etc/app", "app\n")]], config=_APP),
        "entry": store.image(
            "t/entry",
            "v1.0-rc_2",
            [base()],
            config={"Entrypoint": ["/bin/echo", "entry", "a b", "it's $HOME"], "Cmd": ["c  d"]},
        ),
        "layers": store.image("t/layers", "1", _layers()),
        "modes": store.image("t/modes", "1", [_modes()]),
        "bare": store.image("t/bare", "1", [[directory("only"), file("only/file", "x")]]),
    }
    store.tags["t/app", "latest"] = store.tags["t/app", "1"]
    store.tags["library/solo", "latest"] = store.tags["t/app", "1"]
    platforms = [(_of_platform(store, name), f"linux/{name}") for name in ("arm64", "amd64")]
    index = store.index("t/idx", "1", platforms)
    names = {image.digest: f"DIGEST:{name}" for name, image in built.items()}
    names |= {image.digest: f"DIGEST:idx:{platform}" for image, platform in platforms}
    return store, {**names, index["digest"]: "DIGEST:idx"}


def _of_platform(store: ImageStore, architecture: str) -> BuiltImage:
    entries = [directory("etc"), file("etc/ARCH", architecture)]
    return store.image("t/idx", "", [entries], architecture=architecture)


def _layers() -> list[list[object]]:
    lowest = [
        directory("keep"), file("keep/one", "1"), directory("opq"), file("opq/old", "old"),
        directory("gone"), file("gone/x", "x"), file("single", "s"), directory("flip"),
        file("flip/inside", "i"), file("flop", "file"), symlink("link", "keep"),
        directory("again"), file("again/low", "low"), file("twin", "twin"),
        hardlink("twin2", "twin"),
    ]  # fmt: skip
    middle = [
        directory("opq"), opaque("opq"), file("opq/new", "new"), whiteout("gone"),
        whiteout("single"), file("flip", "now a file"), directory("flop"), file("flop/in", "in"),
        whiteout("again"),
    ]  # fmt: skip
    highest = [
        directory("again", 0o750), file("again/high", "high"), directory("keep", 0o700),
        file("keep/two", "2"), file(".wh-not-quite", "plain"),
    ]  # fmt: skip
    return [lowest, middle, highest]  # type: ignore[list-item]


def _modes() -> list[object]:
    return [
        directory("r-x", 0o555), file("r-x/file", "x", 0o444), directory("none", 0o000),
        file("none/file", "hidden", 0o000), file("setuid", "s", 0o4755),
        file("setgid", "g", 0o2755), directory("sticky", 0o1777), file("write-only", "w", 0o200),
        file("group", "g", 0o070, uid=1000, gid=1000), fifo("pipe", 0o622),
        symlink("absolute", "/r-x/file"), symlink("dangling", "../../nowhere"),
        hardlink("second", "setuid"), file("with space", "b"), file("ünïcode", "u"),
        file("back\\slash", "k"), file("etc/fstab", "# replaced\n"), file("dev/stale", "d"),
        file("big", b"0123456789abcdef" * 20000), file("empty", ""),
    ]  # fmt: skip


class World:
    """The folders of one scenario, and the environment that leads `enroot` into them.

    Attributes:
        root: everything is below it; the commands run in `root/work`.
        environ: the whole environment, nothing inherited but the search path.
    """

    def __init__(self, root: Path, enroot: Path, extra: dict[str, str]) -> None:
        self.root = root
        self.enroot = enroot
        for name in ("home", "run", "tmp", "work"):
            (root / name).mkdir(parents=True, mode=0o755)
        (root / "run").chmod(0o700)
        self.environ = {
            "PATH": f"{enroot.parent}:{os.environ['PATH']}",
            "HOME": str(root / "home"),
            "XDG_RUNTIME_DIR": str(root / "run"),
            "TMPDIR": str(root / "tmp"),
            "TERM": "dumb",
            "LANG": "C.UTF-8",
            "HOST_VALUE": "of the host",
            "ENROOT_ALLOW_HTTP": "yes",
            "ENROOT_MAX_PROCESSORS": "2",
            **extra,
        }

    @property
    def data(self) -> Path:
        """Where the containers are."""
        return self.root / "home" / ".local" / "share" / "enroot"

    @property
    def work(self) -> Path:
        """Where the commands run."""
        return self.root / "work"

    def write(self, path: str, content: str) -> None:
        """Make a file below `root`, or a folder if the name ends in a slash; `*.sh` may be run."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith("/"):
            target.mkdir(exist_ok=True)
            return
        target.write_text(content, encoding="utf-8")
        target.chmod(0o755 if path.endswith(".sh") else 0o644)

    def prepare(self, *words: str) -> None:
        """Run a command line that must succeed before anything is compared."""
        done = subprocess.run(
            [str(self.enroot), *words],
            env=self.environ, cwd=self.work, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=120, check=False, umask=0o022,
        )  # fmt: skip
        assert done.returncode == 0, (words, done.stderr)


def clear(root: Path) -> None:
    """Delete a folder with everything in it, whatever the modes of what the commands left."""
    for folder, names, _ in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    shutil.rmtree(root)
