"""Options that only mksquashfs has."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from enroot_py.errors import SquashfsError, UnsupportedError
from enroot_py.layers.entry import new_directory
from enroot_py.squashfs.mksquashfs import MksquashfsWriter, open_writer
from enroot_py.squashfs.options import image_options, parse_squash_options
from enroot_py.squashfs.reader import SquashfsImage
from enroot_py.squashfs.superblock import read_superblock
from enroot_py.squashfs.writer import SquashfsWriter
from tests.squashfs.trees import Item, build, facts_of_image, facts_of_items, random_items


def write(path: Path, items: list[Item], words: str, *, epoch: str = "") -> Path:
    with (
        open(path, "w+b", buffering=0) as file,
        open_writer(
            file,
            image_options(words, epoch),
            processors=2,
            mkfs_time=1234,
            temp_path=str(path.parent),
        ) as writer,
    ):
        root = build(items, writer)
        root.mode, root.mtime = 0o751, 99
        assert writer.finish(root) == path.stat().st_size
    return path


@pytest.mark.parametrize("words", ["-comp zstd", "-comp lzo -noD", "-comp xz -Xbcj arm"])
def test_our_own_writer_is_the_rule(tmp_path: Path, words: str) -> None:
    with (
        open(tmp_path / "image", "w+b", buffering=0) as file,
        open_writer(
            file, parse_squash_options(words), processors=1, mkfs_time=0, temp_path="/nowhere"
        ) as writer,
    ):
        assert isinstance(writer, SquashfsWriter)
        writer.finish(new_directory())


def test_without_mksquashfs_the_options_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnsupportedError, match=r"\(-sort, -Xalgorithm\), which is missing"):
        write(tmp_path / "image", [], "-comp lzo -Xalgorithm lzo1x_1 -sort list")
    program = tmp_path / "mksquashfs"
    program.write_text("#!/bin/sh\necho 'mksquashfs version 4.4 (2019/08/29)'\n")
    program.chmod(0o755)
    with pytest.raises(UnsupportedError, match="is too old") as caught:
        write(tmp_path / "image", [], "-comp lzma")
    assert "4.5" in caught.value.hint


@pytest.mark.root
@pytest.mark.parametrize(
    "words", ["-comp lzo -Xalgorithm lzo1x_1", "-comp zstd -no-hardlinks", "-comp gzip -info -b 4K"]
)
def test_mksquashfs_writes_the_same_tree(tmp_path: Path, words: str) -> None:
    items = [
        item
        for item in random_items(31, count=150)
        # A tar stream can hold neither sockets nor devices beyond 21 bits.
        if item.kind not in (stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK)
    ]
    items.append(Item(b"null", stat.S_IFCHR, device=(1, 3)))
    items.append(Item(b"disk", stat.S_IFBLK, device=(259, 70000)))
    data = b"start" + bytes(1_000_000) + b"end"
    items.append(Item(b"sparse", content=data, extents=((0, 5), (1_000_005, 3))))
    items.append(Item(b"long/"[:4], stat.S_IFDIR))
    items.append(Item(b"long/" + b"n" * 250, content=b"a long name"))
    image = write(tmp_path / "image", items, words)
    expected = facts_of_items(items)
    found = facts_of_image(image)
    if "-no-hardlinks" in words:
        assert {path: fields[:-1] for path, fields in found.items()} == {
            path: fields[:-1] for path, fields in expected.items()
        }
    else:
        assert found == expected
    superblock = read_superblock(str(image))
    assert superblock.mkfs_time == 1234
    with SquashfsImage(str(image)) as reader:
        root = reader.read_tree()
        assert (root.mode, root.uid, root.gid) == (0o751, 0, 0)


@pytest.mark.root
def test_source_date_epoch_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "777")
    image = write(tmp_path / "image", [Item(b"f")], "-comp zstd -info", epoch="777")
    with SquashfsImage(str(image)) as reader:
        assert reader.superblock.mkfs_time == 777
        assert reader.find("f").mtime == 777


@pytest.mark.root
@pytest.mark.parametrize(
    ("words", "hint"), [("-no-such-option", "invalid option"), ("-comp foo", '"foo"')]
)
def test_what_mksquashfs_says_is_passed_on(tmp_path: Path, words: str, hint: str) -> None:
    with pytest.raises(SquashfsError, match=f"mksquashfs failed with status 1.*{words}") as caught:
        write(tmp_path / "image", [Item(b"f", content=b"x" * 3_000_000)], words)
    assert hint in caught.value.hint


@pytest.mark.root
def test_image_file_needs_no_name(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_TMPFILE | os.O_RDWR)
    with (
        open(fd, "w+b", buffering=0) as file,
        MksquashfsWriter(
            file,
            parse_squash_options("-comp lz4 -info"),
            processors=1,
            mkfs_time=0,
            temp_path=str(tmp_path),
        ) as writer,
    ):
        writer.finish(build([Item(b"f", content=b"content")], writer))
        copy = tmp_path / "copy"
        copy.write_bytes(os.pread(fd, 1 << 20, 0))
    done = subprocess.run(["unsquashfs", "-cat", copy, "f"], capture_output=True, check=True)
    assert done.stdout == b"content"
    assert os.listdir(tmp_path) == ["copy"]
