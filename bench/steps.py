"""Slurm steps: `srun` beside `srun --container-image`, on the four-node test Slurm. Needs root.

Budgets are differences in one run: what a container adds to the same step without one. The images
are what `enroot import` makes of 170 MB and of 3 GB of this machine's files; the same as NVIDIA's
Enroot packs it (lzo, data uncompressed) and as mksquashfs does by itself (gzip) shows what the
codec of the first pages costs.
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

from image_data import content_pool, layer_files
from measure import Report, own_command

if TYPE_CHECKING:
    from tests.slurm.rig import Rig

RUNS = 15
NODES = 4
SHAPES = {
    "1 task": ("-N1", "-n1"), "8 tasks": ("-N1", "-n8"), "64 tasks": ("-N1", "-n64", "-O"),
    "4 nodes": ("-N4", "-n4"),
}  # fmt: skip
SMALL = 170 << 20
LARGE = 3 << 30
FILE_SIZE = 40_000
PACKINGS = {"lzo -noD": ("-comp", "lzo", "-noD"), "gzip": ("-comp", "gzip")}


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
        seed = make_image(rig.shared / "seed.sqsh")
        root = unpack(seed, rig.shared / "root")
        add_files(root / "opt", SMALL)
        small = import_folder(root, rig.shared / "small.sqsh")
        others = {name: pack(root, rig.shared / f"other{number}.sqsh", words)
                  for number, (name, words) in enumerate(PACKINGS.items())}  # fmt: skip
        add_files(root / "srv", (LARGE if full else LARGE >> 2) - SMALL)
        large = import_folder(root, rig.shared / "large.sqsh")
        shutil.rmtree(root)
        with rig.plugstack(plugin_line(rig)):
            through_the_plugin(report, rig, str(small), str(large))
            with_other_codecs(report, rig, str(small), others)
            without_a_server(report, rig, str(small), str(large))
        through_the_wrapper(report, rig, str(small), str(large))
    finally:
        rig.stop()


def unpack(image: Path, root: Path) -> Path:
    command = ["unsquashfs", "-q", "-n", "-d", root, image]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return root


def add_files(folder: Path, size: int) -> None:
    """Write files of `size` bytes altogether that compress as those of real images do."""
    rng = random.Random(1)
    files = layer_files(rng, content_pool(), "data", size // FILE_SIZE, size)
    for path, content in files:
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def import_folder(root: Path, image: Path) -> Path:
    command = [own_command("enroot"), "import", "-o", str(image), f"dir:{root}"]
    environ = {**os.environ, "ENROOT_ALLOW_SUPERUSER": "yes"}
    subprocess.run(command, check=True, env=environ, stderr=subprocess.DEVNULL)
    image.chmod(0o644)
    return image


def pack(root: Path, image: Path, words: tuple[str, ...]) -> Path:
    command = ["mksquashfs", root, image, "-all-root", "-quiet", "-no-progress", "-noappend"]
    subprocess.run([*command, *words], check=True, stdout=subprocess.DEVNULL)
    image.chmod(0o644)
    return image


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
    commands = {"large image": ("srun", *SHAPES["1 task"], f"--container-image={large}", "true")}
    for name, shape in SHAPES.items():
        commands[name] = ("srun", *shape, "true")
        commands[f"{name}, image"] = ("srun", *shape, image, "true")
    times = take_turns(rig, commands)
    more = {name: times[f"{name}, image"] - times[name] for name in SHAPES}
    report.line("srun true", f"{times['1 task']:8.1f} ms")
    report.ratio("plugin: image", more["1 task"], 60, unit="ms")
    report.ratio("plugin: large image", times["large image"] - times["1 task"], 60, unit="ms")
    report.ratio("plugin: 8 tasks", more["8 tasks"], 70, unit="ms")
    further = (more["64 tasks"] - more["1 task"]) / 63
    report.ratio("plugin: each further of 64 tasks", further, 2, unit="ms")
    report.ratio("plugin: 4 nodes", more["4 nodes"], 80, unit="ms")
    joining(report, rig, image)


def with_other_codecs(report: Report, rig: Rig, small: str, others: dict[str, Path]) -> None:
    one = ("srun", "-N1", "-n1")
    images = {"as imported": small, **{name: str(path) for name, path in others.items()}}
    commands = {name: (*one, f"--container-image={path}", "true") for name, path in images.items()}
    times = take_turns(rig, {"srun": (*one, "true"), **commands})
    for name in images:
        report.line(f"plugin: image, {name}", f"{times[name] - times['srun']:8.1f} ms")


def without_a_server(report: Report, rig: Rig, small: str, large: str) -> None:
    """The same on nodes without squashfuse: the first step that has an image unpacks it."""
    program = shutil.which("squashfuse")
    if program is None:
        report.absent("squashfuse")
        return
    for number in range(1, NODES + 1):
        rig.as_root(number, "mount", "--bind", "/dev/null", program)
    try:
        one = ("srun", *SHAPES["1 task"])
        times = take_turns(rig, {
            "srun": (*one, "true"),
            "image": (*one, f"--container-image={small}", "true"),
            "large image": (*one, f"--container-image={large}", "true"),
        })  # fmt: skip
        for name in ("image", "large image"):
            more = times[name] - times["srun"]
            report.ratio(f"plugin, no squashfuse: {name}", more, 60, unit="ms")
        in_other_shapes(report, rig, "plugin, no squashfuse", "srun", small)
    finally:
        for number in range(1, NODES + 1):
            rig.as_root(number, "umount", program)


def in_other_shapes(report: Report, rig: Rig, label: str, command: str, image: str) -> None:
    """Several tasks and several nodes, for the curious."""
    for name in ("8 tasks", "64 tasks", "4 nodes"):
        shape = SHAPES[name]
        times = take_turns(rig, {
            "bare": ("srun", *shape, "true"),
            "image": (command, *shape, f"--container-image={image}", "true"),
        })  # fmt: skip
        report.line(f"{label}: {name}", f"{times['image'] - times['bare']:8.1f} ms")


def joining(report: Report, rig: Rig, image: str) -> None:
    """Joining a running container: the first task of a step, and each further one."""
    name = "--container-name=bench"
    holder = rig.popen("srun", "-N1", "-w", "node1", image, name, "sleep", "600")
    try:
        wait_until_running(rig, name)
        on = ("srun", "-N1", "-w", "node1", "--overlap")
        times = take_turns(rig, {
            "bare 1": (*on, "-n1", "true"), "joined 1": (*on, "-n1", name, "true"),
            "bare 8": (*on, "-O", "-n8", "true"), "joined 8": (*on, "-O", "-n8", name, "true"),
            "bare 64": (*on, "-O", "-n64", "true"), "joined 64": (*on, "-O", "-n64", name, "true"),
        }, idle=False)  # fmt: skip
    finally:
        rig.run("scancel", "--state=RUNNING", f"--user={rig.user.pw_name}")
        holder.communicate(timeout=60)
    first = times["joined 1"] - times["bare 1"]
    report.ratio("plugin: join a running container", first, 35, unit="ms")
    for tasks in (8, 64):
        further = (times[f"joined {tasks}"] - times[f"bare {tasks}"] - first) / (tasks - 1)
        report.ratio(f"plugin: each further of {tasks} that join", further, 2, unit="ms")


def wait_until_running(rig: Rig, name: str) -> None:
    for _ in range(100):
        done = rig.run("srun", "-N1", "-w", "node1", "--overlap", f"{name}:exec", "true")
        if done.returncode == 0:
            return
        time.sleep(0.2)
    raise RuntimeError(f"the container never ran: {done.stderr[-500:]}")


def through_the_wrapper(report: Report, rig: Rig, small: str, large: str) -> None:
    shape = SHAPES["1 task"]
    times = take_turns(rig, {
        "srun": ("srun", *shape, "true"),
        "image": ("pyxis-srun", *shape, f"--container-image={small}", "true"),
        "large image": ("pyxis-srun", *shape, f"--container-image={large}", "true"),
    })  # fmt: skip
    for name in ("image", "large image"):
        report.ratio(f"wrapper: {name}", times[name] - times["srun"], 90, unit="ms")
    in_other_shapes(report, rig, "wrapper", "pyxis-srun", small)
