"""How jobs end: by themselves, by their time, by eviction, by the loss of a pod."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.kubernetes.launcher.conftest import StartPods
from tests.kubernetes.launcher.pods import JOB_ID, TOKEN, Pods, are_gone, pids_with

HOST = f"test-{JOB_ID}-n-0-"
LOOP = "for i in {1..2000}; do sleep 0.05; done"
READY = "echo ready > ready.$SLURM_PROCID"
SIGNAL = {"name": "USR1", "seconds": 59, "batchOnly": False}


def statuses(pods: Pods) -> list[int]:
    pods.wait()
    return [process.returncode for process in pods.processes.values()]


def terminate(pods: Pods) -> None:
    for process in pods.processes.values():
        process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137), ("exit 85", 1), ("exit 124", 124),
     ("#!/no/such/interpreter\n", 2), ("scontrol requeue $SLURM_JOB_ID; sleep 60", 85),
     ("scancel $SLURM_JOB_ID; sleep 60", 143)],
)  # fmt: skip
def test_the_status_of_the_script_is_the_pod_s(
    start_pods: StartPods, script: str, status: int
) -> None:
    assert statuses(start_pods(script)) == [status]


def test_a_job_that_may_not_be_queued_again_refuses_to_be(start_pods: StartPods) -> None:
    pods = start_pods("scontrol requeue $SLURM_JOB_ID; exit $?", requeue=False)
    assert statuses(pods) == [1]
    assert "--no-requeue" in pods.output


def test_steps_that_are_left_end_with_the_script(start_pods: StartPods) -> None:
    pods = start_pods(
        f"srun bash -c 'trap \"echo end; exit 0\" TERM; {READY}; {LOOP}' &\n"
        "until [ -s ready.0 ] && [ -s ready.1 ]; do sleep 0.02; done; exit 5",
        2,
    )
    assert statuses(pods) == [5, 0]
    assert pods.output.count("end\n") == 2
    assert are_gone(str(pods.folder / "run"), "SLURM_STEP_ID=")


def test_what_tasks_leave_behind_is_killed(start_pods: StartPods) -> None:
    pods = start_pods(
        "srun bash -c 'sleep 300 & setsid sleep 301 & disown -a; exit 0'; echo $?; squeue -h -s", 2
    )
    assert statuses(pods) == [0, 0]
    assert pods.output == "0\n"
    assert are_gone(str(pods.folder / "run"), "SLURM_STEP_ID=")


def test_the_time_limit_ends_steps_and_script(start_pods: StartPods) -> None:
    """What is left after SIGTERM has the pod's grace, which is less than Slurm's KillWait."""
    pods = start_pods("trap 'echo term' TERM; srun sleep 60; echo after; sleep 25; echo late", 2,
                      timeLimitSeconds=1, graceSeconds=7)  # fmt: skip
    assert statuses(pods) == [124, 0]
    assert "its time is over" in pods.log()
    assert "late" not in pods.output


def test_what_ignores_sigterm_is_killed(start_pods: StartPods) -> None:
    pods = start_pods(f"trap '' TERM; srun bash -c \"trap '' TERM; {LOOP}\"; {LOOP}", 2,
                      timeLimitSeconds=1, graceSeconds=6)  # fmt: skip
    assert statuses(pods) == [124, 0]


# By the warning, 59 s before the end, whoever is warned has to have its trap: tasks take longer.
@pytest.mark.parametrize(("batch_only", "limit"), [(False, 68), (True, 64)])
def test_signal_warns_the_steps_or_the_script(
    start_pods: StartPods, batch_only: bool, limit: int
) -> None:
    pods = start_pods(
        "trap 'echo script; scontrol requeue $SLURM_JOB_ID; sleep 60' USR1\n"
        f"srun bash -c 'trap \"echo step; exit 0\" USR1; {LOOP}' & wait; wait",
        2,
        timeLimitSeconds=limit,
        signal={**SIGNAL, "batchOnly": batch_only},
    )
    assert statuses(pods) == ([85, 0] if batch_only else [0, 0])
    words = [line for line in pods.output.splitlines() if line in ("script", "step")]
    assert words == (["script"] if batch_only else ["step", "step"])


def wait_for_tasks(pods: Pods) -> None:
    for task in range(pods.nodes):
        pods.wait_for(f"ready.{task}")


def test_an_evicted_job_may_end_well_and_is_not_done(start_pods: StartPods) -> None:
    """A pod that succeeded would count as the end of the job."""
    pods = start_pods(
        f"trap 'echo body' TERM; srun bash -c 'trap \"echo saved; exit 0\" TERM; {READY}; {LOOP}'\n"
        "echo status $?; exit 0",
        2,
    )
    wait_for_tasks(pods)
    terminate(pods)
    assert statuses(pods) == [143, 143]
    assert pods.output.count("saved\n") == 2
    assert "body\nstatus 0\n" in pods.output


def test_an_evicted_job_is_warned_first(start_pods: StartPods) -> None:
    pods = start_pods(
        f'srun bash -c \'trap "echo usr1; exit 0" USR1; trap "echo term; exit 1" TERM; {READY}; '
        f"{LOOP}'; exit $?",
        2,
        signal=SIGNAL,
        graceSeconds=60,
    )
    wait_for_tasks(pods)
    terminate(pods)
    assert statuses(pods) == [143, 143]
    assert sorted(line for line in pods.output.splitlines() if line in ("usr1", "term")) == [
        "usr1", "usr1",
    ]  # fmt: skip


def test_one_evicted_pod_ends_its_step_and_the_job_is_queued_again(start_pods: StartPods) -> None:
    pods = start_pods(f"srun bash -c '{READY}; sleep 60'; exit $?", 2)
    wait_for_tasks(pods)
    pods.processes[1].send_signal(signal.SIGTERM)
    assert statuses(pods) == [85, 143]
    assert "a node was lost" in pods.log()


def test_a_killed_pod_fails_its_step_with_its_names(start_pods: StartPods) -> None:
    pods = start_pods(f"srun bash -c '{READY}; sleep 60'; echo status $?; srun -N2 true; exit 6", 2)
    wait_for_tasks(pods)
    pods.kill(1)
    assert pods.wait() == 6
    assert f"node {HOST}1 (pod pod-1 on machine-1) is lost" in pods.output
    assert "status 137\n" in pods.output
    assert "this part of the job is lost" in pods.output


def test_a_pod_that_takes_another_s_place_joins_again(start_pods: StartPods) -> None:
    pods = start_pods(
        f"srun bash -c '{READY}; sleep 60'; echo lost > lost\n"
        "until [ -s again ]; do sleep 0.02; done; srun -l printenv POD_NAME | sort",
        2,
    )
    wait_for_tasks(pods)
    pods.kill(1)
    pods.wait_for("lost")
    pods.start(1)
    deadline = time.monotonic() + 100
    while "joined" not in pods.log(1).partition("joined")[2] and time.monotonic() < deadline:
        time.sleep(0.02)
    (pods.work / "again").write_text("now\n")
    assert pods.wait() == 0, pods.log()
    assert pods.output.endswith("0: pod-0\n1: pod-1\n")


def test_the_body_waits_for_all_pods(start_pods: StartPods) -> None:
    pods = start_pods("echo began > began; srun -l printenv SLURM_NODEID | sort", 3, missing=[2])
    time.sleep(1)
    assert not (pods.work / "began").exists()
    pods.start(2)
    assert statuses(pods) == [0, 0, 0]
    assert pods.output == "0: 0\n1: 1\n2: 2\n"


def test_agents_wait_for_the_batch_host(start_pods: StartPods) -> None:
    pods = start_pods("srun -l printenv SLURM_NODEID | sort", 2, missing=[0])
    time.sleep(0.5)
    assert pods.processes[1].poll() is None
    pods.start(0)
    pods.wait()
    assert pods.output == "0: 0\n1: 1\n"


def test_secrets_come_from_files_and_reach_tasks_unseen(start_pods: StartPods) -> None:
    pods = start_pods(
        "echo $HF_TOKEN; srun -l printenv HF_TOKEN | sort\n"
        "HF_TOKEN=other srun -n1 printenv HF_TOKEN\n"
        "srun bash -c 'echo ready > ready.$SLURM_PROCID; until [ -s go ]; do sleep 0.02; done'",
        2,
        secretEnv=["HF_TOKEN"],
        secrets={"HF_TOKEN": "hf_secretvalue"},
    )
    wait_for_tasks(pods)
    pids = pids_with(str(pods.folder / "run"), "")
    commands = b"".join(map(command_line, pids))
    (pods.work / "go").write_text("now\n")
    assert statuses(pods) == [0, 0]
    assert pods.output.splitlines() == ["hf_secretvalue", "0: hf_secretvalue", "1: hf_secretvalue",
                                        "other"]  # fmt: skip
    assert b"srun" in commands
    assert TOKEN.encode() not in commands
    assert b"hf_secretvalue" not in commands
    assert TOKEN not in pods.log()


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended, as the tasks' short sleeps do
        return b""


@pytest.mark.parametrize("original", ["", "other"])
def test_login_shells_find_the_commands(start_pods: StartPods, original: str) -> None:
    """/etc/profile sets PATH anew in many images, and some images use BASH_ENV themselves."""
    pods = start_pods(
        '#!/bin/bash -l\nwhich srun\necho "${BASH_ENV-none} ${SEEN-no}"\nsrun -n1 which srun\n',
        missing=[0],
    )
    if original:
        (pods.work / original).write_text("SEEN=yes\n")
        pods.variables["BASH_ENV"] = str(pods.work / original)
    pods.start(0)
    assert pods.wait() == 0
    first, second, third = pods.output.splitlines()
    assert first == third
    assert first.startswith(f"{pods.folder}/tmp/pyxis-")
    assert second == (f"{pods.work}/other yes" if original else "none no")


def test_files_of_the_job(start_pods: StartPods) -> None:
    pods = start_pods(
        "cat; umask; echo out; echo err >&2",
        options={"error": "%x-%j.err", "input": "input", "open-mode": "append"},
        umask=0o027,
        output="out-%j",
        missing=[0],
    )
    (pods.work / "input").write_text("given\n")
    (pods.work / f"out-{JOB_ID}").write_text("before\n")
    pods.start(0)
    assert pods.wait() == 0, pods.log()
    assert (pods.work / f"out-{JOB_ID}").read_text() == "before\ngiven\n0027\nout\n"
    error = pods.work / f"test-{JOB_ID}.err"
    assert error.read_text() == "err\n"
    assert os.stat(error).st_mode & 0o777 == 0o640


def test_output_without_a_folder_is_in_the_log(start_pods: StartPods) -> None:
    pods = start_pods("echo seen", output="/nonexistent/out")
    assert pods.wait() == 0
    assert "seen\n" in pods.log()
    assert "in this log alone" in pods.log()


def test_two_files_of_one_name_are_one(start_pods: StartPods) -> None:
    pods = start_pods("echo out; echo err >&2", options={"error": f"slurm-{JOB_ID}.out"})
    assert pods.wait() == 0
    assert pods.output == "out\nerr\n"


def test_it_leaves_no_folder_behind(start_pods: StartPods) -> None:
    pods = start_pods("dirname $(which srun) > bin; srun dirname $(which srun) >> bin", 2)
    pods.wait()
    for path in (pods.work / "bin").read_text().split():
        assert not os.path.exists(path)
