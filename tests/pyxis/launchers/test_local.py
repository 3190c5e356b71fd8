"""Steps without Slurm: `pyxis run`, the hooks as an object, and `launch`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.slurm.images import make_image

pytestmark = pytest.mark.kernel

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


class Machine:
    """An image, and folders that no other test has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.image = make_image(folder / "image.sqsh")
        (folder / "run").mkdir(mode=0o700)
        self.environ = {
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder / "run"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip

    def call(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, env={**self.environ, **environ}, cwd=self.folder,
            capture_output=True, text=True, check=False, timeout=200,
        )  # fmt: skip

    def run(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return self.call("pyxis", "run", f"--container-image={self.image}", *words, **environ)

    def left(self) -> list[str]:
        """What steps have left behind."""
        found = [*self.folder.glob("run/pyxis/[0-9]*"), *self.folder.glob(".local/share/enroot/*")]
        return [str(path) for path in found]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    yield machine
    assert machine.left() == []


def test_tasks_share_one_container_and_have_ranks(machine: Machine) -> None:
    script = "echo $SLURM_PROCID/$SLURM_NTASKS $(readlink /proc/self/ns/mnt); sleep 0.3"
    done = machine.run("-n", "4", "sh", "-c", script)
    ranks, namespaces = zip(*(line.split() for line in done.stdout.splitlines()), strict=True)
    assert sorted(ranks) == ["0/4", "1/4", "2/4", "3/4"], done.stderr
    assert len(set(namespaces)) == 1
    assert namespaces[0] != os.readlink("/proc/self/ns/mnt")


@pytest.mark.parametrize(
    ("script", "status"), [("exit 5", 5), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
)
def test_a_failure_is_the_steps(machine: Machine, script: str, status: int) -> None:
    assert machine.run("-n", "2", "sh", "-c", script).returncode == status


def test_a_task_that_fails_ends_the_others(machine: Machine) -> None:
    script = "[ $SLURM_PROCID = 0 ] && exit 4; exec sleep 500"
    assert machine.run("-n", "2", "sh", "-c", script).returncode == 4


def test_signals_reach_the_tasks(machine: Machine) -> None:
    words = ["pyxis", "run", f"--container-image={machine.image}", "sh", "-c"]
    script = "trap 'echo caught; exit 9' USR1; echo ready; while :; do sleep 0.1; done"
    with subprocess.Popen(
        [*words, script], env=machine.environ, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.read() == "caught\n"
    assert process.returncode == 9


SIGNALLED = """
import os, signal, sys, time
from pyxis_py.launchers import local

start = local._start

def start_slowly(*given, **more):
    process = start(*given, **more)
    while not os.path.exists("trapped"):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGUSR1)
    return process

local._start = start_slowly
script = "trap 'exit 9' USR1; : > trapped; while :; do sleep 0.05; done"
sys.exit(local.run_local(["sh", "-c", script], []))
"""


def test_signals_that_come_while_tasks_are_started_reach_them_too(machine: Machine) -> None:
    assert machine.call(sys.executable, "-c", SIGNALLED).returncode == 9


UNJOINED = """
import os, sys, pyxis_py
job = pyxis_py.JobFacts(os.getuid(), os.getgid(), os.getpid(), 0, 2, 2, os.getcwd())
with pyxis_py.StepHooks() as hooks:
    hooks.post_opt(pyxis_py.read_flags(sys.argv[1:]), os.environ)
    hooks.user_init(job)
    for _ in range(2):
        hooks.task_init(["true"])
    print(*hooks.task_exit(), *hooks.task_exit(), sep="\\n")
"""


def test_tasks_that_were_killed_before_they_joined_leave_no_container(machine: Machine) -> None:
    flags = (f"--container-image={machine.image}", "--container-save=unjoined.sqsh")
    done = machine.call(sys.executable, "-c", UNJOINED, *flags)
    assert done.returncode == 0, done.stderr
    assert "saved container" in done.stdout
    assert "in use" not in done.stdout
    assert machine.left() == []


SLOW = "#!/bin/sh\ntouch '{mark}'\nexec sleep 1234567.{pid}\n"


@pytest.mark.parametrize("flags", [(), ("--container-save=never.sqsh",)])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_the_container_starts_leaves_nothing(
    machine: Machine, tmp_path: Path, number: int, flags: tuple[str, ...]
) -> None:
    """As a terminal sends it, to the whole group; a hook takes its time."""
    mark = tmp_path / "started"
    hook = tmp_path / "enroot/hooks.d/50-slow.sh"
    hook.parent.mkdir(parents=True)
    hook.write_text(SLOW.format(mark=mark, pid=os.getpid()))
    hook.chmod(0o755)
    words = ["pyxis", "run", f"--container-image={machine.image}", *flags, "true"]
    before = stopped_processes()
    with subprocess.Popen(
        words, env={**machine.environ, "XDG_CONFIG_HOME": str(tmp_path)}, cwd=machine.folder,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        wait_for(mark.exists)
        os.killpg(process.pid, number)
        assert process.communicate()[1] == ""
    assert process.returncode == 128 + number
    assert machine.left() == []
    wait_for(lambda: stopped_processes() <= before)
    wait_for(lambda: not any(f"1234567.{os.getpid()}" in words for words in command_lines()))


def test_a_signal_that_is_ignored_stays_so(machine: Machine) -> None:
    """nohup's, for one."""
    words = ["pyxis", "run", f"--container-image={machine.image}", "grep", "SigIgn"]
    done = machine.call("sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *words, "/proc/self/status")
    assert int(done.stdout.split()[1], 16) & 1, done.stderr


def test_threads_of_a_program_launch_too(machine: Machine) -> None:
    call = f"pyxis_py.launch(['false'], image={str(machine.image)!r}, launcher='local')"
    script = (
        "import concurrent.futures, pyxis_py, sys\n"
        "with concurrent.futures.ThreadPoolExecutor() as pool:\n"
        f"    sys.exit(pool.submit(lambda: {call}).result())"
    )
    done = machine.call(sys.executable, "-c", script)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_folder_that_was_removed_is_no_obstacle(machine: Machine) -> None:
    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    words = ["pyxis", "run", f"--container-image={machine.image}", "cat", "/etc/mark"]
    done = machine.call("sh", "-c", script, "sh", *words)
    assert (done.returncode, done.stdout) == (0, "image\n"), done.stderr
    words[2] = "--container-image=./image.sqsh"
    done = machine.call("sh", "-c", script, "sh", *words)
    assert done.returncode == 1
    assert "the job's working directory is not known" in done.stderr


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def command_lines() -> list[str]:
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.append(Path(f"/proc/{process}/cmdline").read_text(errors="replace"))
        except OSError:
            continue  # it has ended
    return found


def test_saving_and_starting_from_what_was_saved(machine: Machine) -> None:
    saved = machine.folder / "saved.sqsh"
    flags = (f"--container-save={saved}", "--container-writable")
    done = machine.run("-n", "2", *flags, "sh", "-c", "echo $SLURM_PROCID > /by-$SLURM_PROCID")
    assert done.stderr.count("saved container") == 1
    again = machine.call("pyxis", "run", f"--container-image={saved}", "cat", "/by-0", "/by-1")
    assert again.stdout == "0\n1\n"


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("none/x.sqsh", "{folder}/none is not there yet; it has to be when the step ends"),
        ("/usr/x.sqsh", "/usr cannot be written to yet; it has to be when the step ends"),
    ],
)
def test_what_cannot_be_saved_is_told_of_before_hours_pass(
    machine: Machine, place: str, said: str
) -> None:
    done = machine.run(f"--container-save={place}", "sh", "-c", "echo now >&2")
    before, _, after = done.stderr.partition("now\n")
    assert f"pyxis: --container-save: {said.format(folder=machine.folder)}\n" == before
    assert "cannot save container" in after
    assert "--output" not in after and "--force" not in after
    done = machine.run(f"--container-save={machine.folder}", "echo", "ran")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"--container-save: a folder, not a file: {machine.folder}" in done.stderr


def test_the_users_own_settings_count_where_there_is_no_site(
    machine: Machine, tmp_path: Path
) -> None:
    done = machine.run("--container-name=own", "true", ENROOT_DATA_PATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["pyxis_own"]
    words = ("enroot", "remove", "-f", "pyxis_own")
    assert machine.call(*words, ENROOT_DATA_PATH=str(tmp_path)).returncode == 0


def test_a_folder_is_no_image(machine: Machine) -> None:
    done = machine.call("pyxis", "run", "--container-image=.", "true")
    assert f"--container-image: a folder, not a file: {machine.folder}\n" in done.stderr


def test_errors_say_what_and_what_to_do(machine: Machine) -> None:
    done = machine.call("pyxis", "run", "--container-image=/nosuch.sqsh", "true")
    assert done.returncode == 1
    assert "/nosuch.sqsh" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_step_that_fails_once_its_container_has_started_leaves_no_process(
    machine: Machine,
) -> None:
    """The variable may be the image's: whether anything has it is known only then."""
    before = stopped_processes()
    (machine.folder / "job.toml").write_text('[env]\nA = "${NOWHERE}"\n')
    done = machine.run("--environment=./job.toml", "true")
    assert done.returncode != 0
    assert "env.A: the variable NOWHERE is not set" in done.stderr
    deadline = time.monotonic() + 100
    while not stopped_processes() <= before:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def stopped_processes() -> set[str]:
    """First processes of containers, of this user."""
    found = set()
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{process}/cmdline").read_bytes()
            if words == b"/proc/self/fd/3\0" and os.stat(f"/proc/{process}").st_uid == os.getuid():
                found.add(process)
        except OSError:
            continue  # it has ended
    return found


def test_without_flags_the_command_runs_on_the_host(machine: Machine) -> None:
    done = machine.call("pyxis", "run", "test", "-e", "/etc/debian_version")
    assert done.returncode == 0


def test_an_entrypoint_that_never_runs_its_command_is_explained(machine: Machine) -> None:
    root = machine.folder / "bad"
    words = ["pyxis", "run", f"--container-image={machine.image}", "--container-save=bad.sqsh"]
    script = "printf '#!/bin/sh\\necho deaf\\n' > /entry"
    assert machine.call(*words, "--container-writable", "sh", "-c", script).returncode == 0
    words = ["pyxis", "run", f"--container-image={root}.sqsh", "--container-entrypoint", "true"]
    done = machine.call(*words)
    assert done.returncode == 1
    assert "--no-container-entrypoint" in done.stderr
    assert "deaf" in done.stderr


def test_the_api_runs_locally(machine: Machine) -> None:
    script = (
        "import pyxis_py, sys; sys.exit(pyxis_py.launch(['sh', '-c', 'id -u; pwd; exit 6'],"
        f" image={str(machine.image)!r}, workdir='/opt', remap_root=True, launcher='local'))"
    )
    done = machine.call(sys.executable, "-c", script)
    assert (done.returncode, done.stdout) == (6, "0\n/opt\n")


def test_the_example_that_drives_the_hooks(machine: Machine) -> None:
    example = str(EXAMPLES / "hooks_launch.py")
    done = machine.call(
        sys.executable, example, str(machine.image), "3", "sh", "-c", "echo $RANK of $WORLD"
    )
    assert sorted(done.stdout.splitlines()) == ["0 of 3", "1 of 3", "2 of 3"], done.stderr
