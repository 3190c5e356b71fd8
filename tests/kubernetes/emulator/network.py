"""The pods' network, seen from the emulator: addresses, names, and the process that has it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.kubernetes.emulator.objects import EmulatorError

_TREE = Path(__file__).resolve().parents[3]
_NET = "10.244"


class Network:
    """A bridge in a network namespace, and a namespace for every pod. A context manager."""

    def __init__(self) -> None:
        """Start the process that has it all."""
        self._count = 0
        environ = {"PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin", "PYTHONPATH": "",
                   "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kubernetes.emulator.switch"], cwd=_TREE, env=environ,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        self._read()

    def __enter__(self) -> Network:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def new_address(self) -> str:
        """An address that no pod has had yet."""
        self._count += 1
        return f"{_NET}.{self._count // 250}.{self._count % 250 + 1}"

    def add(self, address: str, hostname: str, memory: Sequence[tuple[Path, int]]) -> int:
        """Make a pod's namespaces and return the process that keeps them.

        Args:
            memory: folders on which a tmpfs is mounted, in that pod's mount namespace, and sizes
                in bytes (0 for no limit).
        """
        answer = self._ask(
            do="add", name=_port(address), address=f"{address}/16", hostname=hostname,
            memory=[(str(folder), size) for folder, size in memory],
        )  # fmt: skip
        return int(answer["pid"])

    def remove(self, address: str) -> None:
        """End a pod's keeper; the namespaces go with their last process."""
        self._ask(do="remove", name=_port(address))

    def cut(self, address: str) -> None:
        """Pull a pod's cable: nothing goes in or out any more, and nobody is told."""
        self._ask(do="cut", name=_port(address))

    def close(self) -> None:
        """End everything."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the network has ended"}
        if "error" in answer:
            raise EmulatorError(answer["error"])
        return answer


def _port(address: str) -> str:
    return "-".join(address.split(".")[2:])
