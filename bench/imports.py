"""Importing an image: ours beside the codec limit and beside the tools that need several steps."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import image_data
from measure import Report, Timing, measure, own_command, program, run_once
from workplace import Workplace, registry, tls_registry

LAYERS, FILES, SIZE = 6, 45_000, 1_500 << 20
MEMORY_LIMIT = 200e6


def run(report: Report, folder: Path, *, full: bool) -> None:
    layout = image_data.make_layout(folder / "large", layers=LAYERS, files=FILES, size=SIZE)
    compressed = sum(path.stat().st_size for path in image_data.layer_paths(layout))
    report.heading(
        f"Import: {LAYERS} gzip layers, {FILES} files, {SIZE / 1e9:.2f} GB "
        f"({compressed / 1e9:.2f} GB compressed)"
    )
    place = Workplace(folder / "imports")
    limit = codec_limit(layout, runs=3)
    report.line("codec limit (no hashing, no download)", f"{limit:8.2f} s")
    with registry(place.folder / "registry", layout, "bench/large") as address:
        ours, size = import_ours(place, address, report)
        report.ratio("import beside the codec limit", ours.minimum / limit, 1.5)
        report.ratio("peak memory", ours.memory / 1e6, MEMORY_LIMIT / 1e6, unit="MB")
        chain, chain_size = umoci_chain(place, address, report)
        if chain:
            report.ratio("umoci + mksquashfs beside import", chain / ours.minimum, 6, at_least=True)
            report.ratio("image beside mksquashfs's", size / chain_size, 1.0)
        podman(place, address, report, ours)
    charliecloud(place, report, ours)


def codec_limit(layout: Path, *, runs: int) -> float:
    command = [sys.executable, str(Path(__file__).with_name("codec_limit.py")), str(layout)]
    return measure(command, runs=runs).minimum


def import_ours(place: Workplace, address: str, report: Report) -> tuple[Timing, int]:
    image = place.folder / "ours.sqsh"

    def fresh() -> None:
        place.clear(place.cache)
        image.unlink(missing_ok=True)

    uri = f"docker://{address}#bench/large:latest"
    command = [own_command("enroot"), "import", "-o", str(image), uri]
    cold = measure(command, runs=3, environ=place.environ, before=fresh)
    size = image.stat().st_size
    report.line("enroot import, nothing cached", f"{cold.minimum:8.2f} s, {size / 1e6:.0f} MB")
    report.line("  CPU seconds, peak memory", f"{cold.cpu:8.2f} s, {cold.memory / 1e6:.0f} MB")
    warm = measure(
        command, runs=3, environ=place.environ, before=lambda: image.unlink(missing_ok=True)
    )
    report.line("enroot import, image cached", f"{warm.minimum:8.2f} s")
    return cold, size


def umoci_chain(place: Workplace, address: str, report: Report) -> tuple[float, int]:
    """skopeo copy + umoci unpack + mksquashfs with enroot's options."""
    if not (program("skopeo") and program("umoci") and program("mksquashfs")):
        report.absent("skopeo + umoci + mksquashfs")
        return 0.0, 0
    work = place.folder / "chain"
    place.clear(work)
    image = work / "image.sqsh"
    source = f"docker://{address}/bench/large:latest"
    rootless = ["--rootless"] if os.getuid() else []
    oci, bundle = f"{work}/oci:l", f"{work}/bundle"
    steps = {
        "skopeo copy": ["skopeo", "copy", "-q", "--src-tls-verify=false", source, f"oci:{oci}"],
        "umoci unpack": ["umoci", "unpack", *rootless, "--image", oci, bundle],
        "mksquashfs -comp lzo -noD": [
            "mksquashfs", f"{bundle}/rootfs", str(image),
            "-all-root", "-no-progress", "-comp", "lzo", "-noD", "-exit-on-error",
        ],
    }  # fmt: skip
    total = 0.0
    for name, command in steps.items():
        wall = run_once(command, environ=place.environ)[0]
        report.line(f"  {name}", f"{wall:8.2f} s")
        total += wall
    size = image.stat().st_size
    report.line("skopeo + umoci + mksquashfs", f"{total:8.2f} s, {size / 1e6:.0f} MB")
    place.clear(work)
    return total, size


def podman(place: Workplace, address: str, report: Report, ours: Timing) -> None:
    """podman pull, which writes the layers' files but no image of them."""
    if not program("podman"):
        report.absent("podman pull")
        return
    root = place.folder / "podman"
    place.clear(root)
    command = [
        "podman", "--root", str(root / "root"), "--runroot", str(root / "run"),
        "--storage-driver", "vfs", "pull", "-q", "--tls-verify=false", f"{address}/bench/large",
    ]  # fmt: skip
    try:
        wall = run_once(command, environ=place.environ)[0]
    except RuntimeError as error:
        report.line("podman pull", f"failed: {str(error)[-120:]}")
        return
    report.line("podman pull", f"{wall:8.2f} s ({wall / ours.minimum:.1f} x ours)")
    run_once(["podman", "--root", str(root / "root"), "--runroot", str(root / "run"), "rmi", "-af"])
    place.clear(root)


def charliecloud(place: Workplace, report: Report, ours: Timing) -> None:
    """ch-image pull, which unpacks the layers into a folder; it knows registries with TLS alone."""
    if not all(map(program, ("ch-image", "docker-registry", "openssl"))):
        report.absent("charliecloud's ch-image pull")
        return
    root = place.folder / "charliecloud"
    place.clear(root)
    with tls_registry(place.folder / "registry") as address:
        command = ["ch-image", "--no-cache", "--tls-no-verify", "-s", str(root / "images")]
        command += ["pull", f"{address}/bench/large"]
        # The bundle would win over what the command says, as requests has it.
        environ = {**place.environ, "USER": "bench", "REQUESTS_CA_BUNDLE": "", "CURL_CA_BUNDLE": ""}
        try:
            wall = run_once(command, environ=environ)[0]
        except RuntimeError as error:
            report.line("ch-image pull", f"failed: {str(error)[-120:]}")
            return
    report.line("ch-image pull", f"{wall:8.2f} s ({wall / ours.minimum:.1f} x ours)")
    place.clear(root)
