"""The generated files, and that those who read them get exactly what the config said."""

from __future__ import annotations

import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enroot_py.image.config import ImageConfig
from enroot_py.layers.entry import Node, new_directory
from enroot_py.layers.image_files import add_image_files, image_files
from enroot_py.plan.environ import parse_environ
from enroot_py.plan.fstab import parse_fstab
from enroot_py.plan.rc import RcScript, parse_rc
from tests.layers.archives import MemorySink, contents

PROVENANCE = "docker://registry#image@sha256:1234"
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
WORDS = st.lists(TEXTS, max_size=3).map(tuple)


def config(**fields: object) -> ImageConfig:
    empty: dict[str, object] = {
        "architecture": "amd64",
        "os": "linux",
        "entrypoint": (),
        "cmd": (),
        "env": (),
        "working_dir": "",
        "user": "",
        "volumes": (),
        "labels": (),
        "created": "",
        "diff_ids": (),
        "history": (),
    }
    return ImageConfig(**{**empty, **fields})  # type: ignore[arg-type]


def rc(**fields: object) -> bytes:
    return image_files(config(**fields), PROVENANCE)[b"etc/rc"]


@settings(max_examples=300)
@given(WORDS, WORDS, TEXTS, st.lists(st.tuples(TEXTS, TEXTS), max_size=3).map(tuple))
def test_the_script_reads_as_the_config(
    entrypoint: tuple[str, ...],
    cmd: tuple[str, ...],
    workdir: str,
    labels: tuple[tuple[str, str], ...],
) -> None:
    script = rc(entrypoint=entrypoint, cmd=cmd, working_dir=workdir, labels=labels)
    if not entrypoint and not cmd:
        cmd = ("/bin/sh",)
    assert parse_rc(script) == RcScript("/" + workdir.lstrip("/"), entrypoint, cmd)


AWKWARD = ("a b", "", "it's", '"', "$HOME", "$(id)", "`id`", "\\", "x\ny", "*", "#", "é", "!!", "~")


def run_script(shell: tuple[str, ...], folder: Path, *arguments: str) -> list[bytes]:
    """Run the script of an image whose entrypoint prints its words, each with a NUL after it."""
    workdir = folder / "new dir\n$x"
    script = rc(entrypoint=("/usr/bin/printf", "%s\\0"), cmd=AWKWARD, working_dir=str(workdir))
    (folder / "rc").write_bytes(script)
    done = subprocess.run([*shell, folder / "rc", *arguments], stdout=subprocess.PIPE, check=True)
    assert workdir.is_dir()
    return done.stdout.split(b"\0")[:-1]


SHELLS = [("sh",), ("bash",), pytest.param(("busybox", "sh"), marks=pytest.mark.kernel)]


@pytest.mark.parametrize("shell", SHELLS)
def test_shells_read_the_same(shell: tuple[str, ...], tmp_path: Path) -> None:
    assert run_script(shell, tmp_path) == [word.encode() for word in AWKWARD]
    assert run_script(shell, tmp_path, "x y", "", "$z\n") == [b"x y", b"", b"$z\n"]


def test_the_script_stops_without_its_working_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    script = rc(cmd=("/bin/echo", "ran"), working_dir=str(tmp_path / "file"))
    done = subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (1, b"")


@pytest.mark.parametrize("newline", ["\n", "\r", "\x0b", "\x0c", "\x1b", "\r\n"])
def test_labels_and_provenance_stay_comments(newline: str, tmp_path: Path) -> None:
    text = f"x{newline}touch {tmp_path}/evil{newline}#"
    files = image_files(config(cmd=("/bin/true",), labels=((text, text),)), f"docker://a{newline}b")
    lines = files[b"etc/rc"].splitlines()
    assert lines[0].startswith(b"# enroot-provenance: docker://a ")
    assert lines[1].startswith(b"# x ")
    assert lines[2] == b""
    subprocess.run(["sh", "-c", files[b"etc/rc"]], check=True)
    assert not (tmp_path / "evil").exists()


@settings(max_examples=300)
@given(st.lists(st.tuples(st.sampled_from(["A", "B_1", "_"]), TEXTS), max_size=4))
def test_variables_read_as_in_the_config(variables: list[tuple[str, str]]) -> None:
    env = tuple(f"{name}={value}" for name, value in variables)
    text = image_files(config(env=env), PROVENANCE)[b"etc/environment"].decode()
    assert list(parse_environ(text, {"A": "host", "x": "host"})) == variables


@pytest.mark.parametrize(
    "value", ["${A}", '"q"', "'q'", "a\nB=2", "\n", " x ", "\t", "\\n", "${", '"']
)
def test_awkward_values_read_as_in_the_config(value: str) -> None:
    text = image_files(config(env=("A=" + value, "Z=1")), PROVENANCE)[b"etc/environment"].decode()
    assert parse_environ(text, {"A": "host"}) == (("A", value), ("Z", "1"))


@pytest.mark.parametrize("bad", ["", "A", "=x", "A B=1", "1A=1", "X\nLD_PRELOAD=/evil", "é=1"])
def test_what_is_no_variable_is_left_out(bad: str) -> None:
    text = image_files(config(env=(bad, "OK=1")), PROVENANCE)[b"etc/environment"]
    assert text == b"OK=1\n"


@pytest.mark.parametrize(
    ("volume", "target"),
    [
        ("/data", "/data"),
        ("data/", "/data"),
        ("/a b\tc", "/a b\tc"),
        ("/../../etc/x", "/etc/x"),
        ("/a/../b", "/b"),
        ("/${HOME}/x", "/${HOME}/x"),
        ("/a\n/evil /evil none bind", "/a\n/evil /evil none bind"),
        ("/a\\040b#", "/a\\040b#"),
        ("/processes", "/processes"),
    ],
)
def test_volumes_are_mounts_of_the_rootfs_on_itself(volume: str, target: str) -> None:
    text = image_files(config(volumes=(volume,)), PROVENANCE)[b"etc/fstab"].decode()
    (mount,) = parse_fstab(text, {"ENROOT_ROOTFS": "/root fs", "HOME": "/home/x"}, "fstab")
    assert (mount.source, mount.target) == ("/root fs" + target, target)
    assert mount.options == ("x-create=dir", "bind", "rw", "nosuid", "nodev")


@pytest.mark.parametrize("volume", ["/", "", "/proc", "/proc/1", "/x/../sys", "/dev/shm", "//dev"])
def test_volumes_never_cover_system_folders(volume: str) -> None:
    assert image_files(config(volumes=(volume,)), PROVENANCE)[b"etc/fstab"] == b""


def tree(*entries: tuple[bytes, Node]) -> Node:
    root = new_directory()
    for path, node in entries:
        at = root
        *folders, name = path.split(b"/")
        for folder in folders:
            assert at.children is not None
            at = at.children[folder]
        assert at.children is not None
        at.children[name] = node
    return root


def link(target: bytes) -> Node:
    node = Node(stat.S_IFLNK, 0o777)
    node.target = target
    return node


def regular(content: bytes) -> Node:
    node = Node(stat.S_IFREG, 0o600)
    node.content, node.size = content, len(content)
    return node


def added(root: Node, **fields: object) -> dict[bytes, object]:
    add_image_files(root, MemorySink(), config(**fields), PROVENANCE)
    return contents(root)


def test_files_land_in_an_empty_tree() -> None:
    found = added(new_directory())
    assert [*found] == [b"etc", b"etc/environment", b"etc/fstab", b"etc/rc", b"etc/rc.local"]
    assert found[b"etc/fstab"] == b""
    assert found[b"etc/rc.local"].startswith(b"#")  # type: ignore[attr-defined]


def test_existing_files_and_links_are_replaced_never_followed() -> None:
    root = tree(
        (b"etc", new_directory()),
        (b"etc/rc", link(b"/passwd")),
        (b"etc/fstab", new_directory()),
        (b"etc/fstab/x", regular(b"x")),
        (b"etc/environment", regular(b"OLD=1")),
        (b"passwd", regular(b"root")),
    )
    found = added(root)
    assert found[b"passwd"] == b"root"
    assert found[b"etc/fstab"] == b""
    assert found[b"etc/environment"] == b""
    assert b"exec" in found[b"etc/rc"]  # type: ignore[operator]


@pytest.mark.parametrize("make", [lambda: link(b"/conf"), lambda: link(b"../../conf")])
def test_files_land_behind_a_linked_etc(make: Callable[[], Node]) -> None:
    found = added(tree((b"etc", make()), (b"conf", new_directory())))
    assert b"conf/rc" in found
    assert b"etc/rc" not in found


@pytest.mark.parametrize("make", [lambda: regular(b"x"), lambda: link(b"etc")])
def test_an_etc_that_is_no_directory_is_replaced(make: Callable[[], Node]) -> None:
    assert b"etc/rc" in added(tree((b"etc", make())))


@pytest.mark.parametrize("workdir", ["/job/new dir", "job/new dir", "/job/./x/../new dir/"])
def test_the_working_directory_is_made(workdir: str) -> None:
    found = added(new_directory(), working_dir=workdir)
    assert found[b"job/new dir"] is None


def test_an_existing_working_directory_is_left_alone() -> None:
    root = tree((b"w", new_directory(mode=0o711)), (b"l", link(b"w")), (b"f", regular(b"x")))
    for workdir in ("/w", "/l", "/f", "/f/x", "/../../w", ""):
        found = added(root, working_dir=workdir)
        assert found[b"f"] == b"x"
        assert found[b"l"] == b"-> w"
    assert root.children is not None
    assert root.children[b"w"].mode == 0o711
