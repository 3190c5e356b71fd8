"""Containers and images to start, and processes to count, for the tests of starts."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.hooks.sandbox import Sandbox


def long_sleep() -> str:
    """Return a command line that no other test run has: `sleep` for more than a day."""
    return f"sleep {100000 + os.getpid()}"


def make_image(rootfs: Path, image: Path) -> Path:
    """Make a squashfs image of a folder with Debian's mksquashfs."""
    command = ["mksquashfs", rootfs, image, "-noappend", "-quiet", "-no-progress", "-all-root"]
    command += ["-noD", "-noI", "-noF", "-noX"]  # quickly rather than small
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return image


def open_modes(folder: Path) -> None:
    """Let a folder be removed: mount points in it have mode 0000."""
    for path, names, _ in os.walk(folder):
        for name in names:
            if not os.path.islink(f"{path}/{name}"):
                os.chmod(f"{path}/{name}", 0o700)


def make_bare(rootfs: Path) -> Path:
    """Make a rootfs that holds one static program and nothing else: no shell, no folders."""
    rootfs.mkdir(parents=True)
    shutil.copy("/bin/busybox", rootfs / "echo")
    (rootfs / "echo").chmod(0o755)
    return rootfs


@contextmanager
def running(sandbox: Sandbox, *words: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """Start a container whose command prints a line once it runs; kill it in the end."""
    process = subprocess.Popen(
        [str(sandbox.programs / "enroot"), "start", *words],
        env={**sandbox.environ, **environ}, cwd="/", text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield process
    finally:
        process.kill()
        process.communicate()


def processes_with(text: str) -> list[str]:
    """Return the command lines of living processes that hold `text`, this one's family left out."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            data = Path(f"/proc/{name}/cmdline").read_bytes()
            words = data.replace(b"\0", b" ").decode(errors="replace")
            state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if text in words and state != "Z" and int(name) not in (os.getpid(), os.getppid()):
            found.append(f"{name} {words}")
    return found


def gone(text: str, *, within: float = 60) -> list[str]:
    """Wait until no process has `text` in its command line; return those that stay."""
    deadline = time.monotonic() + within
    while (left := processes_with(text)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def status_field(text: str, name: str) -> str:
    """Return a field of /proc/PID/status text."""
    return next(line.split(":")[1].strip() for line in text.splitlines() if line.startswith(name))


def ignored_signals() -> int:
    """Return the signals that a program started from here ignores, as a mask: what this process
    does, without SIGPIPE and SIGXFSZ, which are Python's own doing.
    """
    mask = int(status_field(Path("/proc/self/status").read_text(), "SigIgn"), 16)
    return mask & ~(1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)


DEATHS = {
    "exit": None,
    "killed": signal.SIGKILL,
    "terminated": signal.SIGTERM,
    "hung up": signal.SIGHUP,
    "crashed": signal.SIGSEGV,
}
"""Ways in which a container's process ends: by itself, or by a signal."""
