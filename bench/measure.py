"""Measure commands as whole processes: wall time, CPU time and peak memory, and print ratios."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple


class Timing(NamedTuple):
    """Seconds of several runs of one thing; `memory` is the largest resident set, in bytes."""

    minimum: float
    median: float
    maximum: float
    cpu: float
    memory: int


def run_once(
    command: Sequence[str], *, environ: Mapping[str, str] | None = None, cwd: str | None = None
) -> tuple[float, float, int]:
    """Run a command; returns wall seconds, CPU seconds and peak memory. Raises if it fails."""
    started = time.perf_counter()
    process = subprocess.Popen(
        command, env=environ, cwd=cwd, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        text = errors.decode(errors="replace")[-800:]
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {text}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def measure(
    command: Sequence[str],
    *,
    runs: int,
    environ: Mapping[str, str] | None = None,
    cwd: str | None = None,
    before: Callable[[], None] | None = None,
) -> Timing:
    """Run a command `runs` times, each time after `before()`, which is not timed."""
    results = []
    for _ in range(runs):
        if before is not None:
            before()
        results.append(run_once(command, environ=environ, cwd=cwd))
    walls = sorted(result[0] for result in results)
    return Timing(
        walls[0], statistics.median(walls), walls[-1],
        min(result[1] for result in results), max(result[2] for result in results),
    )  # fmt: skip


def interleave(
    commands: Mapping[str, Sequence[str]], *, runs: int, environ: Mapping[str, str] | None = None
) -> dict[str, Timing]:
    """Measure several short commands turn by turn, so that noise hits all of them alike."""
    results: dict[str, list[tuple[float, float, int]]] = {name: [] for name in commands}
    for command in commands.values():
        run_once(command, environ=environ)
    for _ in range(runs):
        for name, command in commands.items():
            results[name].append(run_once(command, environ=environ))
    timings = {}
    for name, rows in results.items():
        walls = sorted(row[0] for row in rows)
        timings[name] = Timing(
            walls[0], statistics.median(walls), walls[-1],
            min(row[1] for row in rows), max(row[2] for row in rows),
        )  # fmt: skip
    return timings


def milliseconds(timing: Timing) -> str:
    return (
        f"{timing.minimum * 1e3:8.1f} {timing.median * 1e3:8.1f} {timing.maximum * 1e3:8.1f} ms "
        "(min, median, max)"
    )


class Report:
    """Prints results; knows whether a budget was missed."""

    def __init__(self) -> None:
        self.missed: list[str] = []

    def heading(self, text: str) -> None:
        print(f"\n## {text}\n", flush=True)

    def line(self, name: str, text: str) -> None:
        print(f"{name:44} {text}", flush=True)

    def ratio(
        self, name: str, value: float, limit: float, *, at_least: bool = False, unit: str = "x"
    ) -> None:
        """Print a value beside its budget: at most `limit`, or at least `limit`."""
        kept = value >= limit if at_least else value <= limit
        word = "at least" if at_least else "at most"
        verdict = "kept" if kept else "MISSED"
        self.line(name, f"{value:8.2f} {unit} (budget: {word} {limit:g} {unit}) {verdict}")
        if not kept:
            self.missed.append(name)

    def absent(self, name: str) -> None:
        self.line(name, "not installed")


def program(name: str) -> str | None:
    """The path of a peer, or None where it isn't installed."""
    return shutil.which(name)


def own_command(name: str) -> str:
    """The console script that was installed beside this interpreter."""
    path = os.path.join(os.path.dirname(sys.executable), name)
    if not os.path.exists(path):
        raise RuntimeError(f"{path} is missing: install the package beside this interpreter")
    return path
