"""Random layers, valid and not, against the plain model and against damage."""

from __future__ import annotations

import stat

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from enroot_py.errors import LayerError
from enroot_py.layers.entry import Limits, Node, walk
from tests.layers import archives, model
from tests.layers.model import Action

# Few names, so that actions meet; short paths more often than long ones.
NAMES = st.sampled_from([b"a", b"b"])
PATHS = st.one_of(
    st.tuples(NAMES),
    st.tuples(NAMES, NAMES),
    st.tuples(NAMES, NAMES),
    st.tuples(NAMES, NAMES, NAMES),
)
TARGETS = st.one_of(
    PATHS.map(b"/".join),
    PATHS.map(lambda path: b"/" + b"/".join(path)),
    PATHS.map(lambda path: b"../" + b"/".join(path)),
    st.sampled_from([b".", b"..", b"/", b"../../..", b"a/../b"]),
)
MODES = st.sampled_from([0o644, 0o755, 0o4755, 0])
ACTIONS = st.one_of(
    st.builds(Action, st.just("directory"), PATHS, mode=MODES),
    st.builds(Action, st.just("file"), PATHS, content=st.binary(max_size=3), mode=MODES),
    st.builds(Action, st.just("file"), PATHS, content=st.binary(min_size=1, max_size=3)),
    st.builds(Action, st.just("symlink"), PATHS, target=TARGETS),
    st.builds(Action, st.just("link"), PATHS, target=PATHS.map(b"/".join)),
    st.builds(Action, st.just("whiteout"), PATHS),
    st.builds(Action, st.just("opaque"), st.lists(NAMES, max_size=2).map(tuple)),
    st.builds(Action, st.just("char"), PATHS),
)
ANY_LAYERS = st.lists(st.lists(ACTIONS, min_size=3, max_size=10), min_size=1, max_size=3)
# Most random layers have something that is refused; three quarters are mended.
LAYERS = st.one_of(
    ANY_LAYERS,
    ANY_LAYERS.map(model.valid),
    ANY_LAYERS.map(model.valid),
    ANY_LAYERS.map(model.valid),
)
KINDS = {stat.S_IFDIR: "directory", stat.S_IFREG: "file", stat.S_IFLNK: "symlink"}


def as_model(root: Node) -> dict[model.Path, tuple[object, ...]]:
    """The tree in the model's terms; the same number for the same inode."""
    numbers: dict[Node, int] = {}
    found: dict[model.Path, tuple[object, ...]] = {}
    for path, node in walk(root):
        inode = numbers.setdefault(node, len(numbers))
        content = node.target or node.content or b""
        mode = "any" if node.kind == stat.S_IFLNK else "implied" if node.implied else node.mode
        found[tuple(path.split(b"/"))] = (KINDS[node.kind], content, mode, inode)
    return found


def from_model(system: model.FileSystem) -> dict[model.Path, tuple[object, ...]]:
    numbers: dict[model.Inode, int] = {}
    found: dict[model.Path, tuple[object, ...]] = {}
    for path, node in sorted(system.nodes.items()):
        if path:
            inode = numbers.setdefault(node, len(numbers))
            mode = "any" if node.kind == "symlink" else "implied" if node.implied else node.mode
            found[path] = (node.kind, node.content, mode, inode)
    return found


def check_against_model(layers: list[list[Action]]) -> None:
    data = [archives.archive(*(action.member() for action in layer)) for layer in layers]
    try:
        expected = from_model(model.merge(layers))
    except model.Refused:
        with pytest.raises(LayerError):
            archives.merge(*data)
        return
    assert as_model(archives.merge(*data)) == expected


@settings(max_examples=1200)
@given(LAYERS)
def test_merge_equals_the_model(layers: list[list[Action]]) -> None:
    check_against_model(layers)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@settings(max_examples=30_000, derandomize=False, suppress_health_check=list(HealthCheck))
@given(LAYERS)
def test_merge_equals_the_model_for_long(layers: list[list[Action]]) -> None:
    check_against_model(layers)


DAMAGE = st.one_of(
    st.tuples(st.just("cut"), st.integers(0, 1 << 16), st.just(b"")),
    st.tuples(st.just("set"), st.integers(0, 1 << 16), st.binary(min_size=1, max_size=12)),
    st.tuples(st.just("insert"), st.integers(0, 1 << 16), st.binary(min_size=1, max_size=600)),
)


def damaged(data: bytes, how: tuple[str, int, bytes]) -> bytes:
    kind, at, junk = how
    at %= len(data) + 1
    if kind == "cut":
        return data[:at]
    return data[:at] + junk + data[at + (len(junk) if kind == "set" else 0) :]


def rechecked(data: bytes) -> bytes:
    """Give every block the checksum of a header, so that damage gets past the first gate."""
    blocks = []
    for at in range(0, len(data), archives.BLOCK):
        block = bytearray(data[at : at + archives.BLOCK])
        if len(block) == archives.BLOCK and any(block):
            block[148:156] = b" " * 8
            block[148:156] = b"%06o\0 " % sum(block)
        blocks.append(bytes(block))
    return b"".join(blocks)


def check_damaged(
    layers: list[list[Action]], how: tuple[str, int, bytes], recheck: bool, extra: bytes
) -> None:
    members = [action.member() for layer in layers for action in layer]
    data = damaged(archives.archive(extra, *members), how)
    if recheck:
        data = rechecked(data)
    for form in (data, archives.gzipped(data), damaged(archives.gzipped(data), how)):
        try:
            root = archives.merge(form, limits=Limits(max_sparse_bytes=1 << 20))
        except LayerError as error:
            assert str(error).startswith("layer 0: ")
            continue
        for _, node in walk(root):
            for name in node.children or ():
                assert name not in (b"", b".", b"..")
                assert b"/" not in name
                assert b"\0" not in name


EXTRAS = st.sampled_from(
    [
        archives.pax((b"path", b"a/b"), (b"mtime", b"1.5"), (b"SCHILY.xattr.user.x", b"\0=\n")),
        archives.long_name(b"a/" + b"b" * 120),
        archives.header(b"a", 4, b"S", patch=(386, b"%011o\0%011o\0" % (8, 4)))
        + archives.padded(b"1"),
        archives.pax(
            (b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.realsize", b"9")
        )
        + archives.header(b"a", 513)
        + archives.padded(b"1\n8\n1\n")
        + archives.padded(b"x"),
        archives.pax((b"GNU.sparse.map", b"0,1,5,2"), (b"GNU.sparse.size", b"9"))
        + archives.file(b"a", b"123"),
        b"",
    ]
)


@settings(max_examples=600)
@given(LAYERS, DAMAGE, st.booleans(), EXTRAS)
def test_damage_is_refused_or_harmless(
    layers: list[list[Action]], how: tuple[str, int, bytes], recheck: bool, extra: bytes
) -> None:
    check_damaged(layers, how, recheck, extra)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@settings(max_examples=30_000, derandomize=False, suppress_health_check=list(HealthCheck))
@given(LAYERS, DAMAGE, st.booleans(), EXTRAS)
def test_damage_is_refused_or_harmless_for_long(
    layers: list[list[Action]], how: tuple[str, int, bytes], recheck: bool, extra: bytes
) -> None:
    check_damaged(layers, how, recheck, extra)
