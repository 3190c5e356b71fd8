"""Whole plans as text, for reviewing: fake hosts, requests and kinds of root file systems.

`python -m tests.gpu.test_golden_plans` writes the files anew; the difference is for a reviewer.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from enroot_py.gpu.driver_root import DriverRoot
from enroot_py.gpu.injection import Injection
from enroot_py.gpu.loader.cache import LoaderCache, build_cache
from enroot_py.gpu.planning import plan_request
from enroot_py.gpu.request import read_options, read_request
from enroot_py.gpu.rootfs.facts import FILE, VOLATILE, RootfsFacts
from enroot_py.gpu.rootfs.placement import Placement, place
from enroot_py.gpu.situation import Situation
from tests.roots.driver import FakeGpu, eight_gpus, full_driver, one_gpu, uuid_of

GOLDEN = Path(__file__).parent.parent / "golden" / "gpu"

HOSTS = {
    "one": one_gpu,
    "eight": eight_gpus,
    "mig": lambda: [FakeGpu(0, "0000:1b:00.0", uuid_of(0), mig={1: (0,), 2: (0, 1)})],
}
CACHE = build_cache(LoaderCache(()))
READ_ONLY = RootfsFacts(cache=CACHE, profile=b"PATH=/bin\n")
KINDS = {
    "read-only": READ_ONLY,
    "writable": READ_ONLY._replace(writable=True, conf=("/etc/ld.so.conf.d/libc.conf", b"/lib\n")),
    "image": READ_ONLY._replace(ephemeral=True),
    "no-cache": READ_ONLY._replace(cache=None),
}
CASES = (
    # host, GPUs, capabilities, kind of rootfs
    ("one", "all", "", "read-only"),
    ("one", "all", "all", "image"),
    ("one", "none", "utility", "no-cache"),
    ("eight", "1,6", "graphics,compute,utility", "writable"),
    ("eight", "0", "all", "read-only"),
    ("mig", "0:2", "", "read-only"),
)


def name_of(case: tuple[str, str, str, str]) -> str:
    return "_".join(part.replace(",", "+").replace(":", "-") or "default" for part in case)


def plan(folder: Path, case: tuple[str, str, str, str]) -> tuple[Injection, Placement]:
    host, gpus, capabilities, kind = case
    driver = full_driver(folder, HOSTS[host]())
    for number, gpu in enumerate(HOSTS[host]()):
        driver.drm(gpu, number)
    driver.socket()
    driver.firmware()
    launcher = {"NVIDIA_DRIVER_CAPABILITIES": capabilities} if capabilities else {}
    options = read_options(launcher)
    request = read_request(launcher, {}, options, gpus=gpus)
    root: DriverRoot = driver.root
    injection = plan_request(request, options, Situation(root, "x86_64", launcher, {}))
    there = [(path, FILE) for path in injection.hidden]
    facts = KINDS[kind]._replace(
        existing=(("/run/nvidia-persistenced/socket", VOLATILE),),
        devices=frozenset(path for path, _ in there)
        | frozenset(device.target for device in injection.devices),
    )
    return injection, place(injection, facts, {"PATH": "/bin"}, "x86_64")


def lines(folder: Path, case: tuple[str, str, str, str]) -> Iterator[str]:
    injection, placement = plan(folder, case)

    def short(path: str) -> str:
        return path.replace(str(folder), "HOST")

    yield f"# host {case[0]}, --gpus {case[1]}, capabilities {case[2] or 'default'}, {case[3]}"
    for device in injection.devices:
        optional = "" if device.required else " (optional)"
        yield f"device {device.target} <- {short(device.source)}: {device.reason}{optional}"
    dev = placement.dev
    yield f"dev {'anew' if dev.rebuild else 'as it is'}, nodes added: {len(dev.nodes)}"
    for path in dev.hidden:
        yield f"hidden {path}"
    for bind in placement.own_binds:
        yield f"own {bind.target} <- {short(bind.source)}: {bind.reason}"
    for link in placement.own_links:
        yield f"own {link.path} -> {link.target}"
    for file in placement.own_files:
        yield f"own {file.path} written, {len(file.content)} bytes"
    for written in placement.writes:
        yield f"write {written.path}, {len(written.content)} bytes"
    for bind in placement.binds:
        options = ",".join(bind.options)
        yield f"bind {bind.target} <- {short(bind.source)} {options}: {bind.reason}"
    for link in placement.links:
        yield f"link {link.path} -> {link.target}"
    for name, value in placement.environ:
        yield f"environ {name}={value}"
    for text in (*injection.warnings, *placement.warnings):
        yield f"warning {text}"
    for text in (*injection.notes, *placement.notes):
        yield f"note {text}"


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_the_plan_is_the_one_reviewed(tmp_path: Path, case: tuple[str, str, str, str]) -> None:
    expected = (GOLDEN / f"{name_of(case)}.txt").read_text()
    assert "\n".join(lines(tmp_path, case)) + "\n" == expected


def main() -> None:
    import tempfile

    GOLDEN.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            text = "\n".join(lines(Path(folder), case)) + "\n"
        (GOLDEN / f"{name_of(case)}.txt").write_text(text)


if __name__ == "__main__":
    sys.exit(main())
