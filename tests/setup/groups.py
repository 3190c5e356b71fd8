"""Run the test groups, each as the user it is for, and sum up.

    python groups.py short|soak|bench

Runs as root, from the tree that prepare.sh copied. Prints what each group did, names every test
that could not run here (those that need a GPU), and ends with one line of counts. A skipped test is
a failure: see tests/conftest.py.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import NamedTuple

BASE = Path("/opt/pyxis-enroot-test")
USER = "pyxis-test"
RESULTS = BASE / "results"
# What only some machines have is counted by name, in every mode.
ELSEWHERE = ("gpu",)


class Group(NamedTuple):
    """One pytest run: what it selects, as whom, with which interpreter."""

    name: str
    select: str
    user: str
    pytest: Path


class Outcome(NamedTuple):
    passed: int
    failed: int
    skipped: int


def groups(mode: str) -> list[Group]:
    pytest = BASE / "venv/bin/pytest"
    soak = "" if mode == "soak" else " and not soak"
    rest = f"not gpu{soak}"
    prepared = ("kernel", "root", "network", "podman", "slurm", "shells", "parity")
    pure = " and ".join(f"not {name}" for name in prepared)
    wanted = [
        Group("unprivileged", f"not root and not slurm and {rest}", USER, pytest),
        Group("root", f"root and not slurm and {rest}", "root", pytest),
        Group("slurm", f"slurm and {rest}", "root", pytest),
    ]
    for version, other in sorted(other_pythons().items()):
        wanted.append(Group(f"pure on {version}", f"{pure} and {rest}", "root", other))
    return wanted


def other_pythons() -> dict[str, Path]:
    """pytest of the oldest and of the newest supported Python here, besides Debian's."""
    found: dict[tuple[int, ...], str] = {}
    homes = Path.home() / ".pyenv" / "versions"
    candidates = [str(path) for path in homes.glob("3.*/bin/python3")]
    candidates += [name for minor in range(10, 20) if (name := shutil.which(f"python3.{minor}"))]
    for candidate in candidates:
        done = subprocess.run(
            [candidate, "-c", "import sys, ensurepip; print(*sys.version_info[:2])"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode == 0:
            found[tuple(map(int, done.stdout.split()))] = candidate
    found = {version: path for version, path in found.items() if version >= (3, 10)}
    found.pop(sys.version_info[:2], None)
    chosen = {}
    for version in sorted({*sorted(found)[:1], *sorted(found)[-1:]}):
        name = ".".join(map(str, version))
        folder = BASE / f"venv-{name}"
        command = ["tests/setup/make_venv.sh", str(folder), ".[test]"]
        subprocess.run(command, env={**os.environ, "PYTHON": found[version]}, check=True)
        chosen[f"Python {name}"] = folder / "bin/pytest"
    return chosen


def environment(user: str) -> dict[str, str]:
    """A login's environment and no more, so that results don't depend on who called."""
    home = "/root" if user == "root" else f"/home/{user}"
    kept = {
        key: os.environ[key] for key in ("CI", "http_proxy", "https_proxy") if key in os.environ
    }
    path = f"{BASE}/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {
        "HOME": home, "USER": user, "LOGNAME": user, "PATH": path, "LANG": "C.UTF-8",
        "PYXIS_TEST_STRICT": "1", "PYTHONDONTWRITEBYTECODE": "1", **kept,
    }  # fmt: skip


def as_user(user: str, command: list[str]) -> list[str]:
    if user == "root":
        return command
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--", *command]


def run_group(group: Group) -> Outcome:
    print(f"\n== {group.name}: {group.select} (as {group.user})", flush=True)
    report = RESULTS / (re.sub(r"\W+", "-", group.name) + ".xml")
    report.unlink(missing_ok=True)
    command = [
        str(group.pytest), "-q", "-p", "no:cacheprovider", "-m", group.select,
        f"--junitxml={report}", "-o", "junit_logging=no", "--durations=8",
    ]  # fmt: skip
    started = time.monotonic()
    done = subprocess.run(
        as_user(group.user, command),
        env=environment(group.user), stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    print(
        f"== {group.name}: {time.monotonic() - started:.0f} s, exit {done.returncode}", flush=True
    )
    if done.returncode == 5:  # nothing selected
        return Outcome(0, 0, 0)
    if not report.exists():
        return Outcome(0, 1, 0)
    suite = next(ElementTree.parse(report).getroot().iter("testsuite"))
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    skipped = int(suite.get("skipped", 0))
    passed = int(suite.get("tests", 0)) - failed - skipped
    if done.returncode != 0 and not failed:
        failed = 1
    return Outcome(passed, failed, skipped)


def not_run_here() -> list[str]:
    """Node ids of the tests that need what this machine may not have."""
    command = [
        str(BASE / "venv/bin/pytest"), "-q", "-p", "no:cacheprovider", "--collect-only",
        "-m", " or ".join(ELSEWHERE),
    ]  # fmt: skip
    done = subprocess.run(
        command, env=environment("root"), capture_output=True, text=True, check=False
    )
    return [line for line in done.stdout.splitlines() if "::" in line]


def bench() -> int:
    """What an ordinary user measures, then the steps, whose Slurm needs root to start."""
    command = [str(BASE / "venv/bin/python"), "bench/run.py", "--full"]
    user = subprocess.run(as_user(USER, command), env=environment(USER), check=False)
    root = subprocess.run([*command, "steps"], env=environment("root"), check=False)
    return user.returncode or root.returncode


def main() -> int:
    mode = sys.argv[1]
    # A shell in the background ignores these, and what is ignored is inherited: the tests of
    # interrupted commands need them as a terminal's login has them.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(130))
    RESULTS.mkdir(exist_ok=True)
    shutil.chown(RESULTS, USER)
    if mode == "bench":
        return bench()
    outcomes = {group.name: run_group(group) for group in groups(mode)}
    print()
    for name, outcome in outcomes.items():
        print(f"{name}: {outcome.passed} passed, {outcome.failed} failed")
    elsewhere = not_run_here()
    print(f"\nNot run here, for lack of a GPU: {len(elsewhere)}")
    for node in elsewhere:
        print(f"  {node}")
    passed, failed, skipped = (sum(column) for column in zip(*outcomes.values(), strict=True))
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
