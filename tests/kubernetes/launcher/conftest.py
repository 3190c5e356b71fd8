"""Jobs on loopback that leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.launcher.pods import Pods

StartPods = Callable[..., Pods]


@pytest.fixture
def start_pods(tmp_path: Path) -> Iterator[StartPods]:
    """Start the pods of a job; the script's first line is added where there is none."""
    started: list[Pods] = []

    def start(script: str, nodes: int = 1, **changes: Any) -> Pods:
        if not script.startswith("#!"):
            script = f"#!/bin/bash\nulimit -c 0\n{script}"
        folder = tmp_path / f"job{len(started)}"
        folder.mkdir()
        pods = Pods(folder, script, nodes, **changes)
        started.append(pods)
        return pods

    yield start
    for pods in started:
        pods.close()
