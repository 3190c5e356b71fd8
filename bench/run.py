"""Run the benchmarks and print ours beside every peer, as ratios.

    python bench/run.py [--full] [NAME…]

Every gate is a ratio to a peer or to a limit measured in the same run; absolute times are for the
curious. Works in BENCH_DIR (default: a folder in /var/tmp), which holds the generated images
between runs. Exits 1 if a budget was missed.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from measure import Report

PROGRAMS = ("imports", "extraction", "entries", "starts", "hooks", "gpus", "steps")


def main() -> int:
    words = sys.argv[1:]
    full = "--full" in words
    names = [word for word in words if not word.startswith("-")] or list(PROGRAMS)
    folder = Path(os.environ.get("BENCH_DIR", f"/var/tmp/pyxis-enroot-bench-{os.getuid()}"))
    folder.mkdir(parents=True, exist_ok=True)
    report = Report()
    for name in names:
        importlib.import_module(name).run(report, folder, full=full)
    print()
    if report.missed:
        print(f"{len(report.missed)} budgets missed: " + ", ".join(report.missed))
        return 1
    print("All budgets kept.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
