"""GPU injection on a fake driver root: 60 files beside a start without, and discovery alone."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

from measure import Report, interleave, milliseconds, own_command
from starts import make_rootfs
from workplace import Workplace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

RUNS = 40
FILES = 60


def run(report: Report, folder: Path, *, full: bool) -> None:
    from tests.roots.driver import full_driver

    report.heading("GPU injection: 60 files of a fake driver, wall time of whole processes")
    place = Workplace(folder / "gpus")
    place.clear(place.data)
    shutil.rmtree(place.folder / "driver", ignore_errors=True)
    make_rootfs(place.data / "bench")
    shutil.copy("/etc/ld.so.cache", place.data / "bench/etc")
    driver = full_driver(place.folder / "driver")
    for number in range(FILES - sum(1 for _ in (driver.path / "usr").rglob("*.so.5*"))):
        driver.library(f"libnvidia-more{number}")
    driver.cache()
    enroot = own_command("enroot")
    environ = {
        **place.environ,
        "ENROOT_GPU_ROOT": str(driver.path),
        "NVIDIA_DRIVER_CAPABILITIES": "all",
    }
    start = [enroot, "start"]
    timings = interleave(
        {
            "python3 -c pass": [sys.executable, "-c", "pass"],
            "start NAME true": [*start, "bench", "true"],
            "start --gpus none NAME true, 60 files": [*start, "--gpus", "none", "bench", "true"],
        },
        runs=RUNS,
        environ=environ,
    )
    for name, timing in timings.items():
        report.line(name, milliseconds(timing))
    bare, plain, injected = (timing.median for timing in timings.values())
    report.ratio("injection beside the interpreter", (injected - plain) / bare, 4)
    _measure_parts(report, place.folder, bare)


def _measure_parts(report: Report, folder: Path, bare: float) -> None:
    """Discovery of eight GPUs with seven MIG devices each, and the loader's cache."""
    from enroot_py.gpu.loader.cache import (
        FLAG_X86_64,
        CacheEntry,
        add_entries,
        build_cache,
        parse_cache,
    )
    from enroot_py.gpu.nvidia.discovery import find_devices
    from tests.roots.driver import FakeDriver, eight_gpus

    shutil.rmtree(folder / "mig", ignore_errors=True)
    driver = FakeDriver(folder / "mig")
    driver.kernel_module()
    gpus = eight_gpus()
    for gpu in gpus:
        gpu.mig = dict.fromkeys(range(1, 8), (0,))
    driver.gpus(gpus)
    root = driver.root
    data = Path("/etc/ld.so.cache").read_bytes()
    names = [f"libnvidia-x{number}.so.1" for number in range(FILES)]
    entries = [CacheEntry(FLAG_X86_64, name, f"/run/enroot/gpu/lib64/{name}") for name in names]
    discovery = _fastest(lambda: find_devices(root))
    patching = _fastest(lambda: build_cache(add_entries(parse_cache(data), entries)))
    report.line("discovery, 8 GPUs with 7 MIG devices each", f"{discovery * 1e3:8.1f} ms")
    report.line("loader cache, 60 entries added", f"{patching * 1e3:8.1f} ms")
    report.ratio("discovery beside the interpreter", discovery / bare, 3)


def _fastest(function) -> float:  # type: ignore[no-untyped-def]
    best = 1e9
    for _ in range(10):
        started = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - started)
    return best
