"""The plugin where things go wrong on a node, and what an administrator can set."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from pyxis_py.plugin.build import LIBRARY
from tests.slurm.plugin import plugin_line
from tests.slurm.rig import NODES, Rig

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("plugin")]


def keeper(rig: Rig, body: str) -> str:
    """A setting that puts a script in the interpreter's place."""
    path = rig.shared / "keeper.sh"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return f"python={path}"


def assert_up(rig: Rig) -> None:
    deadline = time.monotonic() + 60
    while rig.run("sinfo", "-h", "-o", "%D %t").stdout.strip() != f"{NODES} idle":
        assert time.monotonic() < deadline, rig.run("sinfo", "-N", "-l").stdout
        time.sleep(0.1)
    assert rig.remains() == []


# Those of srun would come first otherwise: only the nodes' keeper is broken.
_ONLY_START = '[ "$4" = start ] || exec PYTHON "$@"\n'


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("echo disk is full >&2; exit 1", "disk is full"),
        ("kill -KILL $$", "no usable answer"),
        ("head -c 99999 /dev/urandom >&4; printf '\\0' >&5", "no usable answer"),
        ("printf 'status=ok\\0pid=1\\0' >&4; printf '\\0' >&5", "incomplete"),
        (
            "printf 'status=ok\\0pid=1\\0join=user\\0end=\\0' >&4; printf '\\0' >&5",
            "user namespace",
        ),
    ],
)
def test_a_keeper_that_fails_ends_the_step_and_nothing_else(
    rig: Rig, image: str, body: str, said: str
) -> None:
    only = _ONLY_START.replace("PYTHON", str(rig.programs / "python"))
    with rig.plugstack(plugin_line(rig, keeper(rig, only + body))):
        done = rig.run("srun", "-w", "node1", "-n3", image, "true")
    assert done.returncode != 0
    assert said in done.stderr
    if said != "user namespace":  # which every task finds out by itself
        assert "another task of this step could not start the container" in done.stderr
    assert_up(rig)


def test_without_an_interpreter_it_says_so(rig: Rig, image: str) -> None:
    with rig.plugstack(plugin_line(rig, "python=/no/such/python")):
        done = rig.run("srun", image, "true")
    assert done.returncode != 0
    assert "/no/such/python" in done.stderr
    assert_up(rig)


@pytest.mark.parametrize(
    "flags",
    [
        (),  # straight from the image: its server, the keeper and the mounts have no folder
        ("--container-writable", "--container-save=./never.sqsh"),
        ("--container-unshare=ipc", "--container-remap-root"),
    ],
)
def test_a_killed_slurmstepd_leaves_nothing_after_the_job(
    rig: Rig, image: str, flags: tuple[str, ...]
) -> None:
    folder = rig.folder("orphaned")
    mount = f"--container-mounts={folder}:/shared"
    script = (
        "echo $SLURM_JOB_ID > /shared/new-$SLURM_PROCID;"
        " mv /shared/new-$SLURM_PROCID /shared/$SLURM_PROCID; env -i sleep 9"
    )
    with rig.popen("srun", "-w", "node2", "-n4", image, mount, *flags,
                   "sh", "-c", script) as process:  # fmt: skip
        for task in range(4):
            wait_for(folder / str(task))
        job = (folder / "0").read_text().strip()
        for pid in stepds(job):
            os.kill(pid, signal.SIGKILL)
        rig.run("scancel", job)
        process.communicate(timeout=60)
    assert_up(rig)


@pytest.mark.parametrize("victims", ["squashfuse", "pyxis-keeper", "sleep", "squash pyxis sleep"])
def test_whatever_of_a_step_is_killed_leaves_nothing(rig: Rig, image: str, victims: str) -> None:
    """The image's server, the keeper, the tasks, all of them; "slurmstepd" with them at last."""
    with rig.popen("srun", "-w", "node2", "-J", "victims", "-n2", image, "sleep", "60") as process:
        deadline = time.monotonic() + 60
        while not (steps := rig.run("squeue", "-hs", "-n", "victims", "-o", "%i").stdout.split()):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        job = steps[0].partition(".")[0]
        while not is_complete(found := family(job)):
            assert time.monotonic() < deadline, found
            time.sleep(0.1)
        chosen = [
            pid
            for pid, words in found.items()
            if any(victim in words for victim in victims.split())
        ]
        if len(victims.split()) > 1:
            chosen += stepds(job)
        for pid in chosen:
            with suppress(ProcessLookupError):  # it has ended for lack of one before it
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.3)
        rig.run("scancel", job)
        process.communicate(timeout=60)
    assert_up(rig)


def is_complete(found: dict[int, str]) -> bool:
    """Two tasks, the keeper, the image's server, each under the name that it has from then on."""
    names = sorted(words.split()[0].rpartition("/")[2] for words in found.values())
    return names == ["pyxis-keeper", "sleep", "sleep", "squashfuse"]


def family(job: str) -> dict[int, str]:
    """The processes that a job's slurmstepds are the parents of, with their command lines."""
    parents, found = find_stepds(job), {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            data = path.with_name("cmdline").read_bytes()
            words = data.replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if parent in parents and words and not words.startswith("slurmstepd"):
            found[int(path.parent.name)] = words
    return found


def test_the_end_of_a_job_leaves_another_of_the_same_user_alone(rig: Rig, image: str) -> None:
    """pyxis#18, deepops#838."""
    ready = rig.shared / "stays"
    go = rig.shared / "goes"
    script = f"touch {ready}; until test -e {go}; do sleep 0.1; done; cat /etc/mark; pwd"
    mount = f"--container-mounts={rig.shared}:{rig.shared}"
    for flags in ((), ("--container-writable", "--container-save=./stays.sqsh")):
        ready.unlink(missing_ok=True)
        go.unlink(missing_ok=True)
        with rig.popen("srun", "-w", "node2", image, mount, *flags, "sh", "-c", script) as stays:
            try:
                wait_for(ready)
                for more in ((), ("--container-name=gone:create",)):
                    assert rig.run("srun", "-w", "node2", image, *more, "true").returncode == 0
                    rig.run("srun", "-w", "node2", "enroot", "remove", "-f", "pyxis_gone")
                assert stays.poll() is None
            finally:
                go.touch()
                out, err = stays.communicate(timeout=60)
        assert (out, stays.returncode) == ("image\n/srv\n", 0), err
    assert_up(rig)


def test_an_entrypoint_that_never_ends_can_be_cancelled(rig: Rig, image: str) -> None:
    entry = rig.shared / "endless.sh"
    entry.write_text(f"#!/bin/sh\ntouch {rig.shared}/endless\nwhile :; do sleep 1; done\n")
    entry.chmod(0o755)
    mounts = f"--container-mounts={entry}:/entry,{rig.shared}:{rig.shared}"
    words = ("-J", "endless", "-w", "node2", image, mounts, "--container-entrypoint", "true")
    with rig.popen("srun", *words) as process:
        wait_for(rig.shared / "endless")
        rig.run("scancel", "--name", "endless")
        _, err = process.communicate(timeout=60)
    assert process.returncode != 0, err
    assert_up(rig)


def test_folders_that_are_gone_are_made_again(rig: Rig, image: str) -> None:
    """As after the start of a machine whose folders are in memory: pyxis#138."""
    folders = ("pyxis", "data", "cache", "run", "tmp")
    names = [f"{rig.base}/local/{name}-{rig.user.pw_name}" for name in folders]
    names += [f"{rig.base}/local/{name}" for name in folders]
    rig.as_root(3, "rm", "-rf", *names)
    for flags in ((), ("--container-save=./again.sqsh",)):
        done = rig.run("srun", "-w", "node3", image, *flags, "cat", "/etc/mark")
        assert done.stdout == "image\n", done.stderr
    rig.as_root(3, "mkdir", "-m", "1777", f"{rig.base}/local/tmp")
    with rig.plugstack(f"required {rig.base}/{LIBRARY} runtime_path=/proc/nowhere\n"):
        done = rig.run("srun", "-w", "node3", image, "true")
    assert done.returncode != 0
    assert "the step was not prepared on this node: see its slurmd's log" in done.stderr
    assert_up(rig)


def test_a_node_without_the_library_runs_nothing_on_the_host(rig: Rig, image: str) -> None:
    """pyxis#29, pyxis#84."""
    library = f"{rig.base}/{LIBRARY}"
    rig.as_root(3, "mount", "--bind", "/dev/null", library)
    try:
        done = rig.run("srun", "-w", "node3", image, "sh", "-c", "echo on the host")
        # The epilog needs the library as well: Slurm takes the node out of service.
        deadline = time.monotonic() + 60
        while "drain" not in rig.run("sinfo", "-h", "-n", "node3", "-o", "%T").stdout:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        rig.as_root(3, "umount", library)
    environ = {**os.environ, "SLURM_CONF": f"{rig.base}/slurm.conf"}
    words = ["scontrol", "update", "nodename=node3", "state=resume"]
    subprocess.run(words, env=environ, check=True)
    assert "launch failed: Plugin initialization failed" in done.stderr
    assert done.stdout == ""
    assert_up(rig)


def test_named_containers_end_with_their_job_where_the_site_says_so(rig: Rig, image: str) -> None:
    with rig.plugstack(plugin_line(rig, "container_scope=job")):
        script = f"srun --container-name=scoped {image} true && srun --container-name=scoped id -u"
        done = rig.run("salloc", "-Q", "-w", "node3", "-n1", "sh", "-c", script)
        assert done.stdout.strip() == str(rig.user.pw_uid), done.stderr
        assert_up(rig)
        gone = rig.run("srun", "-w", "node3", "--container-name=scoped", "true")
    assert gone.returncode != 0
    assert "no such container" in gone.stderr


def test_named_containers_of_two_jobs_do_not_meet_under_job_scope(rig: Rig, image: str) -> None:
    script = (
        "srun --container-name=mine --container-writable {image}"
        " sh -c 'echo {word} > /word; sleep 2'"
        " && srun --container-name=mine cat /word"
    )
    with rig.plugstack(plugin_line(rig, "container_scope=job")):
        jobs = [
            rig.popen("salloc", "-Q", "-w", "node3", "-n1", "sh", "-c",
                      script.format(image=image, word=word))
            for word in ("first", "second")
        ]  # fmt: skip
        outputs = [job.communicate(timeout=60) for job in jobs]
        assert [out for out, _ in outputs] == ["first\n", "second\n"], outputs
        assert_up(rig)


def test_a_site_can_keep_the_flags_from_sbatch(rig: Rig, image: str) -> None:
    with rig.plugstack(plugin_line(rig, "sbatch_support=no")):
        refused = rig.run("sbatch", image, "--wrap=true")
        done = rig.run("srun", image, "cat", "/etc/mark")
    assert refused.returncode != 0
    assert "unrecognized option" in refused.stderr
    assert done.stdout == "image\n", done.stderr


def test_a_site_can_run_entrypoints_by_default(rig: Rig, image: str) -> None:
    with rig.plugstack(plugin_line(rig, "execute_entrypoint=yes")):
        done = rig.run("srun", image, "pwd")
        without = rig.run("srun", image, "--no-container-entrypoint", "pwd")
    assert (done.stdout, without.stdout) == ("/opt\n", "/srv\n"), done.stderr


def test_a_wrong_setting_is_named(rig: Rig, image: str) -> None:
    with rig.plugstack(plugin_line(rig, "frobnicate=1")):
        done = rig.run("srun", image, "true")
        bare = rig.run("srun", "true")
    assert done.returncode != 0
    assert "frobnicate=1" in done.stderr
    assert bare.returncode == 0, bare.stderr


@pytest.mark.parametrize(("srun", "where"), [("srun", "image"), ("pyxis-srun", "host")])
def test_where_a_task_prolog_runs(rig: Rig, image: str, srun: str, where: str) -> None:
    """Slurm runs it after task_init, where a task has joined: pyxis#83, pyxis#163."""
    prolog = rig.shared / "prolog.sh"
    prolog.write_text(
        "#!/bin/sh\necho print $(cat /etc/mark 2> /dev/null || echo host)\necho export ADDED=yes\n"
    )
    prolog.chmod(0o755)
    mount = f"--container-mounts={prolog}:{prolog}"
    words = (f"--task-prolog={prolog}", image, mount, "sh", "-c", "echo $ADDED $(cat /etc/mark)")
    done = rig.run(srun, *words)
    assert done.stdout == f"{where}\nyes image\n", done.stderr


def test_components_that_a_node_could_not_tell_apart_are_refused(rig: Rig, image: str) -> None:
    """In a job that is not heterogeneous itself they have one job id and one step id."""
    cat = ("cat", "/etc/mark")
    words = ["salloc", "-Q", "-w", "node1,node2", "-n2", "srun", "-l", "-n1", image, *cat, ":"]
    alike = rig.run(*words, "-n1", image, *cat)
    assert sorted(alike.stdout.splitlines()) == ["0: image", "1: image"], alike.stderr
    other = rig.run(*words, "-n1", *cat)
    assert other.returncode != 0
    assert "use pyxis-srun" in other.stderr
    batch = rig.run("sbatch", image, "--wrap=true", ":", "-n1", "--container-image=/other.sqsh")
    assert batch.returncode != 0
    assert "given more than once" in batch.stderr


def test_an_administrator_installs_looks_and_uninstalls(rig: Rig, image: str) -> None:
    def administer(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(rig.programs / "pyxis"), "plugin", *words],
            env={"PATH": os.environ["PATH"], "SLURM_CONF": f"{rig.base}/slurm.conf"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    with rig.plugstack("# the site's\n"):
        none = administer("status")
        assert none.returncode == 1
        assert "has no line of the plugin" in none.stdout
        library = rig.base / LIBRARY
        done = administer("install", "--library", str(library), f"runtime_path={rig.base}/local/p")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "srun shows the flags  yes" in done.stdout
        assert "note:" not in done.stdout  # the slurmds have started with this library
        assert rig.run("srun", image, "cat", "/etc/mark").stdout == "image\n"
        rig.wait_until_idle()  # its epilog needs the line
        other = shutil.copy(library, rig.base / "spank_pyxis_other.so")
        late = administer("install", "--library", str(other))
        assert late.returncode == 0, late.stdout + late.stderr
        assert late.stdout.count("runs without the plugin: restart it") == NODES
        assert administer("uninstall").returncode == 0
        assert (rig.base / "plugstack.conf").read_text() == "# the site's\n"
        assert rig.run("srun", image, "true").returncode != 0


def find_stepds(job: str) -> list[int]:
    """Those that have their names already: a step is listed a moment before."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(f"slurmstepd: [{job}.".encode()):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def stepds(job: str) -> list[int]:
    found = find_stepds(job)
    assert found, job
    return found


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.05)
