"""What every test folder shares: markers that need a prepared machine are off unless asked for.

A bare `pytest` runs the pure tests. `make test` prepares the machine and asks for each group by
name with `-m`; there a missing tool or permission is a failure, never a skip.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

PREPARED = ("kernel", "root", "network", "podman", "slurm", "gpu", "shells", "parity", "soak")

# The same examples in every run, and no limits on time: a machine under load has met no fault.
settings.register_profile(
    "same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same")


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


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    """On a prepared machine a skip is a failure: something that the set-up promised is missing."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and not hasattr(report, "wasxfail") and "PYXIS_TEST_STRICT" in os.environ:
        report.outcome = "failed"
        report.longrepr = f"skipped on a prepared machine: {report.longrepr}"
