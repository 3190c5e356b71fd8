"""What hostile layers may not do, and what becomes of them; written to a real directory.

The rows are those of the threat table: what is refused names the layer and leaves nothing behind
outside the directory; what is accepted leaves exactly the names given, and nothing outside either.
"""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from enroot_py import log
from enroot_py.errors import LayerError, LimitError, UnsafePathError
from enroot_py.layers.directory import DirectorySink
from enroot_py.layers.entry import Limits
from enroot_py.layers.merge import LayerMerger
from tests.layers import archives
from tests.layers.archives import (
    CHAR,
    FIFO,
    archive,
    directory,
    file,
    gzipped,
    hard_link,
    header,
    pax,
    symlink,
    zstandard_frame,
)

LIMITS = Limits(max_entries=1000, ratio_floor=1 << 20)


@pytest.fixture(autouse=True)
def messages() -> Iterator[list[str]]:
    texts: list[str] = []
    log.set_sink(lambda level, text: texts.append(text))
    yield texts
    log.set_sink(None)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Something that links of the image point at: `../outside`, and by its own path."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "precious").write_text("precious")
    return folder


def extract(tmp_path: Path, layers: list[bytes], limits: Limits = LIMITS) -> set[str]:
    """Flatten into a directory; returns the names in it."""
    root = tmp_path / "root"
    root.mkdir()
    with DirectorySink(str(root)) as sink:
        merger = LayerMerger(sink, limits=limits)
        for number in reversed(range(len(layers))):
            merger.add_layer(archives.opener(layers[number]), f"layer {number}")
        sink.finish(merger.finish())
    return {
        os.path.relpath(os.path.join(folder, name), root)
        for folder, folders, files in os.walk(root)
        for name in folders + files
    }


def check_untouched(tmp_path: Path) -> None:
    assert sorted(os.listdir(tmp_path)) == ["outside", "root"]
    assert os.listdir(tmp_path / "outside") == ["precious"]
    assert (tmp_path / "outside/precious").read_text() == "precious"


PRECIOUS = b"../outside/precious"
F = file(b"f", b"1")
BIG = b"\x80" + b"\xff" * 11
REFUSED: dict[str, list[bytes] | tuple[list[bytes], type[LayerError]]] = {
    "1 a name with ..": ([archive(file(b"../x", b"1"))], UnsafePathError),
    "1 .. within a name": ([archive(file(b"a/../../x", b"1"))], UnsafePathError),
    "5 a hard link to outside": ([archive(hard_link(b"h", PRECIOUS))], UnsafePathError),
    "5 an absolute hard link": [archive(hard_link(b"h", b"/etc/passwd"))],
    "5 a hard link through a link": [
        archive(symlink(b"l", b"../outside"), hard_link(b"h", b"l/precious"))
    ],
    "6 a hard link to nothing": [archive(hard_link(b"h", b"nothing"))],
    "6 a hard link to an upper file": [archive(hard_link(b"h", b"up")), archive(file(b"up"))],
    "7 the root as a link": [archive(symlink(b".", b"/tmp"), F)],
    "7 the root as a file": [archive(file(b"/", b"1"))],
    "7 an empty name": [archive(symlink(b"", b"../outside"), file(b"precious", b"x"))],
    "8 a loop of links": [archive(symlink(b"a", b"b"), symlink(b"b", b"a"), file(b"a/x"))],
    "8 a link beyond PATH_MAX": [archive(pax((b"linkpath", b"x/" * 4000)) + symlink(b"a", b""))],
    "8 a path beyond all": [archive(pax((b"path", b"d/" * 100_000)) + directory(b"d"))],
    "8 a name beyond NAME_MAX": [archive(pax((b"path", b"n" * 256)) + file(b"n"))],
    "11 .wh. and no name": [archive(F), archive(file(b".wh."))],
    "11 a whiteout of .": [archive(F), archive(file(b".wh.."))],
    "11 a whiteout of ..": [archive(file(b"d/f")), archive(file(b"d/.wh..."))],
    "11 something below a whiteout": [archive(F), archive(file(b".wh.a/b"))],
    "11 a whiteout with a slash": [archive(F), archive(pax((b"path", b".wh.a/b")) + file(b"x"))],
    "19 a negative size": [archive(header(b"f", size_field=b"\xff" * 12))],
    "19 a size beyond 64 bits": [archive(header(b"f", size_field=BIG))],
    "19 a time beyond 64 bits": [archive(header(b"f", mtime=BIG))],
    "19 a negative user": [archive(header(b"f", uid=b"\xff" * 8))],
    "19 a user of 2^32": [archive(pax((b"uid", b"4294967296")) + F)],
    "19 sparse beyond its size": [
        archive(pax((b"GNU.sparse.map", b"9,1"), (b"GNU.sparse.size", b"9")) + F)
    ],
    "20 a PAX path with ..": ([archive(pax((b"path", b"../x")) + F)], UnsafePathError),
    "20 a PAX link target with ..": (
        [archive(F, pax((b"linkpath", PRECIOUS)) + hard_link(b"h", b"f"))],
        UnsafePathError,
    ),
    "20 two long names": [archive(archives.long_name(b"a") + pax((b"path", b"b")) + F)],
    "20 a global path": [archive(pax((b"path", b"x"), kind=b"g"), F)],
    "20 a larger PAX size": [pax((b"size", b"9999")) + file(b"f", b"1") + bytes(1024)],
    "21 cut within content": [archive(file(b"f", b"1" * 2000))[:1500]],
    "21 cut within a header": [archive(F, F)[:1400]],
    "21 one zero block within": [F + bytes(512) + file(b"g")],
    "21 junk after gzip": [gzipped(archive(F)) + b"junk"],
    "21 cut gzip": [gzipped(archive(F))[:-5]],
    "21 cut zstd": [zstandard_frame(archive(F))[:-5]],
    "22 a zstd window of 2 GiB": [b"\x28\xb5\x2f\xfd\0\xa8\1\0\0"],
    "23 a gzip bomb": ([gzip.compress(bytes(20 << 20), 9)], LimitError),
    "23 a zstd bomb": ([zstandard.compress(bytes(20 << 20))], LimitError),
    "23 a bomb in a file": ([gzipped(archive(file(b"f", bytes(20 << 20))))], LimitError),
    "23 too many files": ([archive(*[header(b"f")] * 1001)], LimitError),
    "23 too many files in all": ([archive(*[header(b"f")] * 501)] * 2, LimitError),
    "23 a sparse exbibyte": (
        [archive(pax((b"GNU.sparse.map", b"0,1"), (b"GNU.sparse.size", b"%d" % (1 << 60))) + F)],
        LimitError,
    ),
    "24 neither tar nor compressed": [b"<html>not found</html>" * 100],
    "24 JSON": [b'{"errors": []}'],
}


@pytest.mark.parametrize("row", REFUSED)
def test_refused(row: str, tmp_path: Path, outside: Path) -> None:
    case = REFUSED[row]
    layers, kind = case if isinstance(case, tuple) else (case, LayerError)
    with pytest.raises(kind) as caught:
        extract(tmp_path, layers)
    assert str(caught.value).startswith("layer ")
    assert str(caught.value).isprintable()
    check_untouched(tmp_path)


DEEP = b"/".join([b"d" * 100] * 100)
ACCEPTED: dict[str, tuple[list[bytes], set[str]]] = {
    "2 an absolute name": ([archive(file(b"/f", b"1"), file(b"//d//f"))], {"f", "d", "d/f"}),
    "3 a link, then a file behind it": (
        [
            archive(
                symlink(b"a", b"/outside"),
                symlink(b"b", b"../../outside"),
                file(b"a/f"),
                file(b"b/g"),
            )
        ],
        {"a", "b", "outside", "outside/f", "outside/g"},
    ),
    "4 a link takes a directory's place": (
        [archive(file(b"a/f"), symlink(b"a", b"../outside"), file(b"a/precious", b"x"))],
        {"a", "outside", "outside/precious"},
    ),
    "4 the same in another layer": (
        [
            archive(file(b"a/f")),
            archive(symlink(b"a", b"../outside")),
            archive(file(b"a/precious")),
        ],
        {"a", "outside", "outside/precious"},
    ),
    "5 an absolute hard link within": ([archive(F, hard_link(b"h", b"/f"))], {"f", "h"}),
    "7 the root as a directory": ([archive(directory(b"/", 0), directory(b"./"), F)], {"f"}),
    "9 one name, many types": (
        [
            archive(
                file(b"x", b"1"),
                directory(b"x"),
                file(b"x/y"),
                symlink(b"x", b"../outside"),
                file(b"x/precious", b"x"),
                directory(b"x"),
            )
        ],
        {"x", "outside", "outside/precious"},
    ),
    "10 a file over a full directory": (
        [archive(file(b"d/e/f", b"1")), archive(file(b"d", b"2"))],
        {"d"},
    ),
    "10 a link over a full directory": (
        [archive(file(b"d/precious", b"1")), archive(symlink(b"d", b"../outside"))],
        {"d"},
    ),
    "12 an opaque marker after its siblings": (
        [archive(file(b"d/low")), archive(file(b"d/up"), file(b"d/.wh..wh..opq"))],
        {"d", "d/up"},
    ),
    "13 a whiteout through a link": (
        [
            archive(symlink(b"l", b"../outside"), file(b"outside/precious"), file(b"outside/kept")),
            archive(file(b"l/.wh.precious")),
        ],
        {"l", "outside", "outside/kept"},
    ),
    "14 an overlay's whiteout": (
        [archive(F), archive(header(b"f", kind=CHAR))],
        {"f"},
    ),
    "14 an overlay's opaque directory": (
        [
            archive(file(b"d/f", b"1")),
            archive(pax((b"SCHILY.xattr.user.overlay.opaque", b"y")) + directory(b"d")),
        ],
        {"d", "d/f"},
    ),
    "15 devices and fifos": (
        [
            archive(
                header(b"c", kind=CHAR),
                header(b"p", kind=FIFO),
                directory(b"dev"),
                header(b"dev/sda", kind=b"4"),
            )
        ],
        {"p", "dev"},
    ),
    "18 names of all kinds": (
        [archive(*(file(name) for name in (b"\xff", b"a\nb", b"\x1b[2J", b"-rf", b"x" * 99)))],
        {"\udcff", "a\nb", "\x1b[2J", "-rf", "x" * 99},
    ),
    "20 a PAX path": ([archive(pax((b"path", b"p")) + file(b"../x", b"1"))], {"p"}),
    "21 no end mark": ([F], {"f"}),
    "21 zeros and junk after the end": ([archive(F) + bytes(5000) + b"junk"], {"f"}),
    "22 gzip members": ([gzipped(archive(F)[:700]) + gzipped(archive(F)[700:])], {"f"}),
    "22 zstd frames": (
        [
            b"\x50\x2a\x4d\x18\2\0\0\0xx"
            + zstandard_frame(archive(F)[:700])
            + zstandard_frame(archive(F)[700:])
        ],
        {"f"},
    ),
    "24 whatever the label says": (
        [archive(file(b"a")), gzipped(archive(file(b"b"))), zstandard_frame(archive(file(b"c")))],
        {"a", "b", "c"},
    ),
}


@pytest.mark.parametrize("row", ACCEPTED)
def test_accepted(row: str, tmp_path: Path, outside: Path) -> None:
    layers, names = ACCEPTED[row]
    assert extract(tmp_path, layers) == names
    check_untouched(tmp_path)


def test_row_8_a_tree_deeper_than_path_max(tmp_path: Path, outside: Path) -> None:
    extract(tmp_path, [archive(pax((b"path", DEEP)) + file(b"f", b"1"))])
    fd = os.open(tmp_path / "root", os.O_RDONLY)
    for _ in range(99):
        below = os.open("d" * 100, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=fd)
        os.close(fd)
        fd = below
    assert os.listdir(fd) == ["d" * 100]
    os.close(fd)
    check_untouched(tmp_path)


def test_row_15_devices_are_warned_about_once(tmp_path: Path, messages: list[str]) -> None:
    extract(tmp_path, [archive(*(header(b"c%d" % number, kind=CHAR) for number in range(9)))])
    assert len(messages) == 1
    assert "device nodes (9)" in messages[0]


def test_row_16_nothing_lends_privileges(tmp_path: Path) -> None:
    capability = pax((b"SCHILY.xattr.security.capability", b"\1\0\0\2" + bytes(16)))
    acl = pax((b"SCHILY.xattr.system.posix_acl_access", b"\2\0\0\0"))
    extract(
        tmp_path,
        [archive(file(b"s", b"x", mode=0o6755), capability + file(b"c", b"x"), acl + file(b"a"))],
    )
    root = tmp_path / "root"
    kept = 0o6755 if os.geteuid() == 0 else 0o755
    assert stat.S_IMODE((root / "s").stat().st_mode) == kept
    assert os.listxattr(root / "c") == os.listxattr(root / "a") == []


def test_row_17_modes_that_keep_everybody_out(tmp_path: Path) -> None:
    names = extract(
        tmp_path,
        [archive(directory(b"d", 0), file(b"d/f", b"x", mode=0), directory(b"d/e", 0o111))],
    )
    assert names == {"d", "d/f", "d/e"}
    assert (tmp_path / "root/d/f").read_bytes() == b"x"


def test_row_19_numbers_that_are_large_and_fine(tmp_path: Path) -> None:
    owner = header(b"a", uid=b"\x80\0\0\0\xff\xff\xff\xff", gid=b"\x80\0\0\0\xff\xff\xff\xfe")
    extract(tmp_path, [archive(owner, header(b"past", mtime=b"\xff" * 12))])
    assert (tmp_path / "root/a").stat().st_uid == os.geteuid()
    assert (tmp_path / "root/past").stat().st_mtime == 0


def test_row_23_ten_gibibytes_of_zeros_are_stopped_early(tmp_path: Path) -> None:
    """With the limits as they are by default; made here, as 10 MB of gzip, from one piece."""
    piece = zlib.compressobj(9, zlib.DEFLATED, 31)
    start = piece.compress(bytes(64 << 20)) + piece.flush()
    bomb = header(b"f", size_field=b"\x80" + (10 << 30).to_bytes(11, "big"))
    with pytest.raises(LimitError, match="bomb"):
        extract(tmp_path, [gzipped(bomb) + start * 160], Limits(ratio_floor=64 << 20))
    assert Limits().max_ratio
    assert Limits().ratio_floor <= 2 << 30
    assert Limits().max_entries
