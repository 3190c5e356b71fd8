"""Root file systems and the probe, built once for a session."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.gpu.containers import Containers, memory_driver
from tests.roots.debian import SUITES, build_rootfs, fetch, libc_packages, packages_folder
from tests.roots.probe import build_probe


@pytest.fixture(scope="session")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_probe(tmp_path_factory.mktemp("probe"))


@pytest.fixture(scope="session")
def rootfs(tmp_path_factory: pytest.TempPathFactory, probe: Path) -> dict[str, Path]:
    """A root file system, with the probe, for each version of the C library."""
    folder = tmp_path_factory.mktemp("rootfs")
    cache = packages_folder(tmp_path_factory.mktemp("debs"))
    roots = {}
    for version in SUITES:
        root = build_rootfs(folder / version, libc_packages(version, cache))
        shutil.copy(probe, root / "usr/bin/probe")
        roots[version] = root
    return roots


@pytest.fixture(scope="session")
def musl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root file system whose only C library is musl."""
    cache = packages_folder(tmp_path_factory.mktemp("debs"))
    packages = fetch("bookworm", ("musl",), cache)
    return build_rootfs(tmp_path_factory.mktemp("rootfs") / "musl", packages, ldconfig=False)


@pytest.fixture
def containers(tmp_path: Path, rootfs: dict[str, Path]) -> Containers:
    """Five GPUs and a container `box` with the present C library."""
    driver, binds = memory_driver(tmp_path / "driver")
    found = Containers(tmp_path / "work", driver, binds)
    found.add("box", rootfs["2.36"])
    return found
