"""Steps of a job whose pods are processes on loopback."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.kubernetes.launcher.conftest import StartPods
from tests.kubernetes.launcher.pods import JOB_ID

HOST = f"test-{JOB_ID}-n-0-"


def lines(pods_output: str) -> list[str]:
    return pods_output.splitlines()


def test_the_body_runs_once_and_its_steps_everywhere(start_pods: StartPods) -> None:
    pods = start_pods(
        """
        echo "body $SLURMD_NODENAME $SLURM_JOB_ID $ENVIRONMENT $# $1"
        mkdir once
        srun -l bash -c 'echo $SLURMD_NODENAME $SLURM_NODEID $SLURM_NTASKS $POD_NAME' | sort
        echo "head $(srun -N1 -n1 -w $(scontrol show hostnames | tail -n1) printenv POD_NAME)"
        scontrol show hostnames "$SLURM_JOB_NODELIST"
        scontrol show hostlist a1,a2,a4
        exit 3
        """,
        3,
        arguments=["an argument"],
    )
    assert pods.wait() == 3, pods.log()
    assert [process.returncode for process in pods.processes.values()] == [3, 0, 0]
    assert lines(pods.output) == [
        f"body {HOST}0 {JOB_ID} BATCH 1 an argument",
        f"0: {HOST}0 0 3 pod-0",
        f"1: {HOST}1 1 3 pod-1",
        f"2: {HOST}2 2 3 pod-2",
        "head pod-2",
        f"{HOST}0",
        f"{HOST}1",
        f"{HOST}2",
        "a[1-2,4]",
    ]
    assert pods.output in pods.log()


def test_statuses_are_the_highest_of_the_tasks(start_pods: StartPods) -> None:
    pods = start_pods(
        """
        srun bash -c 'exit $SLURM_PROCID'; echo "status $?"
        srun -n1 bash -c 'kill -KILL $$'; echo "signal $?"
        srun -n1 nosuchprogram; echo "nosuch $?"
        srun -K bash -c '[ $SLURM_PROCID = 1 ] && exit 5; sleep 60'; echo "killed $?"
        srun -W1 bash -c '[ $SLURM_PROCID = 1 ] && exit 0; sleep 60'; echo "waited $?"
        srun -n9 true; echo "too many $?"
        srun --nosuch true; echo "own $?"
        """,
        2,
        cpusPerNode=2,
    )
    assert pods.wait() == 0
    found = [line for line in lines(pods.output) if ":" not in line]
    assert found == ["status 1", "signal 137", "nosuch 2", "killed 143", "waited 137",
                     "too many 1", "own 255"]  # fmt: skip
    assert f"srun: error: {HOST}1: task 1: exited with status 5" in pods.output
    assert "9 tasks with 1 CPU on" in pods.output


def test_streams_and_files(start_pods: StartPods) -> None:
    pods = start_pods(
        """
        until [ -s run-me ]; do sleep 0.02; done
        echo stdin | srun -l cat | sort
        seq 3 | srun -l -i 1 cat
        srun -i none cat < /dev/zero
        srun -i "$SLURM_SUBMIT_DIR/run-me" -n1 head -n1
        srun -o 'out-%j-%s-%t' bash -c 'echo $SLURM_PROCID; echo e >&2'
        srun -o both -l bash -c 'echo out; echo err >&2'
        srun -o none -e err bash -c 'echo hidden; echo seen >&2'
        srun -o 1 bash -c 'echo only $SLURM_PROCID'
        srun --open-mode=append -o both -n1 echo more
        head -c 20000000 /dev/zero | srun -n1 cat | wc -c
        srun head -c 9000000 /dev/zero | wc -c
        srun yes 2> /dev/null | head -n1
        srun -u -n1 bash -c '[ -t 1 ] && [ ! -t 2 ] && printf part; sleep 0.1; echo ly'
        ulimit -S -n 256; srun -n1 bash -c 'ulimit -S -n; ulimit -c'
        while read -r line; do echo "line $line"; srun -n1 cat; done < run-me
        """,
        2,
    )
    (pods.work / "run-me").write_text("first\nsecond\n")
    assert pods.wait() == 0, pods.log()
    found = lines(pods.output)
    assert found == ["0: stdin", "1: stdin", "1: 1", "1: 2", "1: 3", "first", "only 1",
                     "20000000", "18000000", "y", "partly", "256", "0",
                     "line first", "second"]  # fmt: skip
    files = {path.name: path.read_text() for path in pods.work.iterdir()}
    assert files[f"out-{JOB_ID}-4-0"] == "0\ne\n"
    assert files[f"out-{JOB_ID}-4-1"] == "1\ne\n"
    assert sorted(lines(files["both"])) == ["0: err", "0: out", "1: err", "1: out", "more"]
    assert files["err"] == "seen\nseen\n"


def test_gpus_of_tasks_are_visible_to_them_alone(start_pods: StartPods) -> None:
    pods = start_pods(
        """
        show='echo ${CUDA_VISIBLE_DEVICES-none} ${SLURM_STEP_GPUS-none}'
        echo "$CUDA_VISIBLE_DEVICES"
        srun -l bash -c "$show" | sort
        srun -n4 -l --gpus-per-task=1 bash -c "$show" | sort
        srun -n2 -l --gres=none bash -c "$show" | sort
        mkdir ran
        for i in 1 2 3; do
            srun -N1 -n1 --exact --gpus-per-task=1 bash -c "$show; : > ran/$i
                until [ \\$(ls ran | wc -l) = 3 ]; do sleep 0.02; done" & done; wait
        """,
        2,
        gpusPerNode=2,
    )
    assert pods.wait() == 0, pods.log()
    found = lines(pods.output)
    assert found[:9] == ["0,1", "0: 0,1 0,1", "1: 0,1 0,1", "0: 0 0,1", "1: 1 0,1", "2: 0 0,1",
                         "3: 1 0,1", "0: none none", "1: none none"]  # fmt: skip
    assert sorted(found[9:]) == ["0 0", "0 0", "1 1"]


def test_steps_wait_for_cpus_unless_they_overlap(start_pods: StartPods) -> None:
    pods = start_pods(
        """
        mkdir first second
        alone='echo start; sleep 0.2; echo end'
        together='echo start; : > $0/$SLURM_STEP_ID
                  until [ $(ls $0 | wc -l) = 2 ]; do sleep 0.02; done; echo end'
        srun -n1 -N1 bash -c "$alone" & srun -n1 -N1 bash -c "$alone" & wait
        for i in 1 2; do srun -n1 -N1 --exact bash -c "$together" first & done; wait
        srun -n1 -N1 bash -c "$together" second &
        srun -n1 -N1 --overlap bash -c "$together" second & wait
        srun sleep 60 & until [ -n "$(squeue -h -s)" ]; do sleep 0.02; done
        srun -I0 -n1 true; echo "immediate $?"; scancel $(squeue -h -s -o %i); wait
        """,
        1,
    )
    assert pods.wait() == 0, pods.log()
    found = [line for line in lines(pods.output) if ":" not in line]
    assert found[:4] == ["start", "end", "start", "end"]
    # That the others end at all shows that they ran side by side.
    assert sorted(found[4:12]) == ["end"] * 4 + ["start"] * 4
    assert found[12:] == ["immediate 1"]
    assert "the step waits" in pods.output


def test_signals_reach_tasks(start_pods: StartPods) -> None:
    pods = start_pods(
        """
        task='trap "echo caught; exit 9" USR1 TERM; echo ready > ready.$SLURM_PROCID
              for i in {1..2000}; do sleep 0.05; done'
        start() { rm -f ready.*; srun bash -c "$task" 2> srun.err & pid=$!
                  until [ -s ready.0 ] && [ -s ready.1 ]; do sleep 0.02; done; }
        start; kill -USR1 $pid; wait $pid; echo "usr1 $?"
        start; scancel -s USR1 $SLURM_JOB_ID; wait $pid; echo "scancel -s $?"
        start; scancel $(squeue -h -s -o %i); wait $pid; echo "scancel step $?"
        start; kill -INT $pid; until grep -q second srun.err; do sleep 0.02; done
        while kill -INT $pid; do sleep 0.1; done 2> /dev/null; wait $pid; echo "interrupted $?"
        start; kill -KILL $pid; wait $pid
        while [ -n "$(squeue -h -s)" ]; do sleep 0.02; done; echo gone
        srun -t 0:8 --signal=USR1@2 bash -c "$task" 2> srun.err; echo "warned $?"
        srun -t 0:4 sleep 60; echo "step's time $?"
        """,
        2,
    )
    assert pods.wait() == 0, pods.log()
    found = [line for line in lines(pods.output) if "srun" not in line and "caught" not in line]
    found = [line for line in found if "signal 1" not in line and "Terminated" not in line]
    assert [line for line in found if "Killed" not in line and "Interrupt" not in line] == [
        "usr1 9", "scancel -s 9", "scancel step 9", "interrupted 130", "gone", "warned 9",
        "step's time 143",
    ]  # fmt: skip
    assert pods.output.count("caught") == 8


def test_steps_start_steps(start_pods: StartPods) -> None:
    pods = start_pods(
        """
        srun -N1 -n1 -w $(scontrol show hostnames | tail -n1) bash -c '
            echo "outer $SLURMD_NODENAME"
            srun --overlap -N2 -n2 -l printenv SLURMD_NODENAME | sort'
        pyxis-rsh $(scontrol show hostnames | tail -n1) 'echo "remote $SLURMD_NODENAME"'
        pyxis-rsh -x -o A=b -l user someone@$SLURMD_NODENAME echo "'a  b'"
        """,
        2,
    )
    assert pods.wait() == 0, pods.log()
    assert lines(pods.output) == [f"outer {HOST}1", f"0: {HOST}0", f"1: {HOST}1",
                                  f"remote {HOST}1", "a  b"]  # fmt: skip


def test_programs_of_an_mpi_library_start_through_srun(start_pods: StartPods) -> None:
    """Open MPI finds the nodes by SLURM_*, and starts its daemons with srun."""
    pods = start_pods(
        "mpirun --allow-run-as-root --oversubscribe -np 4 bash -c "
        "'echo $OMPI_COMM_WORLD_RANK $SLURMD_NODENAME' | sort\n",
        2,
        tasksPerNode="2(x2)",
        variables={"SLURM_TASKS_PER_NODE": "2(x2)"},
    )
    assert pods.wait() == 0, pods.log()
    assert lines(pods.output) == [f"0 {HOST}0", f"1 {HOST}0", f"2 {HOST}1", f"3 {HOST}1"]


def test_what_srun_cannot_do_is_said_in_one_line(start_pods: StartPods) -> None:
    pods = start_pods(
        """
        for words in --pty --het-group=1 --mpi=pmix --container-image=other
        do srun $words true; done
        for command in sbatch sacct sbcast salloc sinfo; do $command; done
        scontrol update JobId=1; scontrol show job 9; squeue -j 9; scancel 9
        srun -o no/such/out true; srun -i no/such/in true; srun --multi-prog no/such/programs
        """,
        containerImage="image",
    )
    assert pods.wait() == 1, pods.log()
    found = lines(pods.output)
    assert len(found) == 16
    assert all(": error: " in line for line in found)
    assert found[-3:] == [
        f"srun: error: cannot open no/such/{name}: No such file or directory"
        for name in ("out", "in", "programs")
    ]


def test_the_job_is_shown(start_pods: StartPods) -> None:
    pods = start_pods(
        textwrap.dedent(
            """
            squeue; squeue -h -j $SLURM_JOB_ID -o '%i|%T|%t|%l|%D|%C|%N'; squeue -O JobID:8,State:8
            left=$(squeue -h -j $SLURM_JOB_ID -o %L); case $left in 1:0*|59:*) echo left;; esac
            scontrol show job $SLURM_JOB_ID; scontrol -o show node | grep -c NodeName=
            scontrol show jobid -dd $SLURM_JOB_ID | grep -c JobState=RUNNING
            scontrol wait_job $SLURM_JOB_ID; scontrol -V; squeue --version
            scontrol write batch_script $SLURM_JOB_ID - | cmp - $0 && echo same
            scontrol write batch_script $SLURM_JOB_ID no/such/folder; cat $0 > before
            scontrol write batch_script $SLURM_JOB_ID copy; cmp copy before
            srun -J name sleep 60 & until [ -n "$(squeue -h -s)" ]; do sleep 0.02; done
            squeue -s -h -o '%i %j'; scontrol show step; kill $!
            """
        ),
        2,
        timeLimitSeconds=3600,
        graceSeconds=6,
    )
    assert pods.wait() == 0, pods.log()
    text = pods.output
    assert "NODELIST(REASON)" in text
    assert f"\n{JOB_ID}|RUNNING|R|1:00:00|2|8|{HOST}[0-1]\n" in text
    assert "left\n" in text
    assert "JobState=RUNNING" in text
    assert "TimeLimit=1:00:00" in text
    assert "\n2\n1\nslurm 22.05 (pyxis launcher)\nslurm 22.05 (pyxis launcher)\nsame\n" in text
    assert "write batch_script: no/such/folder: No such file or directory\n" in text
    assert f"\nbatch script for job {JOB_ID} written to copy\n" in text
    assert f"\n{JOB_ID}.0 name\n" in text
    assert f"StepId={JOB_ID}.0 Name=name" in text


@pytest.mark.parametrize("there", [True, False])
def test_a_script_beside_its_steps_containers_starts_in_its_own_directory(
    start_pods: StartPods, tmp_path: Path, there: bool
) -> None:
    own = tmp_path / "own"
    if there:
        own.mkdir()
    pods = start_pods(
        "pwd; srun pwd; srun --container-image=image pwd", containerImage="image",
        directory=str(own),
    )  # fmt: skip
    assert pods.wait() == 0, pods.log()
    script = str(own if there else pods.work)
    assert lines(pods.output) == [script, script, str(pods.work)]
