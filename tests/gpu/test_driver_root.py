"""Driver roots: every path is resolved inside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from enroot_py.gpu.driver_root import DriverRoot, driver_root, resolve_beneath


@pytest.mark.parametrize(
    ("links", "path", "found"),
    [
        ({}, "/a/b", "a/b"),
        ({}, "a//./b", "a/b"),
        ({}, "/../../a/b", "a/b"),
        ({}, "/", "."),
        ({}, "/missing", None),
        ({}, "/a/missing/x", None),
        ({"l": "/a"}, "/l/b", "a/b"),
        ({"l": "a"}, "/l/b", "a/b"),
        ({"a/l": "../../../../a"}, "/a/l/b", "a/b"),
        ({"l": "/etc/passwd"}, "/l", None),
        ({"l": "l"}, "/l", None),
        ({"l": "m", "m": "a/b"}, "/l", "a/b"),
        ({"l": "missing"}, "/l", None),
    ],
)
def test_resolution(tmp_path: Path, links: dict[str, str], path: str, found: str | None) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b").write_text("x")
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    expected = None if found is None else os.path.normpath(tmp_path / found)
    assert resolve_beneath(str(tmp_path), path) == expected
    assert DriverRoot(str(tmp_path)).resolve(path) == expected


def test_each_tree_has_its_root(tmp_path: Path) -> None:
    for name in ("r/etc", "d/dev", "p/proc", "s/sys"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "x").write_text(name)
    root = DriverRoot(*(str(tmp_path / name) for name in "rdps"))
    for path in ("etc", "dev", "proc", "sys"):
        assert (root.read(f"/{path}/x") or "").endswith(path)
    assert root.read("/dev/../etc/x") is None


def test_the_machines_own_root() -> None:
    root = DriverRoot()
    assert root.resolve("/proc/self/stat") == f"/proc/{os.getpid()}/stat"
    node = root.node("/dev/null")
    assert node is not None and node.is_device and (node.major, node.minor) == (1, 3)
    assert node.usable


def test_what_is_missing_is_nothing(tmp_path: Path) -> None:
    root = DriverRoot(str(tmp_path))
    assert root.read("/x") is None
    assert root.names("/x") == []
    assert root.node("/dev/x") is None
    assert not root.exists("/x")


def test_pipes_and_folders_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert DriverRoot(str(tmp_path)).read("/pipe") in (None, "")
    assert DriverRoot(str(tmp_path)).read("/") is None


def test_a_file_is_no_device(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").write_text("")
    node = DriverRoot(str(tmp_path)).node("/dev/nvidia0")
    assert node is not None and not node.is_device


def test_the_configuration_names_the_roots(tmp_path: Path) -> None:
    assert driver_root({}) == DriverRoot()
    (tmp_path / "link").symlink_to(tmp_path)
    root = driver_root(
        {
            "ENROOT_GPU_ROOT": str(tmp_path / "link"),
            "ENROOT_GPU_DEV_ROOT": "/",
            "ENROOT_GPU_LIBRARY_PATHS": "/a::/b",
        }
    )
    assert root.root == str(tmp_path)
    assert root.root_of("/dev/x") == "/" and root.root_of("/proc/x") == str(tmp_path)
    assert root.library_paths == ("/a", "/b")
    assert root.inside(f"{tmp_path}/a/b") == "/a/b"
