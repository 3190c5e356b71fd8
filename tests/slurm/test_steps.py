"""Steps, jobs and containers over time, through the wrapper: names, saving, batch scripts, ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.images import make_image
from tests.slurm.rig import Rig
from tests.slurm.watching import meet

pytestmark = pytest.mark.slurm

SRUN = ("pyxis-srun", "-w", "node1")


@pytest.fixture
def name(rig: Rig, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a container that is removed afterwards."""
    # With the module in it: these tests run through the plugin too, on the same cluster.
    name = "n" + str(abs(hash(request.node.nodeid)) % 10**8)
    yield name
    for number in range(1, 5):
        for path in rig.node(number).glob(f"data-*/pyxis_*{name}"):
            rig.run("srun", "-w", f"node{number}", "enroot", "remove", "-f", path.name)
    assert rig.remains() == []


def step(rig: Rig, *words: str, **environ: str) -> tuple[int, str, str]:
    done = rig.run(*SRUN, *words, **environ)
    return done.returncode, done.stdout.strip(), done.stderr


@pytest.mark.parametrize(
    ("mode", "with_image", "expected"),
    [
        # absent: C09's first two rows
        ("", True, "made"), (":create", True, "made"), (":no_exec", True, "made"),
        (":exec", True, "not running"), ("", False, "no such container"),
        (":create", False, "no such container"), (":exec", False, "not running"),
        (":no_exec", False, "no such container"),
    ],
)  # fmt: skip
def test_a_name_that_nothing_has(
    rig: Rig, name: str, image: str, mode: str, with_image: bool, expected: str
) -> None:
    flags = [f"--container-name={name}{mode}", *([image] if with_image else [])]
    status, out, err = step(rig, *flags, "echo", "made")
    assert (status == 0) == (expected == "made"), err
    assert expected in out + err


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("", "kept"), (":no_exec", "kept"), (":create", "exists"), (":exec", "not running")],
)
def test_a_name_that_an_idle_container_has(
    rig: Rig, name: str, image: str, mode: str, expected: str
) -> None:
    made = step(rig, image, f"--container-name={name}", "--container-writable",
                "sh", "-c", "echo kept > /kept")  # fmt: skip
    assert made[0] == 0, made
    # The image that is given too is not unpacked again.
    status, out, err = step(rig, image, f"--container-name={name}{mode}", "cat", "/kept")
    assert (status == 0) == (expected == "kept"), err
    assert expected in out + err


def test_a_container_of_an_earlier_job_is_announced(rig: Rig, name: str, image: str) -> None:
    flag = f"--container-name={name}"
    _, job, first = step(rig, image, flag, "sh", "-c", "echo $SLURM_JOB_ID")
    assert "is one of job" not in first
    status, out, err = step(rig, image, flag, "cat", "/etc/mark")
    assert (status, out) == (0, "image"), err
    assert f"pyxis: container {name} on node1 is one of job {job}" in err
    assert "--container-image is not unpacked again" in err
    script = f"pyxis-srun {flag} true"
    again = rig.run("salloc", "-Q", "-w", "node1", "-n1", "sh", "-c", f"{script}; {script}")
    assert again.stderr.count("is one of job") == 2  # by both steps: it still is the first job's


@pytest.mark.parametrize(
    ("mode", "expected"), [("", "joined"), (":exec", "joined"), (":no_exec", "apart")]
)
def test_a_name_that_a_running_container_has(
    rig: Rig, name: str, image: str, mode: str, expected: str
) -> None:
    flag = f"--container-name={name}"
    ready = rig.shared / f"ready-{name}"
    mount = f"--container-mounts={rig.shared}:/shared"
    script = (
        f"readlink /proc/self/ns/mnt > /shared/{ready.name}.new;"
        f" mv /shared/{ready.name}.new /shared/{ready.name}; sleep 300"
    )
    with rig.popen(*SRUN, image, flag, mount, "sh", "-c", script) as first:
        try:
            wait_for(ready)
            status, out, err = step(rig, f"{flag}{mode}", "readlink", "/proc/self/ns/mnt")
            assert status == 0, err
            assert (out == ready.read_text().strip()) == (expected == "joined")
            refused = step(rig, image, f"{flag}:create", "true")
            assert refused[0] != 0 and "exists" in refused[2]
        finally:
            first.terminate()
            first.communicate()


def test_mounts_are_ignored_when_a_running_container_is_joined(
    rig: Rig, name: str, image: str
) -> None:
    flag = f"--container-name={name}"
    ready = rig.shared / f"ready-{name}"
    mount = f"--container-mounts={rig.shared}:/shared"
    script = f"touch /shared/{ready.name}; sleep 300"
    with rig.popen(*SRUN, image, flag, mount, "sh", "-c", script) as first:
        try:
            wait_for(ready)
            status, out, err = step(
                rig, flag, "--container-mounts=/usr:/late", "sh", "-c", "test -e /late || echo no"
            )
            assert (status, out) == (0, "no")
            assert "--container-mounts is ignored" in err
            lacking = step(rig, flag, "--container-unshare=ipc", "true")
            assert lacking[0] != 0 and "no ipc namespace of its own" in lacking[2]
        finally:
            first.terminate()
            first.communicate()


def test_a_saved_container_is_an_image(rig: Rig, image: str) -> None:
    saved = rig.shared / "saved.sqsh"
    save = step(rig, image, f"--container-save={saved}", "--container-writable",
                "sh", "-c", "echo new > /new; exit 3")  # fmt: skip
    assert save[0] == 3
    assert f"to {saved}" in save[2]
    assert step(rig, f"--container-image={saved}", "cat", "/new")[1] == "new"
    again = step(rig, f"--container-image={saved}", "--container-save=./saved.sqsh",
                 "--container-writable", "sh", "-c", "echo more > /more")  # fmt: skip
    assert again[0] == 0
    assert step(rig, f"--container-image={saved}", "cat", "/new", "/more")[1] == "new\nmore"
    assert rig.remains() == []


def test_the_last_of_several_tasks_saves(rig: Rig, image: str) -> None:
    saved = rig.shared / "saved-by-last.sqsh"
    status, _, err = step(
        rig, "-n4", image, f"--container-save={saved}", "--container-writable",
        "sh", "-c", "sleep 0.$SLURM_PROCID; touch /from-$SLURM_PROCID",
    )  # fmt: skip
    assert (status, err.count("saved container")) == (0, 1)
    listed = step(rig, f"--container-image={saved}", "ls", "/")[1].split()
    assert {f"from-{number}" for number in range(4)} <= set(listed)
    assert rig.remains() == []


def test_one_container_a_node_for_sixteen_tasks(rig: Rig, image: str) -> None:
    script = "echo $SLURMD_NODENAME $(readlink /proc/self/ns/mnt) $(readlink /proc/self/ns/user)"
    mount = f"--container-mounts={rig.folder('met')}:/met"
    done = rig.run("pyxis-srun", "-N4", "-n16", "--ntasks-per-node=4", image, mount, "sh", "-c",
                   f"{script}; {meet('/met', 16)}")  # fmt: skip
    lines = done.stdout.splitlines()
    assert len(lines) == 16, done.stderr
    assert len(set(lines)) == 4
    assert len({line.split()[1] for line in lines}) == 4


def test_one_container_for_sixty_four_tasks_of_a_node(rig: Rig, image: str) -> None:
    script = "echo $SLURM_LOCALID $(readlink /proc/self/ns/mnt) $(readlink /proc/self/ns/user)"
    status, out, err = step(rig, "-n64", "-O", image, "sh", "-c", script)
    lines = [line.split() for line in out.splitlines()]
    assert status == 0, err
    assert sorted(int(number) for number, _, _ in lines) == list(range(64)), err
    assert len({(mounts, user) for _, mounts, user in lines}) == 1
    assert rig.remains() == []


def test_the_flags_stand_anywhere(rig: Rig, image: str) -> None:
    done = rig.run("pyxis-srun", image, "-w", "node1", "--container-workdir", "/opt", "-n", "2",
                   "-l", "--container-readonly", "pwd")  # fmt: skip
    assert sorted(done.stdout.splitlines()) == ["0: /opt", "1: /opt"], done.stderr


def test_standard_input_reaches_the_task(rig: Rig, image: str) -> None:
    done = rig.run("pyxis-srun", image, "cat", stdin="typed\n")
    assert done.stdout == "typed\n"


def test_a_terminal_for_the_task(rig: Rig, image: str) -> None:
    flags = f"-w node1 --pty {image}"
    line = f"pyxis-srun {flags} sh -c 'test -t 0 && test -t 1 && echo a terminal; exit 6'"
    done = rig.run("script", "-qec", line, "/dev/null", TERM="dumb")
    assert "a terminal" in done.stdout, done
    assert done.returncode == 6


@pytest.mark.parametrize("flags", [(), ("--container-writable", "--container-save=./signal.sqsh")])
def test_signals_reach_the_task_and_the_container_stays(
    rig: Rig, image: str, flags: tuple[str, ...]
) -> None:
    ready = rig.shared / "traps"
    ready.unlink(missing_ok=True)
    script = "trap 'cat /etc/mark; exit 5' USR1; touch /shared/traps; while :; do sleep 0.1; done"
    mount = f"--container-mounts={rig.shared}:/shared"
    words = (*SRUN, "-J", "traps", image, mount, *flags, "sh", "-c", script)
    with rig.popen(*words) as process:
        wait_for(ready)
        rig.run("scancel", "--signal=USR1", "--name", "traps")
        out, err = process.communicate(timeout=60)
    assert (out, process.returncode) == ("image\n", 5), err
    assert ("saved container" in err) == bool(flags)
    assert rig.remains() == []


@pytest.mark.soak
@pytest.mark.parametrize("flags", [(), ("--container-writable", "--container-save=./late.sqsh")])
def test_a_step_whose_time_is_over_leaves_nothing(
    rig: Rig, image: str, flags: tuple[str, ...]
) -> None:
    """Slurm looks at the clock now and then only."""
    words = ("pyxis-srun", "-w", "node2", "--time=0:01", image, *flags, "sleep", "600")
    done = rig.run(*words, timeout=200)
    assert done.returncode != 0
    assert "TIME LIMIT" in done.stderr
    assert rig.remains() == []


def test_several_programs_in_one_step(rig: Rig, image: str) -> None:
    (rig.shared / "programs.conf").write_text("0 echo first %t\n1-2 cat /etc/mark\n")
    done = rig.run(*SRUN, "-n3", "-l", image, "--multi-prog", "programs.conf")
    assert sorted(done.stdout.splitlines()) == ["0: first 0", "1: image", "2: image"], done.stderr


def test_steps_of_one_allocation(rig: Rig, image: str) -> None:
    """Each waits for the other, so they have to run at the same time."""
    step = f"pyxis-srun -n1 --overlap {image} --container-mounts={rig.folder('overlap')}:/shared"
    meet = "touch /shared/$0; until test -e /shared/$1; do sleep 0.1; done; cat /etc/mark"
    script = f"{step} timeout 30 sh -c '{meet}' a b & {step} timeout 30 sh -c '{meet}' b a; wait"
    done = rig.run("salloc", "-Q", "-w", "node1", "-n2", "sh", "-c", script)
    assert done.stdout.split() == ["image", "image"], done.stderr


@pytest.mark.parametrize("way", ["in the script", "on the command line", "variable", "wrap"])
def test_a_batch_script_runs_in_the_image(rig: Rig, image: str, way: str) -> None:
    log = rig.shared / f"batch-{way.replace(' ', '-')}.out"
    body = 'cat /etc/mark; echo args $1; test -r "$0" && echo readable; echo $SLURM_JOB_NAME'
    in_script = f"#SBATCH {image} -J inner --container-workdir=/opt\n"
    script = rig.shared / "job.sh"
    script.write_text(f"#!/bin/sh\n{in_script if way == 'in the script' else ''}{body}\npwd\n")
    # Beside it is what a busy machine may have to say of its own.
    words = ["--parsable", f"--output={log}", f"--error={log}.err", "-w", "node1"]
    environ = {}
    if way == "variable":
        environ = {"PYXIS_CONTAINER_IMAGE": image.partition("=")[2]}
    elif way != "in the script":
        words.append(image)
    last = [f"--wrap={body}; pwd"] if way == "wrap" else [str(script), "one"]
    done = rig.run("pyxis-sbatch", *words, *last, **environ)
    assert done.returncode == 0, done.stderr
    assert rig.wait_for_job(done.stdout.strip()) == "COMPLETED", log.read_text()
    lines = log.read_text().splitlines()
    given = "args" if way == "wrap" else "args one"
    named = {"in the script": "inner", "wrap": "wrap"}.get(way, "job.sh")
    folder = "/opt" if way == "in the script" else "/srv"
    assert lines == ["image", given.strip(), "readable", named, folder]


def test_a_batch_script_without_container_flags_is_submitted_as_it_is(rig: Rig) -> None:
    log = rig.shared / "plain.out"
    script = rig.shared / "plain.sh"
    script.write_text("#!/bin/sh\ntest -e /etc/debian_version && echo host\n")
    done = rig.run("pyxis-sbatch", "--parsable", f"--output={log}", str(script))
    assert rig.wait_for_job(done.stdout.strip()) == "COMPLETED", done.stderr
    assert log.read_text() == "host\n"


@pytest.mark.parametrize(
    ("first", "second", "marks"),
    [
        (("--het-group=0", "{image}"), ("--het-group=1", "{other}"), ["image", "other"]),
        (("--het-group=1", "{image}"), ("--het-group=0", "{other}"), ["other", "image"]),
        (("{image}", "--export=NONE"), ("{other}", "--export=NONE"), ["image", "other"]),
        (("{image}",), (), ["image", "host"]),
        ((), ("{image}",), ["host", "image"]),
    ],
)
def test_components_of_a_step_have_images_of_their_own(
    rig: Rig, image: str, first: tuple[str, ...], second: tuple[str, ...], marks: list[str]
) -> None:
    other = f"--container-image={make_image(rig.shared / 'other.sqsh', mark='other')}"
    mark = ("/bin/sh", "-c", "cat /etc/mark 2> /dev/null || echo host")
    flags = [[word.format(image=image, other=other) for word in words] for words in (first, second)]
    done = rig.run(
        "salloc", "-Q", "-w", "node1", "-n1", ":", "-w", "node2", "-n1",
        "pyxis-srun", "-l", *flags[0], *mark, ":", *flags[1], *mark,
    )  # fmt: skip
    assert sorted(done.stdout.splitlines()) == [f"0: {marks[0]}", f"1: {marks[1]}"], done.stderr


def test_components_of_a_step_that_srun_allocates_for(rig: Rig, image: str) -> None:
    other = f"--container-image={make_image(rig.shared / 'other.sqsh', mark='other')}"
    cat = ("cat", "/etc/mark")
    done = rig.run("pyxis-srun", "-l", "-w", "node1", image, *cat, ":", "-w", "node2", other, *cat)
    assert sorted(done.stdout.splitlines()) == ["0: image", "1: other"], done.stderr
    rig.wait_until_idle()
    assert rig.remains() == []


def test_an_array_runs_from_one_image_and_leaves_nothing(rig: Rig, image: str) -> None:
    log, errors = rig.folder("array"), rig.folder("array-errors")
    script = rig.shared / "array.sh"
    script.write_text(
        f"#!/bin/sh\n#SBATCH {image} -n1\necho $SLURM_ARRAY_TASK_ID $(cat /etc/mark)\n"
    )
    done = rig.run("pyxis-sbatch", "--parsable", "--array=1-24", f"--output={log}/%a",
                   f"--error={errors}/%a", str(script))  # fmt: skip
    assert rig.wait_for_job(done.stdout.strip(), timeout=180) == "COMPLETED"
    lines = sorted(path.read_text().strip() for path in log.iterdir())
    assert lines == sorted(f"{number} image" for number in range(1, 25))
    assert rig.remains() == []


@pytest.mark.parametrize("flags", [(), ("--container-writable", "--container-save=./never.sqsh")])
def test_a_cancelled_step_leaves_nothing(rig: Rig, image: str, flags: tuple[str, ...]) -> None:
    ready = rig.shared / f"cancel-{len(flags)}"
    ready.unlink(missing_ok=True)
    mount = f"--container-mounts={rig.shared}:/shared"
    script = f"touch /shared/{ready.name}; sleep 60"
    with rig.popen("pyxis-srun", "-w", "node2", "-J", ready.name, image, mount, *flags,
                   "sh", "-c", script) as process:  # fmt: skip
        wait_for(ready)
        rig.run("scancel", "--name", ready.name)
        process.communicate(timeout=60)
    assert process.returncode != 0, process.returncode
    assert rig.remains() == []


def test_a_container_is_saved_of_a_step_that_is_cancelled(rig: Rig, image: str) -> None:
    """Its tasks had all started: what they have done is complete, only the end is not theirs."""
    folder = rig.folder("cancelled")
    saved = folder / "saved.sqsh"
    mount = f"--container-mounts={folder}:/shared"
    script = (
        "echo kept > /kept-$SLURM_LOCALID; echo $SLURM_JOB_ID > /shared/id-$SLURM_LOCALID;"
        " touch /shared/ready-$SLURM_LOCALID; exec sleep 60"
    )
    with rig.popen("pyxis-srun", "-w", "node2", "-n2", image, mount, "--container-writable",
                   f"--container-save={saved}", "sh", "-c", script) as process:  # fmt: skip
        for number in range(2):
            wait_for(folder / f"ready-{number}")
        rig.run("scancel", (folder / "id-0").read_text().strip())
        _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    wait_for(saved)
    listed = step(rig, f"--container-image={saved}", "cat", "/kept-0", "/kept-1")
    assert listed[1] == "kept\nkept", (listed, err)
    assert rig.remains() == []


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists() or not path.parent.exists():
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.05)
