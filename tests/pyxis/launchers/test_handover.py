"""Tasks go to processes that are no children of the one with the hooks."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from enroot_py import EnrootError
from pyxis_py import become_task, pass_task

BECOME = """
import os, socket, sys
from enroot_py import EnrootError
from pyxis_py import become_task
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    try:
        become_task(connection, sys.argv[2:])
    except EnrootError as error:
        sys.exit(f"{type(error).__name__}: {error}")
"""


class Meeting:
    """A process that wants to become a task, and the connection to it."""

    def __init__(self, folder: Path, *command: str) -> None:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / "place"))
            listener.listen()
            listener.settimeout(60)
            self.process = subprocess.Popen(
                [sys.executable, "-c", BECOME, str(folder / "place"), *command],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True, errors="surrogateescape",
            )  # fmt: skip
            self.connection, _ = listener.accept()

    def end(self) -> tuple[int, str, str]:
        """Wait for it; return its status and what it printed."""
        self.connection.close()
        output, errors = self.process.communicate(timeout=60)
        return self.process.returncode, output, errors


@pytest.fixture
def pipes() -> Iterator[list[int]]:
    """Descriptors to pass: the reading ends of pipes that hold "0", "1", …"""
    reading = []
    for number in range(3):
        reader, writer = os.pipe()
        os.write(writer, str(number).encode())
        os.close(writer)
        reading.append(reader)
    yield reading
    for fd in reading:
        os.close(fd)


# Numbers that the process has for other things when they come, such as others of the same.
@pytest.mark.parametrize("numbers", [(3, 4, 5), (5, 4, 3), (6, 7, 5), (10, 11, 9), (40, 3, 99)])
def test_a_task_has_its_descriptors_under_their_numbers(
    tmp_path: Path, pipes: list[int], monkeypatch: pytest.MonkeyPatch, numbers: tuple[int, ...]
) -> None:
    meeting = Meeting(
        tmp_path, "echo $$; for fd in $*; do cat <&$fd; done", "sh", *map(str, numbers)
    )
    send_fds = socket.send_fds

    def send(line: socket.socket, data: list[bytes], fds: list[int]) -> int:
        """The first goes as it is: it may happen to have one of these numbers here."""
        assert fds[1:] == list(numbers)
        return send_fds(line, data, [fds[0], *pipes])

    monkeypatch.setattr(socket, "send_fds", send)
    ended_fd = pass_task(meeting.connection, ["bash", "-c"], numbers)
    status, output, errors = meeting.end()
    assert (status, output) == (0, f"{meeting.process.pid}\n012"), errors
    assert select.select([ended_fd], [], [], 60)[0] == [ended_fd]
    os.close(ended_fd)


def test_the_end_of_a_task_is_seen(tmp_path: Path) -> None:
    meeting = Meeting(tmp_path, "sh", "-c", "echo ready; exec sleep 60")
    ended_fd = pass_task(meeting.connection, [], ())
    assert meeting.process.stdout is not None
    assert meeting.process.stdout.readline() == "ready\n"
    assert select.select([ended_fd], [], [], 0)[0] == []
    meeting.process.kill()
    assert select.select([ended_fd], [], [], 60)[0] == [ended_fd]
    os.close(ended_fd)
    meeting.end()


def test_words_and_arguments_of_any_kind(tmp_path: Path) -> None:
    odd = ["", "a b", "ü", "x" * 100_000]
    code = "import os, sys; os.write(1, b'|'.join(map(os.fsencode, sys.argv[1:])))"
    meeting = Meeting(tmp_path, *odd)
    os.close(pass_task(meeting.connection, [sys.executable, "-c", code, "\udcff"], ()))
    expected = b"|".join(map(os.fsencode, ["\udcff", *odd]))
    status, output, errors = meeting.end()
    assert (status, output.encode(errors="surrogateescape")) == (0, expected), errors


def test_no_task_comes(tmp_path: Path) -> None:
    status, _, errors = Meeting(tmp_path, "true").end()
    assert status == 1
    assert "No task came" in errors


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    meeting = Meeting(tmp_path, "/nosuch")
    os.close(pass_task(meeting.connection, [], ()))
    status, _, errors = meeting.end()
    assert status == 1
    assert "CommandError: Cannot execute /nosuch" in errors


def test_a_process_that_has_ended(tmp_path: Path) -> None:
    meeting = Meeting(tmp_path, "true")
    meeting.process.kill()
    meeting.process.communicate(timeout=60)
    with pytest.raises(EnrootError, match="ended before it joined"):
        pass_task(meeting.connection, [], ())
    meeting.connection.close()


def test_another_users_process_gets_and_gives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    with ours, theirs:
        with pytest.raises(EnrootError, match="another user"):
            pass_task(ours, ["true"], ())
        with pytest.raises(EnrootError, match="another user"):
            become_task(theirs, ["true"])


def test_a_task_ignores_no_signals_because_python_did(tmp_path: Path) -> None:
    meeting = Meeting(tmp_path, "SigIgn", "/proc/self/status")
    os.close(pass_task(meeting.connection, ["grep"], ()))
    _, output, errors = meeting.end()
    ignored = int(output.split()[1], 16)
    assert not ignored & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1), errors
