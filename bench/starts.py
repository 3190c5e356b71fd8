"""Starting containers: ours beside the bare interpreter and beside bubblewrap."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from measure import Report, interleave, milliseconds, own_command, program, run_once
from workplace import Workplace

RUNS = 40


def run(report: Report, folder: Path, *, full: bool) -> None:
    report.heading("Start and exec: wall time of whole processes, warm cache, taken turn by turn")
    place = Workplace(folder / "starts")
    place.clear(place.data)
    make_rootfs(place.data / "bench")
    enroot = own_command("enroot")
    image = place.folder / "image.sqsh"
    image.unlink(missing_ok=True)
    run_once([enroot, "export", "-o", str(image), "bench"], environ=place.environ)
    sleeper = subprocess.Popen([enroot, "start", "bench", "sleep", "600"], env=place.environ)
    try:
        wait_until_started(sleeper.pid)
        timings = interleave(commands(place, enroot, image, sleeper.pid), runs=RUNS,
                             environ=place.environ)  # fmt: skip
    finally:
        os.kill(sleeper.pid, signal.SIGKILL)
        sleeper.wait()
    for name, timing in timings.items():
        report.line(name, milliseconds(timing))
    bare = timings["python3 -c pass"].median
    start = timings["enroot start NAME true"].median
    report.ratio("start NAME beside the interpreter", start / bare, 3)
    report.ratio("exec beside the interpreter", timings["enroot exec PID true"].median / bare, 2)
    if program("squashfuse"):
        further = (timings["enroot start IMAGE true"].median - start) * 1e3
        report.ratio("start IMAGE more than start NAME", further, 8, unit="ms")
    if not program("bwrap"):
        report.absent("bubblewrap")


def commands(place: Workplace, enroot: str, image: Path, pid: int) -> dict[str, list[str]]:
    chosen = {
        "python3 -c pass": [sys.executable, "-c", "pass"],
        "enroot version": [enroot, "version"],
        "enroot start NAME true": [enroot, "start", "bench", "true"],
        "enroot start --root --rw NAME true": [enroot, "start", "--root", "--rw", "bench", "true"],
        "enroot start IMAGE true": [enroot, "start", str(image), "true"],
        "enroot exec PID true": [enroot, "exec", str(pid), "true"],
    }
    if program("bwrap"):
        chosen["bwrap true"] = [
            "bwrap", "--unshare-user", "--bind", str(place.data / "bench"), "/",
            "--dev-bind", "/dev", "/dev", "--proc", "/proc", "/bin/true",
        ]  # fmt: skip
    return chosen


def make_rootfs(root: Path) -> None:
    """A root filesystem of this machine's shell and a few programs."""
    programs = [path for name in ("sh", "true", "sleep") if (path := shutil.which(name))]
    listed = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False)
    libraries = {word for word in listed.stdout.split() if word.startswith("/")}
    for path in [*programs, *(library.rstrip(":") for library in libraries)]:
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    for program_path in programs:
        for name in ("bin", "usr/bin"):
            target = root / name / Path(program_path).name
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                shutil.copy2(program_path, target)
    for name in ("etc", "proc", "sys", "dev", "tmp", "var/run", "var/lock"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")


def wait_until_started(pid: int) -> None:
    """Wait until the process is what the container runs."""
    for _ in range(200):
        if Path(f"/proc/{pid}/comm").read_text().strip() == "sleep":
            return
        time.sleep(0.05)
    raise RuntimeError("the container did not start")
