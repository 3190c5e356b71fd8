"""Every program under examples/ does what it says."""

from __future__ import annotations

import getpass
import os
import pty
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hooks.sandbox import Sandbox
from tests.operations.starting import open_modes, running
from tests.registry.docker_registry import free_port, wait_until_open

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
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
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
            input=stdin, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip

    try:
        wait_until_open(port)
        yield call
    finally:
        daemon.terminate()
        daemon.wait(30)


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
