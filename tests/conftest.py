"""What every test folder shares: markers that need a prepared machine are off unless asked for.

A bare `pytest` runs the pure tests. `make test` prepares the machine and asks for each group by
name with `-m`; there a missing tool or permission is a failure, never a skip.
"""

from __future__ import annotations

import pytest

PREPARED = ("kernel", "root", "network", "podman", "slurm", "gpu", "parity", "soak")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.markexpr:
        return
    kept, left_out = [], []
    for item in items:
        wanted = not any(item.get_closest_marker(name) for name in PREPARED)
        (kept if wanted else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
