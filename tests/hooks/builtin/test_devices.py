"""A minimal /dev: what the host has of it, and nothing that it lacks."""

from __future__ import annotations

import os

import pytest

from enroot_py.hooks.builtin import devices
from tests.hooks.contexts import Container

LINKS = {
    "fd": "/proc/self/fd",
    "ptmx": "/dev/pts/ptmx",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The nodes that the host has, for a test to change."""
    nodes = {f"/dev/{name}" for name in ("zero", "null", "full", "urandom", "random", "tty")}
    nodes |= {"/dev/shm", "/dev/mqueue"}
    monkeypatch.setattr(devices.os.path, "exists", lambda path: path in nodes)
    return nodes


def run(container: Container, **settings: object) -> dict[str, str]:
    """Return what is mounted: target → source."""
    devices.run(container.context(**settings))
    return {mount.target: mount.source for mount in container.mounted}


def test_nothing_happens_unless_asked_for(container: Container) -> None:
    assert run(container) == {}
    assert not (container.rootfs / "dev").exists()


def test_a_restricted_dev(container: Container) -> None:
    found = run(container, restrict_dev=True)
    assert found["/dev"] == "tmpfs"
    assert found["/dev/pts"] == "devpts"
    assert found["/dev/null"] == "/dev/null"
    assert found["/dev/shm"] == "/dev/shm"
    assert {name: os.readlink(container.rootfs / "dev" / name) for name in LINKS} == LINKS
    assert container.mounted[0].options == ("x-detach", "nofail", "silent")


def test_nodes_that_the_host_lacks_are_left_out(container: Container, host: set[str]) -> None:
    host -= {"/dev/full", "/dev/mqueue"}
    found = run(container, restrict_dev=True)
    assert not {"/dev/full", "/dev/mqueue", "/dev/log", "/dev/hugepages"} & set(found)
    host |= {"/dev/log", "/dev/hugepages"}
    container.mounted.clear()
    assert {"/dev/log", "/dev/hugepages"} <= set(run(container, restrict_dev=True))


def test_an_ipc_namespace_has_its_own_shared_memory(container: Container) -> None:
    found = run(container, unshare_ipc=True)
    assert (found["/dev/shm"], found["/dev/mqueue"]) == ("tmpfs", "mqueue")


def test_the_terminal_becomes_the_console(
    container: Container, host: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    host.add("/dev/pts/3")
    monkeypatch.setattr(devices.os, "readlink", lambda _: "/dev/pts/3")
    context = container.context(restrict_dev=True)
    devices.run(context._replace(host=context.host._replace(terminal=True)))
    assert container.mounted[-1].source == "/dev/pts/3"
    assert container.mounted[-1].target == "/dev/console"
    container.mounted.clear()
    devices.run(context._replace(host=context.host._replace(terminal=False)))
    assert container.mounted[-1].target != "/dev/console"


def test_a_dev_that_leads_to_the_host_is_not_followed(container: Container) -> None:
    outside = container.folder / "outside"
    outside.mkdir()
    (container.rootfs / "dev").symlink_to(outside)
    run(container, restrict_dev=True)
    assert list(outside.iterdir()) == []
