"""The ways into a container step: the same flags, the same table, another program in front."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from tests.slurm.cases import ALL, Case
from tests.slurm.rig import Rig


@dataclass(frozen=True)
class Door:
    """A way in.

    Attributes:
        name: as tests show it.
        srun: the words in place of `srun`.
    """

    name: str
    srun: tuple[str, ...]


Outcomes = dict[str, Future[subprocess.CompletedProcess[str]]]
"""What comes of each row of the table, by the row's full name."""

WRAPPER = Door("wrapper", ("pyxis-srun",))
PLUGIN = Door("plugin", ("srun",))

_SUBMITTED = "a job was submitted"


def facts(rig: Rig) -> dict[str, str]:
    """What the table's placeholders stand for."""
    kinds = {
        kind: re.escape(os.readlink(f"/proc/self/ns/{kind}"))
        for kind in ("ipc", "uts", "net", "user")
    }
    return {
        "image": f"{rig.shared}/image.sqsh",
        "shared": str(rig.shared),
        "uid": str(rig.user.pw_uid),
        "home": rig.user.pw_dir,
        **kinds,
    }


def run_case(rig: Rig, door: Door, case: Case) -> subprocess.CompletedProcess[str]:
    """Run a row of the table through a door."""
    known = facts(rig)
    if case.setup:
        assert rig.run("sh", "-c", case.setup.format(**known)).returncode == 0
    words = [word.format(**known) for word in case.flags]
    command = [word.format(**known) if "{" in word else word for word in case.command]
    environ = {name: value.format(**known) for name, value in case.environ.items()}
    job = f"row-{secrets.token_hex(8)}"
    for _ in range(1 + case.again):
        done = rig.run(*door.srun, "-J", job, *words, *command, **environ)
    if not case.submitted:
        # Slurm knows a job for a minute after its end.
        done.stdout += rig.run("squeue", "-h", "-t", "all", "-n", job, "-o", _SUBMITTED).stdout
    if case.after:
        # At once: srun has to end no earlier than what the flags ask for is there (pyxis#76).
        done.stdout += rig.run("sh", "-c", case.after.format(**known)).stdout
    return done


def run_selected(
    rig: Rig, door: Door, request: pytest.FixtureRequest, test: str
) -> Iterator[Outcomes]:
    """Begin the rows that were selected of a test, a few at a time; a step is mostly waiting."""
    names = [item.callspec.id for item in request.session.items if item.name.startswith(test + "[")]
    rows = dict(ALL)
    with ThreadPoolExecutor(max_workers=4) as pool:
        yield {name: pool.submit(run_case, rig, door, rows[name]) for name in names}
        pool.shutdown(cancel_futures=True)


def check_case(rig: Rig, case: Case, done: subprocess.CompletedProcess[str]) -> None:
    """Hold what a row did against what it has to do."""
    known = facts(rig)
    both = f"{done.stdout}\n--- stderr\n{done.stderr}\n--- status {done.returncode}"
    if case.status == -1:
        assert done.returncode != 0, both
    else:
        wanted = case.status if isinstance(case.status, tuple) else (case.status,)
        assert done.returncode in wanted, both
    for pattern, text in ((case.out, done.stdout), (case.err, done.stderr)):
        if pattern:
            assert re.search(_fill(pattern, known), text, re.MULTILINE), both
    assert case.submitted or _SUBMITTED not in done.stdout, both
    if case.lacking:
        assert not re.search(_fill(case.lacking, known), both, re.MULTILINE), both


def _fill(pattern: str, known: dict[str, str]) -> str:
    for name, value in known.items():
        pattern = pattern.replace("{" + name + "}", value)
    return pattern
