"""Extracting an image: `enroot create` beside unsquashfs, and `enroot export` beside mksquashfs."""

from __future__ import annotations

import os
from pathlib import Path

import image_data
from imports import FILES, LAYERS, SIZE
from measure import Report, measure, own_command, program, run_once
from workplace import Workplace, registry


def run(report: Report, folder: Path, *, full: bool) -> None:
    layout = image_data.make_layout(folder / "large", layers=LAYERS, files=FILES, size=SIZE)
    place = Workplace(folder / "extraction")
    image = place.folder / "image.sqsh"
    report.heading(f"Create and export: {FILES} files, {SIZE / 1e9:.2f} GB")
    if not image.exists():
        with registry(place.folder / "registry", layout, "bench/large") as address:
            uri = f"docker://{address}#bench/large"
            run_once(
                [own_command("enroot"), "import", "-o", str(image), uri], environ=place.environ
            )

    def fresh() -> None:
        place.clear(place.data)
        os.sync()

    create = [own_command("enroot"), "create", "-n", "bench", str(image)]
    ours = measure(create, runs=3, environ=place.environ, before=fresh)
    report.line("enroot create", f"{ours.minimum:8.2f} s, {ours.memory / 1e6:.0f} MB")
    if program("unsquashfs"):
        target = str(place.data / "peer")
        command = ["unsquashfs", "-n", "-q", "-user-xattrs", "-d", target, str(image)]
        peer = measure(command, runs=3, before=fresh)
        report.line("unsquashfs", f"{peer.minimum:8.2f} s")
        report.ratio("create beside unsquashfs", ours.minimum / peer.minimum, 1.2)
    else:
        report.absent("unsquashfs")
    exporting(place, report, create)


def exporting(place: Workplace, report: Report, create: list[str]) -> None:
    place.clear(place.data)
    run_once(create, environ=place.environ)
    output = place.folder / "export.sqsh"

    def gone() -> None:
        output.unlink(missing_ok=True)

    command = [own_command("enroot"), "export", "-o", str(output), "bench"]
    ours = measure(command, runs=2, environ=place.environ, before=gone)
    report.line("enroot export", f"{ours.minimum:8.2f} s, {output.stat().st_size / 1e6:.0f} MB")
    if program("mksquashfs"):
        peer_command = [
            "mksquashfs", str(place.data / "bench"), str(output),
            "-all-root", "-no-progress", "-comp", "zstd", "-Xcompression-level", "1",
        ]  # fmt: skip
        peer = measure(peer_command, runs=2, before=gone)
        report.line("mksquashfs -comp zstd, level 1", f"{peer.minimum:8.2f} s")
        report.line("export beside mksquashfs", f"{ours.minimum / peer.minimum:8.2f} x")
    gone()
    place.clear(place.data)
