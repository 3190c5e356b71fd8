"""Start real containers on fake driver roots, as an ordinary user.

An ordinary user cannot make device nodes. So a wrapper process enters namespaces of its own, binds
harmless nodes of the machine (/dev/null and its like) over the fake root's files, and starts the
container from there; the fake root says that their numbers are those of GPUs.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.roots.driver import FakeDriver, FakeGpu, uuid_of

ENROOT = str(Path(sys.executable).parent / "enroot")
MEMORY_NODES = {3: "null", 5: "zero", 7: "full", 8: "random", 9: "urandom"}
"""Minors of the memory devices (major 1) that stand in for GPUs."""

_WRAPPER = """
import json, os, sys
from enroot_py.linux.kernel import CLONE_NEWNS, CLONE_NEWUSER, Kernel
binds, command = json.loads(sys.argv[1]), sys.argv[2:]
kernel = Kernel()
uid, gid = os.getuid(), os.getgid()
kernel.unshare(CLONE_NEWUSER | CLONE_NEWNS)
ids = {"setgroups": "deny", "uid_map": f"{uid} {uid} 1", "gid_map": f"{gid} {gid} 1"}
for name, text in ids.items():
    with open(f"/proc/self/{name}", "w") as file:
        file.write(text)
kernel.mount("", "/", "", 0x4000 | 1 << 18)
for source, target, flags in binds:
    if source == "tmpfs":
        kernel.mount("tmpfs", target, "tmpfs", 0, "mode=755")
        continue
    kernel.mount(source, target, "", 4096)
    if flags:
        kernel.mount("", target, "", 4096 | 32 | flags)
os.execv(command[0], command)
"""


def memory_driver(path: Path, count: int = 5) -> tuple[FakeDriver, list[tuple[str, str, int]]]:
    """A complete driver whose GPUs are memory devices; returns it and the binds it needs."""
    driver = FakeDriver(path)
    driver.kernel_module()
    minors = list(MEMORY_NODES)[:count]
    gpus = [
        FakeGpu(minor, f"0000:{0x1B + place:02x}:00.0", uuid_of(minor))
        for place, minor in enumerate(minors)
    ]
    driver.gpus(gpus)
    driver.libraries()
    driver.cache()
    driver.programs()
    driver.graphics()
    driver.write(
        "proc/devices", "Character devices:\n  1 nvidia\n508 nvidia-uvm\n\nBlock devices:\n"
    )
    binds = []
    for name in os.listdir(path / "dev"):
        target = path / "dev" / name
        digits = name.removeprefix("nvidia")
        source = MEMORY_NODES[int(digits)] if digits.isdigit() else "null"
        binds.append((f"/dev/{source}", str(target), 0))
    return driver, binds


class Containers:
    """Containers of one test: a data folder, a driver, and ways to start them."""

    def __init__(self, folder: Path, driver: FakeDriver | None, binds: list[tuple[str, str, int]]):
        self.folder = folder
        self.binds = list(binds)
        self.data = folder / "data"
        self.data.mkdir(parents=True)
        (folder / "home").mkdir()
        (folder / "run").mkdir(mode=0o700)
        self.environ = {
            "HOME": str(folder / "home"), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
            "ENROOT_DATA_PATH": str(self.data), "ENROOT_RUNTIME_PATH": str(folder / "run/enroot"),
            "ENROOT_SYSCONF_PATH": str(folder / "etc"), "NVIDIA_DEBUG_LOG": "1",
            "PYTHONDONTWRITEBYTECODE": "1", "USER": "tester", "LANG": "C.UTF-8",
        }  # fmt: skip
        if driver is not None:
            self.environ["ENROOT_GPU_ROOT"] = str(driver.path)

    def add(self, name: str, rootfs: Path) -> Path:
        target = self.data / name
        subprocess.run(["cp", "-a", str(rootfs), str(target)], check=True)
        return target

    def start(
        self, target: str, *command: str, options: tuple[str, ...] = (), check: bool = True,
        program: str = "start", **environ: str,
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """Start a container; keyword arguments are variables of the launcher."""
        words = [ENROOT, program, *options, target, *command]
        wrapped = [sys.executable, "-c", _WRAPPER, json.dumps(self.binds), *words]
        done = subprocess.run(
            wrapped, env={**self.environ, **environ}, cwd=self.folder, capture_output=True,
            text=True, stdin=subprocess.DEVNULL, timeout=120, check=False,
        )  # fmt: skip
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    def joined(self, target: str, command: tuple[str, ...], options: tuple[str, ...]) -> str:
        """Start a container that waits, and return what a command prints that joins it."""
        words = [ENROOT, "start", *options, target, "sh", "-c", "echo ready; read line"]
        wrapped = [sys.executable, "-c", _WRAPPER, json.dumps(self.binds), *words]
        with subprocess.Popen(
            wrapped, env=self.environ, cwd=self.folder, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        ) as first:  # fmt: skip
            assert first.stdout is not None and first.stdout.readline() == "ready\n"
            done = subprocess.run(
                [ENROOT, "exec", str(first.pid), *command], env=self.environ,
                capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            first.communicate("done\n", timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def output(self, target: str, *command: str, **options: object) -> str:
        return self.start(target, *command, **options).stdout  # type: ignore[arg-type]


def tree(path: Path) -> dict[str, str]:
    """Every name below a folder, with kind, mode and a digest of what it holds."""
    found = {}
    for folder, folders, files in os.walk(path):
        for name in [*folders, *files]:
            file = Path(folder, name)
            facts = file.lstat()
            if file.is_symlink():
                content = os.readlink(file)
            elif file.is_file() and facts.st_mode & 0o400:
                content = hashlib.sha256(file.read_bytes()).hexdigest()
            else:
                content = "-"
            found[str(file.relative_to(path))] = f"{facts.st_mode:o} {content}"
    return found


def remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
