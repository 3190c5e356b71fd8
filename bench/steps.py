"""Slurm steps: `srun` beside `srun --container-image`, on the four-node test Slurm. Needs root.

Budgets are differences in one run: what a container adds to the same step without one. A second,
large image shows that its size does not matter.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from measure import Report

if TYPE_CHECKING:
    from tests.slurm.rig import Rig

RUNS = 15
LARGE = 3 << 30


def run(report: Report, folder: Path, *, full: bool) -> None:
    report.heading("Steps: what a container adds to srun, in milliseconds (median of runs in turn)")
    if os.getuid():
        report.line("srun and pyxis", "not measured: starting the test Slurm needs root")
        return
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from pyxis_py.plugin.build import LIBRARY, build
    from tests.slurm.images import make_image
    from tests.slurm.plugin import plugin_line
    from tests.slurm.rig import Rig

    rig = Rig()
    try:
        build(rig.base / LIBRARY)
        rig.start(plugstack=plugin_line(rig))
        small = make_image(rig.shared / "image.sqsh")
        large = make_large_image(small, rig.shared / "large.sqsh", LARGE if full else LARGE >> 2)
        with rig.plugstack(plugin_line(rig)):
            through_the_plugin(report, rig, str(small), str(large))
            without_a_server(report, rig, str(small), str(large))
        through_the_wrapper(report, rig, str(small))
    finally:
        rig.stop()


def make_large_image(small: Path, large: Path, size: int) -> Path:
    """The same image with one more file, of `size` bytes that do not compress."""
    root = large.with_suffix(".root")
    subprocess.run(["unsquashfs", "-q", "-n", "-d", root, small], check=True)
    rng = random.Random(1)
    with open(root / "opt/data", "wb") as file:
        for _ in range(size >> 20):
            file.write(rng.randbytes(1 << 20))
    command = ["mksquashfs", str(root), str(large), "-all-root", "-quiet", "-no-progress", "-noD"]
    subprocess.run([*command, "-noappend"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["rm", "-rf", str(root)], check=True)
    large.chmod(0o644)
    return large


def take_turns(
    rig: Rig, commands: dict[str, tuple[str, ...]], *, idle: bool = True
) -> dict[str, float]:
    """Median milliseconds of each command, run turn by turn; on idle nodes if asked."""
    walls: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(RUNS + 1):
        for name, words in commands.items():
            # A node that is still completing a job makes the next one wait for the scheduler.
            if idle:
                rig.wait_until_idle()
            started = time.perf_counter()
            done = rig.run(*words)
            if done.returncode:
                raise RuntimeError(f"{' '.join(words)}: {done.stderr[-500:]}")
            if turn:  # the first turn warms caches
                walls[name].append((time.perf_counter() - started) * 1e3)
    return {name: statistics.median(values) for name, values in walls.items()}


def through_the_plugin(report: Report, rig: Rig, small: str, large: str) -> None:
    image = f"--container-image={small}"
    one = ("srun", "-N1", "-n1")
    times = take_turns(rig, {
        "srun": (*one, "true"),
        "image": (*one, image, "true"),
        "large image": (*one, f"--container-image={large}", "true"),
        "8 tasks": ("srun", "-N1", "-n8", "true"),
        "8 tasks, image": ("srun", "-N1", "-n8", image, "true"),
        "64 tasks": ("srun", "-N1", "-n64", "-O", "true"),
        "64 tasks, image": ("srun", "-N1", "-n64", "-O", image, "true"),
        "4 nodes": ("srun", "-N4", "-n4", "true"),
        "4 nodes, image": ("srun", "-N4", "-n4", image, "true"),
    })  # fmt: skip
    report.line("srun true", f"{times['srun']:8.1f} ms")
    report.ratio("plugin: image", times["image"] - times["srun"], 60, unit="ms")
    report.ratio("plugin: large image", times["large image"] - times["srun"], 60, unit="ms")
    report.ratio("plugin: 8 tasks", times["8 tasks, image"] - times["8 tasks"], 70, unit="ms")
    first = times["image"] - times["srun"]
    further = (times["64 tasks, image"] - times["64 tasks"] - first) / 63
    report.ratio("plugin: each further of 64 tasks", further, 2, unit="ms")
    report.ratio("plugin: 4 nodes", times["4 nodes, image"] - times["4 nodes"], 80, unit="ms")
    joining(report, rig, image)


def without_a_server(report: Report, rig: Rig, small: str, large: str) -> None:
    """The same on a node without squashfuse: the first step that has an image unpacks it."""
    program = shutil.which("squashfuse")
    if program is None:
        report.absent("squashfuse")
        return
    one = ("srun", "-N1", "-n1", "-w", "node1")
    rig.as_root(1, "mount", "--bind", "/dev/null", program)
    try:
        times = take_turns(rig, {
            "srun": (*one, "true"),
            "image": (*one, f"--container-image={small}", "true"),
            "large image": (*one, f"--container-image={large}", "true"),
        })  # fmt: skip
    finally:
        rig.as_root(1, "umount", program)
    for name in ("image", "large image"):
        more = times[name] - times["srun"]
        report.ratio(f"plugin, no squashfuse: {name}", more, 60, unit="ms")


def joining(report: Report, rig: Rig, image: str) -> None:
    """Joining a running container: the first task of a step, and each further one."""
    name = "--container-name=bench"
    holder = rig.popen("srun", "-N1", "-w", "node1", image, name, "sleep", "600")
    try:
        wait_until_running(rig, name)
        on = ("srun", "-N1", "-w", "node1", "--overlap")
        times = take_turns(rig, {
            "bare 1": (*on, "-n1", "true"), "joined 1": (*on, "-n1", name, "true"),
            "bare 6": (*on, "-n6", "true"), "joined 6": (*on, "-n6", name, "true"),
        }, idle=False)  # fmt: skip
    finally:
        rig.run("scancel", "--state=RUNNING", f"--user={rig.user.pw_name}")
        holder.communicate(timeout=60)
    first = times["joined 1"] - times["bare 1"]
    report.ratio("plugin: join a running container", first, 35, unit="ms")
    further = ((times["joined 6"] - times["bare 6"]) - first) / 5
    report.ratio("plugin: each further task", further, 2, unit="ms")


def wait_until_running(rig: Rig, name: str) -> None:
    for _ in range(100):
        done = rig.run("srun", "-N1", "-w", "node1", "--overlap", f"{name}:exec", "true")
        if done.returncode == 0:
            return
        time.sleep(0.2)
    raise RuntimeError(f"the container never ran: {done.stderr[-500:]}")


def through_the_wrapper(report: Report, rig: Rig, small: str) -> None:
    times = take_turns(rig, {
        "srun": ("srun", "-N1", "-n1", "true"),
        "wrapper": ("pyxis-srun", "-N1", "-n1", f"--container-image={small}", "true"),
    })  # fmt: skip
    report.ratio("wrapper: image", times["wrapper"] - times["srun"], 90, unit="ms")
