"""Which processes a job's end may kill."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from pyxis_py.step import job_processes
from pyxis_py.step.job_processes import belongs_to_job, end_job_processes, find_job_processes

GROUP_7 = "5:freezer:/slurm_node1/uid_1001/job_7/step_0\n"
GROUP_2 = "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n"
ELSEWHERE = "0::/user.slice/user-1001.slice\n"


@pytest.mark.parametrize(
    ("cgroup", "variables", "job", "is_one"),
    [
        (GROUP_7, {}, 7, True),
        (GROUP_2, {}, 7, True),
        (GROUP_2, {"SLURM_JOB_ID": "8"}, 8, False),  # the cgroup decides, not what a user can set
        (GROUP_2, {}, 77, False),
        (ELSEWHERE, {"SLURM_JOB_ID": "7"}, 7, True),
        (ELSEWHERE, {"SLURM_JOB_ID": "7"}, 8, False),
        (ELSEWHERE, {"SLURM_JOB_ID": "7", "SLURM_HET_SIZE": "2"}, 8, True),
        (ELSEWHERE, {"SLURM_JOB_ID": "7", "SLURM_HET_SIZE": "2"}, 9, False),
        (ELSEWHERE, {"SLURM_JOB_ID": "7", "SLURM_HET_SIZE": "2"}, 6, False),
        (ELSEWHERE, {"SLURM_JOB_ID": "7", "SLURM_HET_SIZE": "all"}, 7, False),
        (ELSEWHERE, {"SLURM_JOB_ID": "", "SLURM_JOBID": "7"}, 7, False),
        (ELSEWHERE, {}, 0, False),
        ("", {}, 7, False),
    ],
)
def test_a_process_belongs_to_a_job(
    cgroup: str, variables: dict[str, str], job: int, is_one: bool
) -> None:
    assert belongs_to_job(cgroup, variables, job) == is_one


@pytest.mark.kernel
def test_only_what_is_in_containers_of_the_job_is_ended() -> None:
    job = 10**6 + os.getpid()
    inside = ["unshare", "-Ur", "sh", "-c", "env -i /bin/sleep 60 & exec cat"]

    def begin(words: list[str], number: int) -> subprocess.Popen[bytes]:
        environ = {**os.environ, "SLURM_JOB_ID": str(number)}
        return subprocess.Popen(words, env=environ, stdin=subprocess.PIPE)

    with begin(inside, job) as ours, begin(inside, job + 1) as other, begin(["cat"], job) as host:
        try:
            deadline = time.monotonic() + 100
            while len(find_job_processes(job)) < 2 or len(find_job_processes(job + 1)) < 2:
                assert time.monotonic() < deadline
            end_job_processes(job)
            assert find_job_processes(job) == []
            assert ours.wait(timeout=100) == -9
            assert (other.poll(), host.poll()) == (None, None)
            assert len(find_job_processes(job + 1)) == 2
        finally:
            end_job_processes(job + 1)
            for process in (ours, other, host):
                process.kill()


@pytest.mark.kernel
def test_what_executes_a_program_just_now_belongs_to_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of it /proc knows no variables, for a tenth of the time of this chain."""
    monkeypatch.setattr(job_processes, "_EXEC_PATIENCE", 10.0)  # where others have the processors
    job = 2 * 10**6 + os.getpid()
    chain = tmp_path / "chain"
    chain.write_text('exec sh "$0"\n')
    environ = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": str(job)}
    with subprocess.Popen(["unshare", "-Ur", "sh", chain], env=environ) as process:
        try:
            deadline = time.monotonic() + 100
            while not find_job_processes(job):
                assert process.poll() is None
                assert time.monotonic() < deadline
            for _ in range(200):
                assert find_job_processes(job) == [process.pid]
        finally:
            process.kill()
