"""podman with a storage of its own, by command and by socket, for tests marked `podman`."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Podman:
    """podman whose images and containers lie below one folder.

    Attributes:
        command: the program with the options that every call needs.
        socket: path of the API service's socket.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "podman.sock"
        self.command = ["podman", "--root", f"{folder}/root", "--runroot", f"{folder}/runroot"]
        # crun refuses hybrid cgroup trees; vfs works on whatever the temporary folder lies on.
        self.command += ["--storage-driver", "vfs", "--runtime", "runc"]
        self.command += ["--cgroup-manager", "cgroupfs"]

    def run(self, *words: str, data: bytes = b"") -> str:
        """Run a podman command that must succeed."""
        done = subprocess.run([*self.command, *words], input=data, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    def write_wrapper(self, name: str) -> Path:
        """Write a program of a given name that is this podman; returns its folder."""
        programs = self.folder / "bin"
        programs.mkdir(exist_ok=True)
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec /usr/bin/{" ".join(self.command)} "$@"\n')
        program.chmod(0o755)
        return programs

    @contextmanager
    def service(self) -> Iterator[str]:
        """Run the API service; gives the socket's URL."""
        url = f"unix://{self.socket}"
        with open(self.folder / "podman.log", "wb") as log:
            process = subprocess.Popen(
                [*self.command, "system", "service", "--time", "0", url],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            self._wait_until_served(process)
            yield url
        finally:
            process.terminate()
            process.wait(timeout=60)

    def _wait_until_served(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until somebody listens; the socket's file is there a moment before."""
        for _ in range(2400):
            with socket.socket(socket.AF_UNIX) as probe:
                try:
                    return probe.connect(str(self.socket))
                except OSError:
                    assert process.poll() is None, (self.folder / "podman.log").read_text()
            time.sleep(0.05)
        raise AssertionError(f"nobody listens at {self.socket}")

    def reset(self) -> None:
        """Remove everything, mounts included."""
        reset = [*self.command, "system", "reset", "--force"]
        subprocess.run(reset, check=False, capture_output=True)
