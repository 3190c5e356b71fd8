"""Run a batch script in emulated pods: `python -m tests.kubernetes.emulator.run`.

For tests that are root's: pods run as who calls. Prints one line of JSON; see `Report`.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from pyxis_py.kubernetes.launcher.zipapp import build_launcher
from tests.kubernetes.emulator.jobs import cluster_for, render_script


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a job.

    Attributes:
        complete, reason, restarts: of the job.
        status: of the batch host's container.
        logs: what all pods have printed.
    """

    complete: bool
    reason: str
    restarts: int
    status: int | None
    logs: str


def run(script: Path, image: Path, *, target: str, words: list[str], arguments: list[str],
        job_id: int, limit: float) -> Report:  # fmt: skip
    """Render a script and run it to its end."""
    user = pwd.getpwuid(os.getuid()).pw_name
    rendering = render_script(
        script, target=target, words=words, arguments=arguments, launcher=build_launcher(),  # type: ignore[arg-type]
        job_id=job_id, user=user,
    )  # fmt: skip
    with cluster_for(rendering, image, script.parent, lag=0.2) as cluster:
        outcome = cluster.finish(limit)
        end = cluster.pod(0).end
        status = end.status if end else None
        return Report(outcome.complete, outcome.reason, outcome.restarts, status, cluster.logs())


def main() -> None:
    """Run it and print what came of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("script", type=Path)
    parser.add_argument("--image", type=Path, required=True)
    parser.add_argument("--target", default="kueue")
    parser.add_argument("--job-id", type=int, default=0)
    parser.add_argument("--word", action="append", default=[], help="an option of sbatch")
    parser.add_argument("--argument", action="append", default=[], help="one of the script's")
    parser.add_argument("--limit", type=float, default=60, help="seconds")
    options = parser.parse_args()
    report = run(
        options.script, options.image, target=options.target, words=options.word,
        arguments=options.argument, job_id=options.job_id, limit=options.limit,
    )  # fmt: skip
    json.dump(asdict(report), sys.stdout)


if __name__ == "__main__":
    main()
