"""Finding and reading in an image."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from enroot_py.errors import LimitError, NotFoundError, SquashfsError
from enroot_py.squashfs.reader import SquashfsImage
from tests.squashfs.trees import Item, write_image
from tests.this_process import open_files


@pytest.fixture
def image(tmp_path: Path) -> Path:
    items = [
        Item(b"etc", stat.S_IFDIR),
        Item(b"etc/rc", content=b'exec "$@"\n', mode=0o755),
        Item(b"etc/empty"),
        Item(b"etc/link", stat.S_IFLNK, target=b"rc"),
        Item(b"large", content=b"0123456789" * 100_000),
        Item(b"sparse", content=bytes(1_000_000) + b"end"),
    ]
    return write_image(tmp_path / "image", items)


def test_walk_gives_parents_first_in_byte_order(image: Path) -> None:
    with SquashfsImage(str(image)) as reader:
        paths = [path for path, _ in reader.walk()]
    assert paths == [b"etc", b"etc/empty", b"etc/link", b"etc/rc", b"large", b"sparse"]


@pytest.mark.parametrize("path", ["etc/rc", "/etc/rc", "//etc//rc/"])
def test_read_file(image: Path, path: str) -> None:
    with SquashfsImage(str(image)) as reader:
        assert reader.read(path) == b'exec "$@"\n'
        assert reader.read("/etc/empty") == b""
        assert reader.read("large") == b"0123456789" * 100_000
        assert reader.read("sparse") == bytes(1_000_000) + b"end"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("etc/missing", "No etc/missing in"),
        ("etc/rc/below", "No etc/rc/below in"),
        ("etc", "Not a regular file: etc in"),
        ("etc/link", "Not a regular file"),
        ("..", "No .. in"),
        ("", "Not a regular file"),
    ],
)
def test_what_is_not_there(image: Path, path: str, message: str) -> None:
    with SquashfsImage(str(image)) as reader, pytest.raises(NotFoundError, match=message):
        reader.read(path)


def test_file_larger_than_wanted(image: Path) -> None:
    with SquashfsImage(str(image)) as reader:
        assert len(reader.read("large", max_size=1_000_000)) == 1_000_000
        with pytest.raises(LimitError, match="has 1000000 bytes"):
            reader.read("large", max_size=999_999)


def test_file_is_closed(image: Path) -> None:
    before = open_files()
    with SquashfsImage(str(image)) as reader:
        assert len(open_files()) == len(before) + 1
    reader.close()
    image.write_bytes(b"no image")
    with pytest.raises(SquashfsError):
        SquashfsImage(str(image))
    assert open_files() == before


def test_missing_image(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="No such file"):
        SquashfsImage(str(tmp_path / "missing"))
