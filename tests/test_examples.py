"""Every program under examples/ does what it says."""

from __future__ import annotations

import getpass
import os
import pty
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hooks.sandbox import Sandbox
from tests.operations.starting import open_modes, running
from tests.registry.docker_registry import free_port, wait_until_open
from tests.slurm.images import make_image

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.mark.kernel
def test_the_demo_runs_from_end_to_end(tmp_path: Path) -> None:
    """demo.sh, with build_image.py and serve_layout.py, as `make demo` runs it."""
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(
        [EXAMPLES / "demo/demo.sh", tmp_path],
        env={"PATH": path, "HOME": str(tmp_path / "home"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for line in (
        "training with 4 workers as ",  # the image's own command
        "training with 8 workers as root",  # --root and --env
        "from the host",  # --mount
    ):
        assert line in done.stdout
    lines = done.stdout.splitlines()
    assert lines[lines.index("$ enroot start changed.sqsh cat /opt/app/VERSION") + 1] == "3"
    assert not (tmp_path / "work/data/app").exists()
    assert not (tmp_path / "home").exists(), "the demo left its folder"
    assert not servers_in(tmp_path), "the demo left its server running"


def servers_in(folder: Path) -> list[str]:
    """Return the processes that serve a layout below `folder`."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
            if any(word.endswith("serve_layout.py") for word in words):
                found += [pid] if str(folder) in os.readlink(f"/proc/{pid}/cwd") else []
        except OSError:
            continue  # it has ended, or is somebody else's
    return found


Ssh = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    (tmp_path / "inner").mkdir()
    sandbox = Sandbox(tmp_path / "inner")
    yield sandbox
    open_modes(tmp_path)


@pytest.fixture
def ssh(box: Sandbox, tmp_path: Path) -> Iterator[Ssh]:
    """A daemon of this user's, which lets one key into the container "box"; its client."""
    for name in ("host", "key"):
        make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)]
        subprocess.run(make, check=True)
    variables = [f"{name}={value}" for name, value in box.environ.items() if name != "PATH"]
    variables.append(f"PATH={box.programs}:{box.environ['PATH']}")
    forced = shlex.join(["env", *variables, str(EXAMPLES / "ssh/into-container"), "box"])
    key = (tmp_path / "key.pub").read_text()
    (tmp_path / "keys").write_text(f'command="{forced}" {key}')
    port = free_port()
    (tmp_path / "sshd.conf").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path / 'host'}\nPidFile none\n"
        f"AuthorizedKeysFile {tmp_path / 'keys'}\nStrictModes no\nUsePAM no\n"
        "Subsystem sftp internal-sftp\n"
    )
    daemon = subprocess.Popen(
        ["/usr/sbin/sshd", "-D", "-e", "-f", str(tmp_path / "sshd.conf")],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    options = ["-F", "none", "-i", str(tmp_path / "key"), "-p", str(port), "-o", "BatchMode=yes"]
    options += ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-q"]

    def call(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["ssh", *options, "-l", getpass.getuser(), *words],
            input=stdin, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip

    try:
        wait_until_open(port, daemon)
        yield call
    finally:
        daemon.terminate()
        daemon.wait(60)


@pytest.mark.kernel
def test_an_ssh_session_lands_in_a_running_container(box: Sandbox, ssh: Ssh) -> None:
    """What an IDE does: a command, a script for a shell, a terminal, a forwarded port."""
    (box.rootfs / "mark").write_text("inside\n")
    host = "127.0.0.1"
    with running(box, "--rw", "-e", "OF=container", "box", "sh", "-c", "echo ready; read word"):
        done = ssh(host, "cat /mark; echo $OF; exit 7")
        assert (done.returncode, done.stdout) == (7, "inside\ncontainer\n"), done.stderr
        done = ssh("-T", host, "sh", stdin="cat /mark\necho more > /mark\n")
        assert (done.returncode, done.stdout) == (0, "inside\n"), done.stderr
        assert (box.rootfs / "mark").read_text() == "more\n"
        done = ssh("-T", host, stdin="cat /mark\n")
        assert (done.returncode, done.stdout) == (0, "more\n"), done.stderr
        # A daemon that is not root's has no terminals to give everywhere.
        assert on_a_terminal(box, "test -t 0 && test -t 1 && cat /mark") == "more"
        with socket.create_server(("127.0.0.1", 0)) as server:
            thread = threading.Thread(target=_answer, args=(server,))
            thread.start()
            done = ssh("-W", f"127.0.0.1:{server.getsockname()[1]}", host)
            thread.join(30)
        assert done.stdout == "answer"
    done = ssh(host, "cat /mark")
    assert done.returncode != 0
    assert "box" in done.stderr


def on_a_terminal(box: Sandbox, command: str) -> str:
    """Run what a session with a terminal asks for, as the daemon would; return what it shows."""
    master, slave = pty.openpty()
    with os.fdopen(slave, "r+b", buffering=0) as terminal, os.fdopen(master, "rb") as screen:
        path = f"{box.programs}:{box.environ['PATH']}"
        done = subprocess.run(
            [EXAMPLES / "ssh/into-container", "box"],
            env={**box.environ, "PATH": path, "SSH_ORIGINAL_COMMAND": command},
            stdin=terminal, stdout=terminal, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return screen.readline().decode().strip()


def _answer(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.sendall(b"answer")


class Machine:
    """An image, and folders that no other test has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.image = make_image(folder / "image.sqsh")
        self.environ = {
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder / "run"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        (folder / "run").mkdir(mode=0o700)

    def call(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, env={**self.environ, **environ}, cwd=self.folder, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=200,
        )  # fmt: skip

    def mpirun(self, ranks: int, *words: str) -> subprocess.CompletedProcess[str]:
        """Run Open MPI's example with ranks on this machine alone, whatever networks it has."""
        with tempfile.TemporaryDirectory(prefix="mpi", dir="/tmp") as folder:  # a short path
            done = self.call(
                "mpirun", "-n", str(ranks), str(EXAMPLES / "mpirun_launch.py"), *words,
                TMPDIR=folder, OMPI_MCA_plm="isolated", OMPI_MCA_oob_tcp_if_include="lo",
                OMPI_MCA_btl="self,vader", OMPI_MCA_rmaps_base_oversubscribe="1",
                OMPI_MCA_hwloc_base_binding_policy="none",
            )  # fmt: skip
            assert os.listdir(folder) == []
        return done

    def left(self) -> list[str]:
        """What steps have left behind."""
        found = [*self.folder.glob("run/pyxis/[0-9]*"), *self.folder.glob(".local/share/enroot/*")]
        return [str(path) for path in found]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    yield machine
    assert machine.left() == []


@pytest.mark.kernel
@pytest.mark.parametrize("words", [(), ("./image.sqsh",), ("./image.sqsh", "2")])
@pytest.mark.parametrize(
    "name", ["hooks_launch", "mpirun_launch", "submitit_launch", "submitit_srun"]
)
def test_an_example_that_is_called_wrongly_says_how(
    machine: Machine, name: str, words: tuple[str, ...]
) -> None:
    if (name, len(words)) == ("submitit_srun", 2):
        words = ()
    done = machine.call(sys.executable, str(EXAMPLES / f"{name}.py"), *words)
    assert done.returncode == 1
    assert f"examples/{name}.py" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("image", "status", "said"),
    [("./image.sqsh", 0, ""), ("image.sqsh", 1, "./image.sqsh is the file")],
)
def test_an_image_counts_from_where_the_example_was_called(
    machine: Machine, image: str, status: int, said: str
) -> None:
    words = (str(EXAMPLES / "hooks_launch.py"), image, "2", "cat", "/etc/mark")
    done = machine.call(sys.executable, *words)
    assert (done.returncode, done.stdout) == (status, "" if status else "image\n" * 2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.kernel
def test_mpirun_starts_ranks_in_one_container(machine: Machine) -> None:
    script = "echo $OMPI_COMM_WORLD_RANK/$PMIX_RANK $(cat /etc/mark) $(readlink /proc/self/ns/mnt)"
    done = machine.mpirun(3, f"--container-image={machine.image}", "--", "sh", "-c", script)
    lines = [line.split() for line in sorted(done.stdout.splitlines())]
    assert (done.returncode, len(lines)) == (0, 3), done.stderr
    assert [line[:2] for line in lines] == [[f"{rank}/{rank}", "image"] for rank in range(3)]
    namespaces = {line[2] for line in lines}
    assert len(namespaces) == 1
    assert namespaces != {os.readlink("/proc/self/ns/mnt")}


@pytest.mark.kernel
def test_nothing_of_python_is_left_in_mpiruns_ranks(machine: Machine) -> None:
    """Signals that it ignores, and the locale that it sets."""
    script = "echo $(grep SigIgn /proc/self/status) ${LC_CTYPE-none} $(ls /proc/$$/fd)"
    bare = machine.call("sh", "-c", f"exec mpirun -n 1 sh -c '{script}'", OMPI_MCA_plm="isolated")
    done = machine.mpirun(1, f"--container-image={machine.image}", "--", "sh", "-c", script)
    assert done.stdout == bare.stdout != "", done.stderr + bare.stderr


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("rank", "end", "status"), [(0, "exit 6", 6), (2, "exit 7", 7), (1, "kill -9 $$", 137)]
)
def test_a_rank_that_fails_ends_mpirun(machine: Machine, rank: int, end: str, status: int) -> None:
    script = f"[ $PMIX_RANK = {rank} ] && {end}; exec sleep 50"
    done = machine.mpirun(3, f"--container-image={machine.image}", "--", "sh", "-c", script)
    assert done.returncode == status, done.stderr


@pytest.mark.kernel
def test_mpirun_says_why_there_is_no_container(machine: Machine) -> None:
    done = machine.mpirun(2, "--container-image=/nosuch.sqsh", "--", "true")
    assert done.returncode == 1
    assert "no such file on this node: /nosuch.sqsh" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.kernel
def test_a_container_is_saved_when_mpiruns_ranks_have_ended(machine: Machine) -> None:
    """The process that drives the hooks ends after the ranks, and mpirun after that."""
    saved = machine.folder / "saved.sqsh"
    flags = [f"--container-image={machine.image}", f"--container-save={saved}"]
    done = machine.mpirun(
        2, *flags, "--container-writable", "--", "sh", "-c", "echo $PMIX_RANK > /by-$PMIX_RANK"
    )
    assert done.returncode == 0, done.stderr
    flag = f"--container-image={saved}"
    assert machine.call("pyxis", "run", flag, "cat", "/by-0", "/by-1").stdout == "0\n1\n"


@pytest.mark.kernel
def test_ranks_of_mpirun_compute_together(machine: Machine) -> None:
    """MPI itself: messages, and memory that ranks read of each other. Its libraries are mounted."""
    source = Path(__file__).parent / "slurm/ring.c"
    built = machine.call("mpicc", "-O1", "-o", "ring", str(source))
    assert built.returncode == 0, built.stderr
    mounts = [f"{path}:{path}" for path in ("/usr", "/lib", "/lib64", "/etc/alternatives")]
    flag = f"--container-mounts={','.join([*mounts, f'{machine.folder}:/mnt'])}"
    done = machine.mpirun(4, f"--container-image={machine.image}", flag, "--", "/mnt/ring")
    tokens = (4, 2, 3, 4)
    expected = [f"{rank} of 4: 6 {tokens[rank]} {1000 + (rank ^ 1)}" for rank in range(4)]
    assert sorted(done.stdout.splitlines()) == expected, done.stderr
    assert "PMIX ERROR" not in done.stderr


LOCALLY = """
import submitit, sys
from submitit_launch import InContainer
folder, image, number, *mounts = sys.argv[1:]
function = lambda number: [8 // number, open("/etc/mark").read()]
flags = [f"--container-image={image}", "--container-mounts=" + ",".join([folder, *mounts])]
executor = submitit.LocalExecutor(folder=folder)
print(executor.submit(InContainer(function, flags, processes=2), int(number)).result())
"""


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("number", "status", "output", "error"),
    [
        ("2", 0, "[[4, 'image\\n'], [4, 'image\\n']]\n", ""),
        ("0", 1, "", "the processes on node 0 ended with [1, 1]"),
    ],
)
def test_functions_of_submitit_run_in_a_container(
    machine: Machine, tmp_path: Path, number: str, status: int, output: str, error: str
) -> None:
    """Without Slurm; see tests/slurm/test_examples.py."""
    mounts = [f"{path}:{path}" for path in ("/usr", "/lib", "/lib64", sys.prefix)]
    done = machine.call(
        sys.executable, "-c", LOCALLY, str(tmp_path), str(machine.image), number, *mounts,
        PYTHONPATH=str(EXAMPLES),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (status, output), done.stderr
    assert error in done.stderr
