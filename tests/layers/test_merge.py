"""Layers flattened: every rule by itself, and what is read, skipped and read again."""

from __future__ import annotations

import gc
import io
import random
import stat
from collections.abc import Iterator
from typing import BinaryIO

import pytest

from enroot_py import log
from enroot_py.errors import LayerError, LimitError, UnsafePathError
from enroot_py.layers.entry import Limits, Node, walk
from enroot_py.layers.merge import LayerMerger
from enroot_py.layers.tree import Tree
from tests.layers import archives
from tests.layers.archives import (
    MemorySink,
    archive,
    contents,
    directory,
    file,
    gzipped,
    hard_link,
    header,
    merge,
    pax,
    symlink,
    zstandard_frame,
)

OPAQUE = b".wh..wh..opq"


def tree(*layers: tuple[bytes, ...]) -> dict[bytes, object]:
    """Contents by path of layers given as members, base layer first."""
    return contents(merge(*(archive(*members) for members in layers)))


def node(root: Node, path: bytes) -> Node:
    for name in path.split(b"/"):
        assert root.children is not None
        root = root.children[name]
    return root


def test_an_image_without_layers_is_an_empty_root() -> None:
    assert contents(merge()) == contents(merge(b"", archive())) == {}


def test_upper_layers_win() -> None:
    found = tree(
        (directory(b"d"), file(b"d/a", b"1"), file(b"d/b", b"1")),
        (file(b"d/a", b"2"),),
        (file(b"d/a", b"3"), file(b"c", b"3")),
    )
    assert found == {b"c": b"3", b"d": None, b"d/a": b"3", b"d/b": b"1"}


def test_names_of_every_spelling_are_one() -> None:
    found = tree((file(b"./a/./b//c", b"1"),), (file(b"/a/b/c", b"2"),))
    assert found == {b"a": None, b"a/b": None, b"a/b/c": b"2"}


def test_directories_are_merged_and_take_the_upper_metadata() -> None:
    xattr = pax((b"SCHILY.xattr.user.x", b"1"))
    root = merge(
        archive(
            directory(b"./", 0o700), xattr + directory(b"d", 0o700, mtime=1), file(b"d/a", b"1")
        ),
        archive(directory(b"d", 0o711, mtime=2), file(b"d/b", b"2")),
        archive(file(b"d/c", b"3")),
    )
    found = node(root, b"d")
    assert (found.mode, found.mtime, found.xattrs, found.implied) == (0o711, 2, None, False)
    assert sorted(found.children or ()) == [b"a", b"b", b"c"]
    assert (root.mode, root.implied) == (0o700, False)


def test_missing_parents_are_implied_until_they_are_declared() -> None:
    root = merge(archive(file(b"a/b/c", b"1")), archive(directory(b"a", 0o700)))
    assert (node(root, b"a").implied, node(root, b"a/b").implied, root.implied) == (
        False,
        True,
        True,
    )
    assert (node(root, b"a/b").mode, node(root, b"a/b").mtime) == (0o755, 0)


@pytest.mark.parametrize(
    "upper",
    [file(b"x", b"new"), symlink(b"x", b"t"), header(b"x", kind=b"6")],
    ids=["file", "symlink", "fifo"],
)
def test_anything_else_replaces_a_directory_and_all_in_it(upper: bytes) -> None:
    lower = (directory(b"x"), file(b"x/a", b"1"), directory(b"x/d"), file(b"x/d/b", b"1"))
    assert list(tree(lower, (upper,))) == [b"x"]
    assert list(tree((*lower, upper))) == [b"x"]


@pytest.mark.parametrize(
    "lower",
    [file(b"x", b"old"), symlink(b"x", b"y"), symlink(b"x", b"/nowhere")],
    ids=["file", "link to a directory", "dangling link"],
)
def test_a_directory_replaces_anything_else(lower: bytes) -> None:
    found = tree((directory(b"y"), lower), (directory(b"x"), file(b"x/in", b"2")))
    assert found == {b"x": None, b"x/in": b"2", b"y": None}


def test_the_last_of_several_members_with_one_name_counts() -> None:
    members = (
        file(b"a", b"1"),
        directory(b"a"),
        file(b"a/in", b"1"),
        symlink(b"a", b"b"),
        directory(b"b"),
        file(b"a/behind", b"2"),
        file(b"c", b"1"),
        file(b"c", b"22"),
    )
    assert tree(members) == {b"a": b"-> b", b"b": None, b"b/behind": b"2", b"c": b"22"}


def test_a_parent_that_only_a_lower_layer_declares_as_a_link_is_followed() -> None:
    found = tree(
        (directory(b"usr/lib"), symlink(b"lib", b"usr/lib"), file(b"usr/lib/old", b"1")),
        (file(b"lib/new", b"2"), file(b"lib/old", b"2")),
        (file(b"lib/.wh.new"),),
    )
    assert found == {b"lib": b"-> usr/lib", b"usr": None, b"usr/lib": None, b"usr/lib/old": b"2"}


@pytest.mark.parametrize(
    ("target", "place"),
    [
        (b"/tmp", b"tmp/f"),
        (b"/../../tmp", b"tmp/f"),
        (b"../../../tmp", b"tmp/f"),
        (b"/", b"f"),
        (b"..", b"f"),
        (b"missing/deep", b"d/missing/deep/f"),
        (b"/d/other", b"d/real/f"),
        (b"real/../real/.", b"d/real/f"),
    ],
)
def test_links_are_followed_beneath_the_root(target: bytes, place: bytes) -> None:
    lower = (directory(b"d/real"), symlink(b"d/other", b"real"), symlink(b"d/link", target))
    for layers in ((lower, (file(b"d/link/f", b"1"),)), ((*lower, file(b"d/link/f", b"1")),)):
        assert tree(*layers)[place] == b"1"


def test_a_link_that_replaces_a_directory_takes_effect_at_once() -> None:
    """What was known about a path must not outlive a change to one of its components."""
    members = (
        file(b"d/one", b"1"),
        directory(b"elsewhere"),
        symlink(b"d", b"elsewhere"),
        file(b"d/two", b"2"),
        symlink(b"d", b"third"),
        file(b"d/three", b"3"),
    )
    assert tree(members) == {
        b"d": b"-> third",
        b"elsewhere": None,
        b"elsewhere/two": b"2",
        b"third": None,
        b"third/three": b"3",
    }


def test_whiteouts() -> None:
    lower = (
        file(b"a", b"1"),
        file(b"d/x", b"1"),
        file(b"d/y", b"1"),
        file(b"e/f/g", b"1"),
        symlink(b"l", b"d"),
        file(b"notes.wh.txt", b"1"),
    )
    upper = (file(b".wh.a"), file(b"d/.wh.x"), file(b".wh.e"), file(b".wh.l"), file(b".wh.none"))
    assert tree(lower, upper) == {b"d": None, b"d/y": b"1", b"notes.wh.txt": b"1"}
    assert tree(lower, (header(b".wh.e/", kind=b"5"), file(b"nowhere/.wh.x"))) == tree(
        lower, (file(b".wh.e"),)
    )


def test_a_removed_name_can_come_back_as_something_else() -> None:
    """Case C01, t/wh."""
    lower = (
        directory(b"x"),
        file(b"x/dir/old", b"1"),
        file(b"x/file", b"1"),
        file(b"x/gone", b"1"),
    )
    upper = (
        file(b"x/.wh.dir"),
        file(b"x/dir", b"now a file"),
        file(b"x/.wh.file"),
        directory(b"x/file"),
        file(b"x/file/in", b"2"),
        file(b"x/.wh.gone"),
    )
    expected = {b"x": None, b"x/dir": b"now a file", b"x/file": None, b"x/file/in": b"2"}
    assert tree(lower, upper) == expected
    assert tree(lower, upper[::2] + upper[1::2]) == expected


@pytest.mark.parametrize("first", [True, False], ids=["marker first", "marker last"])
def test_opaque_directories(first: bool) -> None:
    """Case C01, t/opq: only lower layers are hidden, whichever comes first in the archive."""
    lower = (
        directory(b"srv/a"),
        file(b"srv/a/old", b"1"),
        file(b"srv/a/keepname", b"lower"),
        file(b"srv/a/sub/old", b"1"),
        file(b"srv/b/old", b"1"),
    )
    own = (
        file(b"srv/a/new", b"2"),
        file(b"srv/a/keepname", b"upper"),
        file(b"srv/a/sub/new", b"2"),
        file(b"srv/b/new", b"2"),
    )
    markers = (file(b"srv/a/" + OPAQUE), file(b"srv/b/" + OPAQUE))
    upper = markers + own if first else own + markers
    assert tree(lower, upper) == {
        b"srv": None,
        b"srv/a": None,
        b"srv/a/keepname": b"upper",
        b"srv/a/new": b"2",
        b"srv/a/sub": None,
        b"srv/a/sub/new": b"2",
        b"srv/b": None,
        b"srv/b/new": b"2",
    }


def test_an_opaque_root_hides_everything() -> None:
    assert tree((file(b"a/b", b"1"),), (file(OPAQUE), file(b"c", b"2"))) == {b"c": b"2"}


def test_an_opaque_directory_in_place_of_a_link_spares_where_that_led() -> None:
    lower = (file(b"real/kept", b"1"), symlink(b"d", b"real"))
    upper = (directory(b"d"), file(b"d/" + OPAQUE), file(b"d/new", b"2"))
    assert tree(lower, upper)[b"real/kept"] == b"1"


def test_whiteouts_through_a_link_stay_inside() -> None:
    lower = (file(b"real/x", b"1"), file(b"real/y", b"1"), symlink(b"l", b"/../real"))
    assert b"real/x" not in tree(lower, (file(b"l/.wh.x"),))
    assert list(tree(lower, (file(b"l/" + OPAQUE),))) == [b"l", b"real"]


def test_whiteouts_never_remove_what_their_own_layer_has() -> None:
    lower = (file(b"d/low", b"1"), file(b"d/sub/low", b"1"))
    own = (file(b"d/own", b"2"), file(b"d/sub/own", b"2"), file(b"f", b"2"))
    markers = (file(b".wh.d"), file(b".wh.f"), file(b"d/.wh.own"))
    expected = {b"d": None, b"d/own": b"2", b"d/sub": None, b"d/sub/own": b"2", b"f": b"2"}
    assert tree(lower, own + markers) == tree(lower, markers + own) == expected


def test_aufs_files_are_no_part_of_an_image() -> None:
    members = (
        file(b".wh..wh.aufs"),
        directory(b".wh..wh.plnk"),
        file(b".wh..wh.plnk/1234.5678", b"x"),
        directory(b".wh..wh.orph/"),
        file(b"a", b"1"),
    )
    assert tree((file(b".wh.aufs.kept", b""), file(b"b", b"1")), members) == {
        b"a": b"1",
        b"b": b"1",
    }


def test_hard_links_share_one_inode() -> None:
    root = merge(
        archive(file(b"a", b"1", mtime=5), hard_link(b"b", b"a"), hard_link(b"d/c", b"./a")),
        archive(hard_link(b"e", b"/b"), file(b"a", b"2")),
    )
    shared = node(root, b"b")
    assert shared is node(root, b"d/c") is node(root, b"e")
    assert (shared.content, shared.mtime) == (b"1", 5)
    assert node(root, b"a").content == b"2"


def test_hard_links_to_links_and_through_links() -> None:
    members = (
        symlink(b"s", b"nowhere"),
        hard_link(b"t", b"s"),
        directory(b"d"),
        file(b"d/f", b"1"),
        symlink(b"l", b"d"),
        hard_link(b"g", b"l/f"),
        hard_link(b"l/h", b"g"),
        hard_link(b"d/f", b"d/f"),
    )
    root = merge(archive(*members))
    assert node(root, b"s") is node(root, b"t")
    assert node(root, b"d/f") is node(root, b"g") is node(root, b"d/h")


def test_a_hard_link_may_replace_the_directory_of_its_target() -> None:
    assert tree((file(b"d/f", b"1"), hard_link(b"d", b"d/f"))) == {b"d": b"1"}


@pytest.mark.parametrize("target", [b"missing", b"d", b"f/x", b"later", b"d/gone"])
def test_hard_links_without_a_target_are_refused_by_name(target: bytes) -> None:
    lower = (directory(b"d"), file(b"f", b"1"), file(b"d/gone", b"1"))
    with pytest.raises(LayerError, match="hard link to a") as caught:
        tree(lower, (file(b"d/.wh.gone"), hard_link(b"h", target), file(b"later", b"1")))
    assert f"'{target.decode()}'" in str(caught.value)
    assert str(caught.value).startswith("layer 1: ")


def test_a_replaced_file_lives_on_under_its_other_names() -> None:
    """Its bytes were skipped when its layer streamed past, and are fetched again."""
    sink = MemorySink()
    lower = archive(
        file(b"a", b"old"), hard_link(b"b", b"a"), file(b"c", b"gone"), file(b"z", b"z")
    )
    root = merge(lower, archive(file(b"a", b"new"), file(b"c", b"new")), sink=sink)
    assert contents(root) == {b"a": b"new", b"b": b"old", b"c": b"new", b"z": b"z"}
    assert sink.added == len(b"new" + b"new" + b"z" + b"old")


def test_sparse_files_are_fetched_again_too() -> None:
    extents = b"%011o\0%011o\0" % (4, 2)
    sparse = header(b"a", 2, b"S", patch=(386, extents.ljust(97, b"\0") + b"%011o\0" % 8))
    lower = archive(sparse + archives.padded(b"xy"), hard_link(b"b", b"a"))
    sink = MemorySink()
    root = merge(lower, archive(file(b"a", b"new")), sink=sink)
    assert node(root, b"b").content == b"\0\0\0\0xy\0\0"
    assert sink.extents == [[(4, 2)]]


def test_layers_are_opened_once_unless_bytes_are_missing() -> None:
    opened: list[int] = []

    def opener(number: int, data: bytes) -> object:
        def open_layer() -> BinaryIO:
            opened.append(number)
            return io.BytesIO(data)

        return open_layer

    layers = [
        archive(file(b"a", b"0"), hard_link(b"b", b"a"), symlink(b"l", b"r"), file(b"r/x", b"0")),
        archive(file(b"r/y", b"1"), file(b"x", b"1")),
        archive(file(b"a", b"2"), file(b".wh.x"), file(b"l/x", b"2")),
    ]
    sink = MemorySink()
    merger = LayerMerger(sink)
    for number in (2, 1, 0):
        merger.add_layer(opener(number, layers[number]), f"layer {number}")  # type: ignore[arg-type]
    assert opened == [2, 1, 0]
    found = contents(merger.finish())
    assert opened == [2, 1, 0, 0]
    assert found == {
        b"a": b"2", b"b": b"0", b"l": b"-> r", b"r": None, b"r/x": b"2", b"r/y": b"1",
    }  # fmt: skip


def test_a_layer_that_differs_when_read_again_is_refused() -> None:
    lower = [
        archive(file(b"a", b"old"), hard_link(b"b", b"a")),
        archive(file(b"a", b"longer"), hard_link(b"b", b"a")),
    ]
    for second in (lower[1], archive()):
        versions = iter([lower[0], second])
        merger = LayerMerger(MemorySink())
        merger.add_layer(archives.opener(archive(file(b"a", b"new"))), "upper")
        merger.add_layer(lambda versions=versions: io.BytesIO(next(versions)), "lower")  # type: ignore[misc]
        with pytest.raises(LayerError, match="lower: the layer changed"):
            merger.finish()


def test_hidden_contents_are_not_copied() -> None:
    sink = MemorySink()
    lower = archive(
        file(b"replaced", b"x" * 1000),
        file(b"removed", b"x" * 1000),
        file(b"gone/deep/file", b"x" * 1000),
        file(b"opaque/deep/file", b"x" * 1000),
        file(b"flipped/file", b"x" * 1000),
        file(b"kept", b"x"),
    )
    upper = archive(
        file(b"replaced", b"y"),
        file(b".wh.removed"),
        file(b".wh.gone"),
        file(b"opaque/" + OPAQUE),
        symlink(b"flipped", b"kept"),
    )
    merge(lower, lower, upper, sink=sink)
    assert sink.added == 2


def test_a_layer_listed_twice_is_harmless() -> None:
    """Case C01, t/dup."""
    layer = archive(directory(b"d"), file(b"d/one", b"1"), hard_link(b"d/two", b"d/one"))
    root = merge(layer, layer)
    assert contents(root) == {b"d": None, b"d/one": b"1", b"d/two": b"1"}
    assert node(root, b"d/one") is node(root, b"d/two")


def test_many_layers() -> None:
    """Case C01, t/many: 141 layers."""
    layers = [archive(file(b"last", b"%d" % n), file(b"n/%03d" % n, b"%d" % n)) for n in range(141)]
    found = tree()
    found = contents(merge(*layers))
    assert found[b"last"] == b"140"
    assert len(found) == 1 + 1 + 141


def test_layers_of_different_compression() -> None:
    members = [archive(file(b"%d" % number, b"x" * 1000)) for number in range(3)]
    found = contents(merge(members[0], gzipped(members[1]), zstandard_frame(members[2])))
    assert found == {b"%d" % number: b"x" * 1000 for number in range(3)}


def test_look_alikes_of_system_folders_are_kept() -> None:
    members = (
        file(b"usr/share/dev/x", b"1"),
        file(b"opt/proc/y", b"1"),
        file(b"device", b"1"),
        directory(b"dev", 0o700),
        directory(b"dev/pts"),
        file(b"dev/shm/x", b"1"),
        symlink(b"dev/fd", b"/proc/self/fd"),
        header(b"dev/null", kind=b"3"),
        file(b"dev/.wh.x"),
    )
    assert list(tree(members)) == [
        b"dev", b"device", b"opt", b"opt/proc", b"opt/proc/y",
        b"usr", b"usr/share", b"usr/share/dev", b"usr/share/dev/x",
    ]  # fmt: skip


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    texts: list[str] = []
    log.set_sink(lambda level, text: texts.append(f"{level} {text}"))
    yield texts
    log.set_sink(None)


def test_device_nodes_are_left_out_with_one_warning(warnings: list[str]) -> None:
    """Case C02, t/odd: and they are no whiteouts, whatever their numbers."""
    found = tree(
        (file(b"kept", b"1"), header(b"b", kind=b"4"), hard_link(b"c", b"b")),
        (header(b"kept", kind=b"3"), header(b"a", kind=b"3"), hard_link(b"d", b"dev/null")),
        (hard_link(b"e", b"a"), header(b"fifo", kind=b"6", mode=0o600)),
    )
    assert found == {b"kept": b"1", b"fifo": b""}
    assert len(warnings) == 1
    assert "device nodes (3)" in warnings[0]


def test_modes_and_times_are_exact() -> None:
    root = merge(
        archive(
            file(b"setuid", b"x", mode=0o4755, mtime=1),
            file(b"none", b"x", mode=0),
            directory(b"sticky", 0o1777, mtime=2),
            header(b"past", mtime=b"\xff" * 12),
        )
    )
    modes = {path: entry.mode for path, entry in walk(root)}
    assert modes == {b"none": 0, b"past": 0o644, b"setuid": 0o4755, b"sticky": 0o1777}
    assert node(root, b"past").mtime == -1
    assert stat.S_ISDIR(node(root, b"sticky").kind)


@pytest.mark.parametrize(
    "name",
    [b"../x", b"a/../x", b"a/../../x", b"..", b"/..", b"./../x", b"a/..", b"../", b"a/b/.."],
)
def test_names_that_lead_out_are_refused(name: bytes) -> None:
    for member in (file(name, b"x"), directory(name), symlink(name, b"x"), hard_link(name, b"f")):
        with pytest.raises(UnsafePathError, match="leads out"):
            tree((file(b"f", b"1"), member))
    with pytest.raises(UnsafePathError, match="leads out"):
        tree((file(b"f", b"1"), hard_link(b"g", name)))
    with pytest.raises(UnsafePathError, match="leads out"):
        tree((pax((b"path", name)) + file(b"harmless", b"x"),))


@pytest.mark.parametrize("name", [b".", b"./", b"/", b"//", b"", b"./."])
def test_the_root_stays_a_directory(name: bytes) -> None:
    for member in (symlink(name, b"/tmp"), file(name, b"x"), header(name, kind=b"6")):
        with pytest.raises(LayerError, match="root directory is replaced"):
            tree((file(b"f", b"1"), member))
    root = merge(archive(file(b"f", b"1"), directory(name, 0o700)))
    assert (root.mode, contents(root)) == (0o700, {b"f": b"1"})


@pytest.mark.parametrize(
    "name",
    [b".wh.", b".wh..", b".wh...", b"d/.wh.", b"d/.wh..", b"d/.wh...", b".wh.d/x", b".wh.a/"],
)
def test_whiteouts_that_name_nothing_are_refused_or_ignored(name: bytes) -> None:
    lower = (file(b"d/x", b"1"), file(b"x", b"1"))
    if name == b".wh.a/":
        assert len(tree(lower, (file(name),))) == 3
        return
    with pytest.raises(LayerError, match="whiteout"):
        tree(lower, (file(name),))


LONG_LINK = pax((b"linkpath", b"a/" * 2000)) + symlink(b"b", b"")


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ((symlink(b"a", b"b"), symlink(b"b", b"a"), file(b"a/x", b"1")), "symbolic links"),
        ((symlink(b"a", b"a"), file(b"a/x", b"1")), "symbolic links"),
        ((symlink(b"a", b"a/a"), file(b"a/.wh.x")), "symbolic links"),
        (
            (
                symlink(b"a", b"."),
                pax((b"linkpath", b"a/" * 2000)) + symlink(b"b", b""),
                file(b"b/x"),
            ),
            "symbolic links",
        ),
        ((file(b"a", b"1"), file(b"a/x", b"1")), "not a directory"),
        ((file(b"a", b"1"), symlink(b"b", b"a"), file(b"b/x/y", b"1")), "not a directory"),
        ((header(b"a", kind=b"6"), directory(b"a/d")), "not a directory"),
        ((pax((b"path", b"x" * 256)) + file(b"a"),), "too long"),
        ((pax((b"path", b".wh." + b"x" * 256)) + file(b"a"),), "too long"),
        ((pax((b"path", b"x" * 256 + b"/a")) + file(b"a"),), "too long"),
        ((pax((b"path", b"x/" * 9000)) + file(b"a"),), "too long"),
    ],
)
def test_paths_that_lead_nowhere_are_refused(members: tuple[bytes, ...], message: str) -> None:
    with pytest.raises(LayerError, match=message) as caught:
        tree(members)
    assert str(caught.value).startswith("layer 0: ")


def test_forty_links_are_followed_as_in_linux() -> None:
    chain = [symlink(b"l%d" % n, b"l%d" % (n + 1)) for n in range(41)]
    members = (directory(b"l40"), *chain[:40], file(b"l0/x", b"1"))
    assert tree(members)[b"l40/x"] == b"1"
    with pytest.raises(LayerError, match="symbolic links"):
        tree((directory(b"l41"), *chain, file(b"l0/x", b"1")))


def test_names_and_depths_at_the_limits() -> None:
    deep = b"/".join([b"d" * 100] * 100)
    names = [b"x" * 255, b"\n\x1b[31m", b"-rf", b"\xff\xfe", "😀".encode(), b" ", b"a\\b"]
    members = [pax((b"path", name)) + file(b"p", b"1") for name in (*names, deep)]
    found = tree(tuple(members))
    assert found[deep] == b"1"
    assert set(names) <= set(found)


def test_the_longest_names_can_be_removed() -> None:
    name = b"x" * 255
    marker = pax((b"path", b".wh." + name)) + file(b"a")
    assert tree((pax((b"path", name)) + file(b"a"),), (marker,)) == {}


def test_entries_are_limited_over_all_layers() -> None:
    layer = archive(*(file(b"%d" % number) for number in range(6)))
    assert len(contents(merge(layer, layer, limits=Limits(max_entries=12)))) == 6
    with pytest.raises(LimitError, match="more than 11 entries"):
        merge(layer, layer, limits=Limits(max_entries=11))


def test_bytes_are_limited_over_all_layers() -> None:
    layer = archive(file(b"a", bytes(100_000)))
    assert merge(layer, gzipped(layer), limits=Limits(max_bytes=2 * len(layer)))
    with pytest.raises(LimitError, match="layer 0: the layers expand to more than"):
        merge(layer, gzipped(layer), limits=Limits(max_bytes=2 * len(layer) - 1))
    padding = archive() + bytes(3 << 20)
    with pytest.raises(LimitError, match="layer 0"):
        merge(layer, padding, limits=Limits(max_bytes=len(padding)))


@pytest.mark.parametrize("size", [1 << 60, 5 << 40])
def test_sparse_files_are_limited_by_what_they_pretend(size: int) -> None:
    map_records = ((b"GNU.sparse.map", b"0,1"), (b"GNU.sparse.size", b"%d" % size))
    with pytest.raises(LimitError, match="pretend"):
        tree((pax(*map_records) + file(b"s", b"x"),))


def test_many_whiteouts_of_one_directory_take_no_quadratic_time() -> None:
    """Counted, not timed: 300 markers over 300 names of their own layer look at each name once."""
    looked_at = 0

    class Counting(dict[bytes, Node]):
        def items(self):  # type: ignore[no-untyped-def]
            nonlocal looked_at
            looked_at += len(self)
            return super().items()

    built = Tree()
    built.begin_layer(whiteouts=True)
    for number in range(300):
        built.place(b"d", b"%d" % number, Node(stat.S_IFREG, 0o644))
    folder = node(built.root, b"d")
    for _ in range(300):
        folder.children = Counting(folder.children or {})
        built.remove(b"d", b"")
    assert len(folder.children or ()) == 300
    assert looked_at == 300


def test_the_order_of_contents_is_that_of_the_layers() -> None:
    """Images are deterministic: so must be the order in which a sink sees contents."""
    seen: list[bytes] = []

    class Recording(MemorySink):
        def add(self, source, size, extents=None):  # type: ignore[no-untyped-def]
            token = super().add(source, size, extents)
            seen.append(token)  # type: ignore[arg-type]
            return token

    names = list(range(200))
    random.Random(1).shuffle(names)
    lower = archive(*(file(b"%d" % n, b"low%d" % n) for n in names), hard_link(b"h", b"7"))
    merge(lower, gzipped(archive(file(b"7", b"up"))), sink=Recording())
    assert seen == [b"up", *(b"low%d" % n for n in names if n != 7), b"low7"]


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_as_before(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        tree((file(b"a", b"1"),))
        with pytest.raises(LayerError):
            tree((file(b"../a", b"1"),))
        with pytest.raises(LayerError):
            tree((hard_link(b"a", b"b"),))
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()
