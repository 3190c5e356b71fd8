"""`export`: a container becomes an image, and that image the same container again."""

from __future__ import annotations

import os
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from enroot_py.errors import (
    ExistsError,
    NotFoundError,
    SettingsError,
    SpaceError,
    UnsupportedError,
    UsageError,
)
from enroot_py.operations.create import create
from enroot_py.operations.export import export
from enroot_py.squashfs.reader import SquashfsImage
from enroot_py.squashfs.superblock import read_superblock
from tests.operations.test_create import settings_for, small_disk
from tests.squashfs.trees import facts_of_folder, facts_of_image, random_items, write_image

__all__ = ["small_disk"]


def make_container(folder: Path, name: str = "box") -> Path:
    """A container as a user may have left it, with modes that keep even its owner out."""
    rootfs = folder / "data" / name
    for path in ("etc", "dev/pts", "locked/in", "shut", "read", "empty-shut", "home/user"):
        (rootfs / path).mkdir(parents=True)
    (rootfs / "etc/rc").write_text('exec "$@"\n')
    (rootfs / "etc/rc").chmod(0o755)
    os.link(rootfs / "etc/rc", rootfs / "etc/rc2")
    (rootfs / "locked/in/file").write_text("kept")
    (rootfs / "secret").write_text("of mode 0")
    (rootfs / "setuid").write_text("s")
    (rootfs / "setuid").chmod(0o4711)
    (rootfs / "link").symlink_to("etc/rc")
    os.mkfifo(rootfs / "fifo")
    with open(rootfs / "sparse", "wb") as file:
        file.truncate(3 << 20)
        file.seek(1 << 20)
        file.write(b"data in the middle")
    (rootfs / "dev/null").write_text("")
    (rootfs / ".lock").write_text("")
    (rootfs / ".enroot").mkdir()
    (rootfs / ".enroot/run").write_text("of a bundle")
    (rootfs / "mount-target").write_text("")
    for path in sorted(rootfs.rglob("*")):
        os.utime(path, (1_600_000_000, 1_600_000_000), follow_symlinks=False)
    for path, mode in [
        ("secret", 0), ("shut", 0o500), ("read", 0o555), ("locked/in", 0o500), ("locked", 0),
        ("empty-shut", 0), ("mount-target", 0),
    ]:  # fmt: skip
        (rootfs / path).chmod(mode)
    return rootfs


def test_image_holds_the_container(tmp_path: Path) -> None:
    make_container(tmp_path)
    image = export("box", str(tmp_path / "out.sqsh"), settings=settings_for(tmp_path))
    assert image == str(tmp_path / "out.sqsh")
    facts = facts_of_image(Path(image))
    modes = {os.fsdecode(path): fields[1] for path, fields in facts.items()}
    # Not the lock, a bundle's folder, what is below /dev, and empty things of mode 0: the targets
    # of mounts.
    assert modes == {
        "dev": "0o755", "etc": "0o755", "etc/rc": "0o755", "etc/rc2": "0o755", "fifo": "0o644",
        "home": "0o755", "home/user": "0o755", "link": "0o777", "locked": "0o0",
        "locked/in": "0o500", "locked/in/file": "0o644", "read": "0o555", "secret": "0o0",
        "setuid": "0o4711", "shut": "0o500", "sparse": "0o644",
    }  # fmt: skip
    assert facts[b"etc/rc"][-1] == [b"etc/rc", b"etc/rc2"]
    with SquashfsImage(image) as reader:
        assert reader.read("secret") == b"of mode 0"
        assert {node.uid for _, node in reader.walk()} == {0}


def test_container_is_left_as_it_was(tmp_path: Path) -> None:
    rootfs = make_container(tmp_path)
    before = {path: os.lstat(path).st_mode for path in [rootfs / "locked", rootfs / "secret"]}
    export("box", str(tmp_path / "out.sqsh"), settings=settings_for(tmp_path))
    assert {path: os.lstat(path).st_mode for path in before} == before


def test_export_and_create_are_inverse(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    items = [
        replace(item, xattrs=tuple(pair for pair in item.xattrs if pair[0].startswith(b"user.")))
        for item in random_items(51, count=200)
        if item.kind not in (stat.S_IFCHR, stat.S_IFBLK)
    ]
    image = write_image(tmp_path / "first.sqsh", items)
    create(str(image), "one", settings=settings)
    second = export("one", str(tmp_path / "second.sqsh"), settings=settings)
    create(second, "two", settings=settings)
    data = Path(settings.data_path)
    assert facts_of_folder(data / "one") == facts_of_folder(data / "two")
    third = export("two", str(tmp_path / "third.sqsh"), settings=settings)
    assert Path(second).read_bytes() == Path(third).read_bytes()


def test_bytes_depend_on_the_tree_alone(tmp_path: Path) -> None:
    rootfs = make_container(tmp_path)
    for path in (rootfs, rootfs / "fifo"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    images = [
        export(
            "box",
            str(tmp_path / f"{number}.sqsh"),
            settings=settings_for(tmp_path, ENROOT_MAX_PROCESSORS=str(number)),
        )
        for number in (1, 4)
    ]
    assert Path(images[0]).read_bytes() == Path(images[1]).read_bytes()
    assert read_superblock(images[0]).mkfs_time == 1_700_000_000


def test_source_date_epoch_is_the_latest_time(tmp_path: Path) -> None:
    make_container(tmp_path)
    settings = settings_for(tmp_path, SOURCE_DATE_EPOCH="1500000000")
    image = export("box", str(tmp_path / "out.sqsh"), settings=settings)
    with SquashfsImage(image) as reader:
        assert max(node.mtime for _, node in reader.walk()) == 1_500_000_000
        assert reader.superblock.mkfs_time == 1_500_000_000


def test_default_output_is_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_container(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert export("box", settings=settings_for(tmp_path)) == str(tmp_path / "box.sqsh")


def test_existing_file_is_replaced_only_when_asked(tmp_path: Path) -> None:
    make_container(tmp_path)
    settings = settings_for(tmp_path)
    output = tmp_path / "out.sqsh"
    output.write_bytes(b"precious")
    with pytest.raises(ExistsError, match="already exists"):
        export("box", str(output), settings=settings)
    assert output.read_bytes() == b"precious"
    export("box", str(output), settings=settings, force=True)
    assert facts_of_image(output)


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    with pytest.raises(NotFoundError, match="No such container: nothing"):
        export("nothing", settings=settings)
    with pytest.raises(UsageError, match="Nothing to export"):
        export("", settings=settings)
    make_container(tmp_path)
    with pytest.raises(NotFoundError, match="No such folder"):
        export("box", str(tmp_path / "no/such/folder"), settings=settings)


def test_options_are_looked_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_container(tmp_path)
    output = tmp_path / "out.sqsh"
    settings = settings_for(tmp_path, ENROOT_SQUASH_OPTIONS="-b 3")
    with pytest.raises(SettingsError, match="-b 3"):
        export("box", str(output), settings=settings)
    monkeypatch.setenv("PATH", str(tmp_path))
    settings = settings_for(tmp_path, ENROOT_SQUASH_OPTIONS="-comp lzma")
    with pytest.raises(UnsupportedError, match="-comp lzma"):
        export("box", str(output), settings=settings)
    assert not output.exists()


def test_options_are_used(tmp_path: Path) -> None:
    make_container(tmp_path)
    settings = settings_for(tmp_path, ENROOT_SQUASH_OPTIONS="-comp lzo -noD -exit-on-error")
    image = export("box", str(tmp_path / "out.sqsh"), settings=settings)
    with SquashfsImage(image) as reader:
        assert reader.superblock.compressor == "lzo"
        assert reader.read("etc/rc") == b'exec "$@"\n'


@pytest.mark.root
def test_full_disk_leaves_no_image(tmp_path: Path, small_disk: Path) -> None:
    rootfs = make_container(tmp_path)
    (rootfs / "noise").write_bytes(os.urandom(30 << 20))
    output = small_disk / "out.sqsh"
    with pytest.raises(SpaceError, match=f"{small_disk}.* \\(tmpfs") as caught:
        export("box", str(output), settings=settings_for(tmp_path))
    assert "--output" in caught.value.hint
    assert os.listdir(small_disk) == []


@pytest.mark.root
def test_image_is_made_by_mksquashfs_where_it_must(tmp_path: Path) -> None:
    make_container(tmp_path)
    words = "-comp lzo -Xalgorithm lzo1x_1_15"
    settings = settings_for(tmp_path, ENROOT_SQUASH_OPTIONS=words)
    image = export("box", str(tmp_path / "out.sqsh"), settings=settings)
    said = subprocess.run(["unsquashfs", "-stat", image], capture_output=True, text=True).stdout
    assert "lzo1x_1_15" in said
    with SquashfsImage(image) as reader:
        assert reader.read("locked/in/file") == b"kept"
