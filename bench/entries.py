"""Cost per entry: images of many small files, at 10,000, 100,000 and (with --full) 1,000,000."""

from __future__ import annotations

from pathlib import Path

import image_data
from measure import Report, measure, own_command
from workplace import Workplace, registry

BYTES_A_FILE = 400
GROWTH_LIMIT = 1.5
MEMORY_LIMIT = 200e6


def run(report: Report, folder: Path, *, full: bool) -> None:
    report.heading(f"Import: time and memory per entry, files of about {BYTES_A_FILE} bytes")
    place = Workplace(folder / "entries")
    counts = (10_000, 100_000, 1_000_000) if full else (10_000, 100_000)
    costs: dict[int, tuple[float, int]] = {}
    for count in counts:
        size = count * BYTES_A_FILE
        layout = image_data.make_layout(
            folder / f"entries-{count}", layers=2, files=count, size=size
        )
        name = f"bench/entries-{count}"
        image = place.folder / "image.sqsh"

        def fresh(image: Path = image) -> None:
            place.clear(place.cache)
            image.unlink(missing_ok=True)

        with registry(place.folder / f"registry-{count}", layout, name) as address:
            command = [own_command("enroot"), "import", "-o", str(image)]
            command.append(f"docker://{address}#{name}")
            timing = measure(command, runs=2, environ=place.environ, before=fresh)
        costs[count] = (timing.minimum, timing.memory)
        report.line(
            f"{count:,} entries",
            f"{timing.minimum:8.2f} s, {timing.minimum / count * 1e6:.0f} µs an entry, "
            f"{timing.memory / 1e6:.0f} MB",
        )
    report.ratio("peak memory at 100,000 entries", costs[100_000][1] / 1e6, MEMORY_LIMIT / 1e6,
                 unit="MB")  # fmt: skip
    first, last = min(counts), max(counts)
    # The fixed cost of a start-up weighs more on few entries: compare what the others add.
    middle = 100_000
    slope = (costs[middle][0] - costs[first][0]) / (middle - first)
    memory = (costs[middle][1] - costs[first][1]) / (middle - first)
    report.line("memory of each further entry", f"{memory:8.0f} bytes")
    if last > middle:
        further = (costs[last][0] - costs[middle][0]) / (last - middle)
        report.ratio("cost of an entry, 10^6 beside 10^5", further / slope, GROWTH_LIMIT)
        memory = (costs[last][1] - costs[middle][1]) / (last - middle)
        report.line("memory of each further entry at 10^6", f"{memory:8.0f} bytes")
