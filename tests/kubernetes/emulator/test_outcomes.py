"""What becomes of a job whose script, pods or nodes end, with the launcher in the pods.

The table of section "Ends" in docs/kubernetes.md, row by row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyxis_py.kubernetes.launcher.zipapp import build_launcher
from pyxis_py.kubernetes.render.validate import pod_templates
from tests.kubernetes.emulator.cluster import Cluster, Outcome
from tests.kubernetes.emulator.controllers import BRIDGE_JOB_ID
from tests.kubernetes.emulator.jobs import cluster_for, render_script

pytestmark = pytest.mark.kernel

HEADER = (
    "#!/bin/bash\n#SBATCH -J ends\n#SBATCH -N3\n#SBATCH --ntasks-per-node=1\n#SBATCH -t 10\n"
    "#SBATCH -o out.txt\n#SBATCH --open-mode=append\n"
)
TARGETS = ("kueue", "kueue-job", "volcano")
GANGS = ("kueue", "volcano")
# What a target makes of a status is in test_policies.py; here the launcher's part is the same.
ONCE = ("kueue", pytest.param("volcano", marks=pytest.mark.soak))
FAILED = {"kueue": "BackoffLimitExceeded", "kueue-job": "BackoffLimitExceeded",
          "volcano": "Terminated"}  # fmt: skip


class Job:
    """A batch script in emulated pods, in a folder that they all see."""

    def __init__(self, folder: Path, image: Path) -> None:
        self.folder = folder
        self._image = image
        self.cluster: Cluster

    def start(self, body: str, target: str, *words: str, grace: int = 0, **changes: Any) -> None:
        """Render a script and start its pods.

        Args:
            grace: of the pods, in seconds; 0 for what is rendered, which is never less than 30.
            changes: of job.json; the least time limit that --time can say is a minute.
        """
        script = self.folder / "job.sh"
        script.write_text(HEADER + body)
        rendering = render_script(
            script,
            target=target,
            words=words,
            launcher=build_launcher(),  # type: ignore[arg-type]
        )
        if grace:
            changes["graceSeconds"] = grace
        for manifest in rendering.manifests:
            for _, template in pod_templates(manifest):
                if grace:
                    template["spec"]["terminationGracePeriodSeconds"] = grace
            if manifest["kind"] == "ConfigMap":
                content = {**json.loads(manifest["data"]["job.json"]), **changes}
                manifest["data"]["job.json"] = json.dumps(content)
        self.cluster = cluster_for(rendering, self._image, self.folder)

    def wait_for(self, *names: str) -> None:
        """Wait for files that the script or its tasks make."""
        self.cluster.wait(lambda: all((self.folder / name).exists() for name in names))

    def finish(self, timeout: float = 150) -> Outcome:
        """Wait for the job's end."""
        return self.cluster.finish(timeout)

    @property
    def output(self) -> list[str]:
        """The lines that the script's runs have printed."""
        return (self.folder / "out.txt").read_text().splitlines()


@pytest.fixture
def job(tmp_path: Path, image: Path) -> Iterator[Job]:
    """No pod of the test's job is left afterwards."""
    job = Job(tmp_path, image)
    yield job
    job.cluster.__exit__(None, None, None)


Start = Callable[..., None]


@pytest.mark.parametrize("target", TARGETS)
def test_a_script_that_fails_fails_the_job(job: Job, target: str) -> None:
    job.start("srun hostname > hosts; srun bash -c 'exit $((SLURM_PROCID + 5))'; exit $?", target)
    assert job.finish() == Outcome(False, FAILED[target], 0), job.cluster.logs()
    end = job.cluster.pod(0).end
    assert end is not None and end.status == 7


@pytest.mark.parametrize("target", TARGETS)
def test_a_script_that_ends_well_completes_the_job(job: Job, target: str) -> None:
    job.start("srun true; echo ${SLURM_RESTART_COUNT-first}", target)
    assert job.finish().complete, job.cluster.logs()
    assert job.output == ["first"]
    ends = [pod.end.status for pod in job.cluster.history if pod.end]
    assert ends == [0, 0, 0]


@pytest.mark.parametrize("target", ONCE)
def test_the_time_limit(job: Job, target: str) -> None:
    body = (
        "trap 'echo script warned' USR1; trap 'echo script asked; exit 0' TERM\n"
        'srun bash -c \'trap "echo warned" USR1; trap "echo asked; exit 0" TERM\n'
        "    touch up.$SLURM_PROCID; while :; do sleep 0.05; done' &\n"
        "while :; do wait; done\n"
    )
    # The tasks have seconds to set their traps, and seconds to say that they were warned.
    job.start(body, target, "--signal=USR1@4", timeLimitSeconds=12)
    assert job.finish() == Outcome(False, FAILED[target], 0), job.cluster.logs()
    end = job.cluster.pod(0).end
    assert end is not None and end.status == 124
    lines = job.output
    assert lines.count("warned") == lines.count("asked") == 3
    assert "script asked" in lines and "script warned" not in lines
    assert max(i for i, line in enumerate(lines) if line == "warned") < lines.index("asked")


AGAIN = (
    "echo run ${SLURM_RESTART_COUNT:-0}\n"
    "if [ -e again ]; then srun -l bash -c 'echo ${SLURM_RESTART_COUNT:-0}' | sort; exit 0; fi\n"
    "touch again\n"
)


@pytest.mark.parametrize("target", TARGETS)
def test_scontrol_requeue(job: Job, target: str) -> None:
    job.start(AGAIN + "scontrol requeue $SLURM_JOB_ID; sleep 60", target)
    outcome = job.finish()
    assert outcome.complete, job.cluster.logs()
    # A plain Job replaces the batch host's pod and counts nothing.
    count = 0 if target == "kueue-job" else 1
    assert outcome.restarts == count
    assert job.output == ["run 0", f"run {count}", *(f"{task}: {count}" for task in range(3))]


WAIT = "srun bash -c 'touch up.$SLURM_PROCID; sleep 60'; exit 1\n"


@pytest.mark.parametrize(
    ("target", "index"),
    [("kueue", 0), ("kueue", 2), ("volcano", 2),
     pytest.param("volcano", 0, marks=pytest.mark.soak)],
)  # fmt: skip
def test_a_lost_node_restarts_the_job(job: Job, target: str, index: int) -> None:
    job.start(AGAIN + WAIT, target, grace=2)
    job.wait_for("up.0", "up.1", "up.2")
    job.cluster.lose_node(index)
    assert job.finish() == Outcome(True, FINISHED[target], 1), job.cluster.logs()
    assert job.output[-4:] == ["run 1", "0: 1", "1: 1", "2: 1"]


FINISHED = {"kueue": "SuccessPolicy", "kueue-job": "SuccessPolicy", "volcano": "Completed"}


def test_a_plain_job_replaces_a_lost_pod_and_its_agent_joins_again(job: Job) -> None:
    body = (
        "srun bash -c 'touch up.$SLURM_PROCID; sleep 60'; echo step $?\n"
        "until srun -l hostname > hosts; do sleep 0.2; done; wc -l < hosts\n"
    )
    job.start(body, "kueue-job")
    job.wait_for("up.0", "up.1", "up.2")
    job.cluster.lose_node(1)
    assert job.finish() == Outcome(True, "SuccessPolicy", 0), job.cluster.logs()
    (line,) = (line for line in job.output if line.startswith("step "))
    assert line != "step 0"
    assert job.output[-1] == "3"
    assert [pod.pod.index for pod in job.cluster.history] == [0, 1, 2, 1]


@pytest.mark.parametrize(
    "way", ["evicted", pytest.param("lost", marks=pytest.mark.soak)]
)  # agents notice a silent batch host after a minute
def test_a_plain_job_runs_the_script_again_on_another_batch_host(job: Job, way: str) -> None:
    job.start(AGAIN + WAIT, "kueue-job", grace=2)
    job.wait_for("up.0", "up.1", "up.2")
    if way == "lost":
        job.cluster.lose_node(0)
    else:
        job.cluster.evict(0)
    assert job.finish(150) == Outcome(True, "SuccessPolicy", 0), job.cluster.logs()
    assert job.output[-4:] == ["run 0", "0: 0", "1: 0", "2: 0"]
    assert [pod.pod.index for pod in job.cluster.history] == [0, 1, 2, 0]


@pytest.mark.parametrize(
    "target", ["kueue", *(pytest.param(name, marks=pytest.mark.soak) for name in TARGETS[1:])]
)
def test_without_requeue_a_lost_node_ends_the_job(job: Job, target: str) -> None:
    job.start(WAIT, target, "--no-requeue", grace=2)
    job.wait_for("up.0", "up.1", "up.2")
    job.cluster.lose_node(1)
    reason = "Terminated" if target == "volcano" else "PodFailurePolicy"
    assert job.finish() == Outcome(False, reason, 0), job.cluster.logs()


@pytest.mark.parametrize("target", ONCE)
def test_a_container_that_is_killed_fails_the_job(job: Job, target: str) -> None:
    job.start(WAIT, target)
    job.wait_for("up.0", "up.1", "up.2")
    job.cluster.pod(1).kill()
    assert job.finish() == Outcome(False, FAILED[target], 0), job.cluster.logs()


TOLD = (
    "trap 'echo script asked; exit 0' TERM\n"
    'srun bash -c \'trap "echo warned" USR1; trap "echo asked; exit 0" TERM\n'
    "    touch up.$SLURM_PROCID; while :; do sleep 0.05; done' &\n"
    "while :; do wait; done\n"
)


@pytest.mark.parametrize("target", ONCE)
def test_evicted_pods_are_warned_asked_and_queued_again(job: Job, target: str) -> None:
    job.start(AGAIN + TOLD, target, "--signal=USR1@16", grace=17)
    job.wait_for("up.0", "up.1", "up.2")
    # Some pods hear of it before the batch host does, and their tasks are not to be warned twice.
    job.cluster.evict(1, 2)
    job.cluster.wait(lambda: job.output.count("warned") == 2)
    job.cluster.evict(0)
    assert job.finish() == Outcome(True, FINISHED[target], 1), job.cluster.logs()
    lines = job.output
    first = lines[: lines.index("run 1")]
    assert first.count("warned") == 3 and first.count("asked") == 3, lines
    assert lines[lines.index("run 1") :] == ["run 1", "0: 1", "1: 1", "2: 1"]


def test_kueue_s_own_eviction_is_not_counted_by_the_cluster(job: Job) -> None:
    job.start(AGAIN + TOLD, "kueue")
    job.wait_for("up.0", "up.1", "up.2")
    job.cluster.suspend()
    job.cluster.wait(lambda: all(pod.end is not None for pod in job.cluster.history))
    job.cluster.resume()
    assert job.finish() == Outcome(True, "SuccessPolicy", 0), job.cluster.logs()
    assert job.output[-4:] == ["run 0", "0: 0", "1: 0", "2: 0"]


def test_elements_of_an_array(job: Job) -> None:
    """Two at a time; one fails, and the others do not mind."""
    body = (
        "set -- $SLURM_ARRAY_TASK_ID $SLURM_ARRAY_TASK_COUNT $SLURM_ARRAY_TASK_MIN \\\n"
        "    $SLURM_ARRAY_TASK_MAX $SLURM_ARRAY_TASK_STEP\n"
        "srun bash -c 'echo $SLURM_PROCID of $SLURM_NTASKS on $SLURM_STEP_NUM_NODES' > $1.txt\n"
        'echo "$@"; exit $(($1 == 3 ? 7 : 0))\n'
    )
    job.start(body, "kueue", "-N1", "--ntasks-per-node=2", "--array=1-5:2%2", "-o", "out.%a")
    assert job.finish() == Outcome(False, "FailedIndexes", 0), job.cluster.logs()
    ends = {pod.pod.index: pod.end.status for pod in job.cluster.history if pod.end}
    assert ends == {0: 0, 1: 7, 2: 0}
    found = [(job.folder / f"out.{task}").read_text() for task in (1, 3, 5)]
    assert found == [f"{task} 3 1 5 2\n" for task in (1, 3, 5)]
    lines = (job.folder / "5.txt").read_text().splitlines()
    assert sorted(lines) == ["0 of 2 on 1", "1 of 2 on 1"]


def test_slurm_s_own_number_of_the_job(job: Job) -> None:
    job.start("srun bash -c 'echo $SLURM_JOB_ID'", "slurm-bridge")
    assert job.finish().complete, job.cluster.logs()
    assert job.output == [BRIDGE_JOB_ID] * 3
