"""Pods without a cluster: launchers on loopback, as the manifests would start them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from enroot_py import read_environ
from pyxis_py.kubernetes.launcher.zipapp import build_launcher

TOKEN = "0123456789abcdef" * 4
JOB_ID = 4711
PATH = "/usr/local/bin:/usr/bin:/bin"


def free_port() -> int:
    """A port of loopback that nothing has."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def job_content(nodes: int = 1, **changes: Any) -> dict[str, Any]:
    """What the renderer writes into job.json."""
    return {
        "version": 1,
        "jobId": JOB_ID,
        "jobName": "test",
        "arguments": [],
        "nodes": nodes,
        "tasksPerNode": f"1(x{nodes})" if nodes > 1 else "1",
        "cpusPerTask": 0,
        "cpusPerNode": 4,
        "gpusPerNode": 0,
        "gpusPerTask": 0,
        "memPerNodeMiB": 0,
        "timeLimitSeconds": None,
        "graceSeconds": 30,
        "requeue": True,
        "hostPattern": "test-4711-n-0-{index}",
        "batchHostIndex": 0,
        "controlPort": 6818,
        "output": "slurm-%j.out",
        "containerEnv": [],
        "exportEnv": {},
        "secretEnv": [],
        "options": {},
        **changes,
    }


class Pods:
    """The pods of one job; pod 0 runs `script`."""

    def __init__(
        self,
        folder: Path,
        script: str,
        nodes: int = 1,
        *,
        python: str | Sequence[str] = sys.executable,
        variables: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        missing: Sequence[int] = (),
        **changes: Any,
    ) -> None:
        self.folder = folder
        self.port = free_port()
        self.nodes = nodes
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self._python = [python] if isinstance(python, str) else list(python)
        self.variables = dict(variables or {})
        self._run = folder / "run"
        self._token = folder / "token"
        self.work = folder / "work"
        for path in (self._run, self._token, self.work, folder / "tmp"):
            path.mkdir()
        content = job_content(nodes, controlPort=self.port, **changes)
        content["output"] = os.path.join(self.work, content["output"])
        (self._run / "job.json").write_text(json.dumps(content))
        (self._run / "job.sh").write_text(script)
        (self._run / "job.sh").chmod(0o755)
        (self._run / "launcher.pyz").write_bytes(build_launcher())
        (self._token / "token").write_text(TOKEN)
        for name, value in (secrets or {}).items():
            (self._token / f"env.{name}").write_text(value)
        for index in range(nodes):
            if index not in missing:
                self.start(index)

    def start(self, index: int) -> subprocess.Popen[bytes]:
        """Start one pod."""
        hosts = f"test-{JOB_ID}-n-0-[0-{self.nodes - 1}]" if self.nodes > 1 else (
            f"test-{JOB_ID}-n-0-0"
        )  # fmt: skip
        environ = {
            "PATH": PATH,
            "HOME": str(self.folder),
            "USER": "user1",
            "PYXIS_LAUNCHER_FOLDER": str(self._run),
            "PYXIS_TOKEN_FOLDER": str(self._token),
            "PYXIS_LISTEN": f"127.0.0.{index + 1}",
            "PYXIS_BATCH_ADDRESS": f"127.0.0.1 {self.port}",
            "TMPDIR": str(self.folder / "tmp"),
            "POD_NAME": f"pod-{index}",
            "POD_IP": f"127.0.0.{index + 1}",
            "K8S_NODE_NAME": f"machine-{index}",
            "SLURM_NODEID": str(index),
            "SLURM_JOB_ID": str(JOB_ID),
            "SLURM_JOB_NAME": "test",
            "SLURM_NNODES": str(self.nodes),
            "SLURM_JOB_NUM_NODES": str(self.nodes),
            "SLURM_JOB_NODELIST": hosts,
            "SLURM_SUBMIT_DIR": str(self.work),
            "SLURM_TASKS_PER_NODE": f"1(x{self.nodes})" if self.nodes > 1 else "1",
            **self.variables,
        }
        log = self.folder / f"pod-{index}.log"
        with open(log, "ab") as file:
            process = subprocess.Popen(
                [*self._python, str(self._run / "launcher.pyz"), "node"],
                env=environ, cwd=self.work, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                start_new_session=True,
            )  # fmt: skip
        self.processes[index] = process
        return process

    def wait(self, seconds: float = 200) -> int:
        """Wait for all pods; return the status of pod 0."""
        deadline = time.monotonic() + seconds
        for process in self.processes.values():
            process.wait(max(0.1, deadline - time.monotonic()))
        return self.processes[0].returncode

    @property
    def output(self) -> str:
        """The job's output file."""
        return (self.work / f"slurm-{JOB_ID}.out").read_text()

    def log(self, index: int = 0) -> str:
        """What `kubectl logs` would print."""
        return (self.folder / f"pod-{index}.log").read_text()

    def wait_for(self, name: str, seconds: float = 100) -> str:
        """Wait until a file of the working folder has something; return it."""
        path = self.work / name
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if path.exists() and path.read_text().endswith("\n"):
                return path.read_text()
            time.sleep(0.02)
        raise AssertionError(f"{name} did not come: {self.log()}")

    def kill(self, index: int) -> None:
        """Let a pod vanish, with all that runs in it."""
        self.processes[index].send_signal(signal.SIGKILL)
        for pid in pids_with(f"SLURMD_NODENAME=test-{JOB_ID}-n-0-{index}", str(self._run)):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def close(self) -> None:
        """End what is left."""
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()
        for pid in pids_with(str(self._run), ""):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def pids_with(first: str, second: str) -> list[int]:
    """Processes whose variables have both texts."""
    found = []
    for path in Path("/proc").iterdir():
        text = read_environ(int(path.name)) if path.name.isdecimal() else b""
        if first.encode() in text and second.encode() in text:
            found.append(int(path.name))
    return found


def are_gone(first: str, second: str) -> bool:
    """Whether such processes end soon: one that was killed just now may take a moment."""
    deadline = time.monotonic() + 30
    while pids_with(first, second):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
