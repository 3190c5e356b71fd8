"""Imports of images from a real registry, entry by entry beside umoci's unpacking of the same.

Left out of the comparison: the files that importing generates, `/dev`, device nodes, and mode, time
and attributes of directories that no layer declares. Files of the root's: umoci then keeps owners,
attributes and modes exactly as the layers have them.
"""

from __future__ import annotations

import io
import os
import random
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from enroot_py.operations.import_image import import_image
from tests.layers import model
from tests.registry.docker_registry import docker_registry
from tests.registry.images import (
    DOCKER,
    ImageStore,
    Layer,
    block_device,
    character_device,
    decompress,
    directory,
    fifo,
    file,
    hardlink,
    opaque,
    symlink,
    tar_bytes,
    whiteout,
    xattrs,
)
from tests.registry.pulling import make_settings
from tests.squashfs.trees import CAPABILITY, Facts, facts_of_folder, facts_of_image

pytestmark = [pytest.mark.network, pytest.mark.root]

GENERATED = {b"etc/rc", b"etc/rc.local", b"etc/fstab", b"etc/environment"}

BASE = [
    directory("etc", mtime=1_500_000_000),
    file("etc/passwd", "root:x:0:0::/root:/bin/sh\n", mtime=1_500_000_001),
    directory("usr"),
    directory("usr/bin"),
    directory("usr/lib"),
    file("usr/bin/tool", os.urandom(5000), 0o755),
    file("usr/bin/big", bytes(range(256)) * 3000, 0o755),
    file("usr/lib/empty"),
    symlink("usr/bin/alias", "tool", mtime=1_400_000_000),
    symlink("lib", "usr/lib"),
    symlink("dangling", "/no/such/file"),
]


def base(style: str = "oci", *compressions: str) -> Callable[[ImageStore], None]:
    def build(store: ImageStore) -> None:
        upper = [directory("opt", 0o700), file("opt/added", "x" * 100), file("etc/passwd", "new")]
        parts = [BASE, upper, [file("opt/last", "y")]]
        layers = [Layer(part, how) for part, how in zip(parts, compressions * 3, strict=False)]
        store.image("t/image", "1", layers, style=style)

    return build


def layers(*parts: list[object] | bytes) -> Callable[[ImageStore], None]:
    def build(store: ImageStore) -> None:
        store.image("t/image", "1", [Layer(part) for part in parts])  # type: ignore[arg-type]

    return build


def index_of_two_platforms(store: ImageStore) -> None:
    entries = [store.attestation("t/image")]
    for architecture in ("arm64", "amd64"):
        parts = [BASE, [file("etc/ARCH", architecture)]]
        built = store.image("t/image", "", parts, architecture=architecture)  # type: ignore[arg-type]
        entries.append((built.manifest, f"linux/{architecture}"))
    store.index("t/image", "1", entries)


def sparse_archive() -> bytes:
    """A sparse file of PAX version 1.0, the one kind that umoci can read."""
    table = b"2\n0\n4\n2097152\n4\n".ljust(512, b"\0")
    records = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "sparse",
        "GNU.sparse.realsize": str(3 << 20),
    }
    return tar_bytes([file("GNUSparseFile.1/sparse", table + b"headtail", pax=records), file("z")])


def odd_modes() -> list[object]:
    entries: list[object] = [directory("d")]
    for mode in (0, 0o111, 0o400, 0o444, 0o555, 0o4755, 0o2755, 0o1644, 0o6777, 0o7777):
        entries += [file(f"d/f{mode:04o}", "x", mode), directory(f"d/d{mode:04o}", mode)]
        entries.append(file(f"d/d{mode:04o}/in", "x", mode))
    return [*entries, directory("ro", 0o555), file("ro/a", "a"), directory("ro/sub", 0o500)]


LONG = "/".join(["directory-" + "x" * 50] * 5)
FIXTURES: dict[str, Callable[[ImageStore], None]] = {
    "gzip": base("oci", "gzip"),
    "docker": base(DOCKER, "gzip"),
    "zstd": base("oci", "zstd"),
    "uncompressed": base("oci", "none"),
    "mixed": base("oci", "gzip", "zstd", "none"),
    "index": index_of_two_platforms,
    "whiteouts": layers(
        [directory("x"), file("x/dir/old", "1"), file("x/file", "1"), file("x/gone"), *BASE],
        [
            whiteout("x/dir"),
            file("x/dir", "now a file"),
            whiteout("x/file"),
            directory("x/file"),
            file("x/file/in", "2"),
            whiteout("x/gone"),
            whiteout("usr/lib"),
            whiteout("dangling"),
            file("notes.wh.txt", "kept"),
        ],
    ),
    "whiteout after its sibling": layers(
        [directory("d"), file("d/low", "1"), file("f", "1")],
        [directory("d", 0o700), file("d/own", "2"), whiteout("d"), file("f", "2"), whiteout("f")],
    ),
    "opaque first": layers(
        [directory("a"), file("a/old", "1"), directory("a/sub"), file("a/sub/old", "1")],
        [
            directory("a"),
            opaque("a"),
            file("a/new", "2"),
            directory("a/sub"),
            file("a/sub/new", "2"),
        ],
    ),
    "opaque last": layers(
        [directory("a"), file("a/old", "1"), directory("a/sub"), file("a/sub/old", "1")],
        [
            directory("a"),
            file("a/new", "2"),
            directory("a/sub"),
            file("a/sub/new", "2"),
            opaque("a"),
        ],
    ),
    "type flips": layers(
        [
            directory("d"),
            directory("d/full"),
            file("d/full/x", "1"),
            file("f", "1"),
            symlink("l", "d"),
        ],
        [
            file("d/full", "file now"),
            directory("f"),
            file("f/in", "2"),
            directory("l"),
            file("l/in"),
        ],
        [symlink("f", "d"), fifo("l", 0o640)],
    ),
    "hard links": layers(
        [file("a", "1" * 5000, mtime=55), hardlink("b", "a"), hardlink("c", "b"), file("e")],
        [hardlink("d", "/a"), hardlink("f", "e"), symlink("s", "a"), hardlink("t", "s")],
        [file("a", "replaced"), hardlink("g", "b"), whiteout("c")],
    ),
    "linked parents": layers(
        [
            *BASE,
            directory("real"),
            symlink("one", "two"),
            symlink("two", "/../real"),
            symlink("usr/bin/three", "/real"),
        ],
        [
            file("lib/behind", "1"),
            file("one/x", "1"),
            file("one/new/y", "1"),
            hardlink("z", "one/x"),
        ],
        [
            whiteout("lib/empty"),
            directory("two"),
            file("two/in", "2"),
            file("one/again", "3"),
            file("usr/bin/three/y", "3"),
        ],
    ),
    "xattrs": layers(
        [
            file("cap", "x", 0o755, pax={"SCHILY.xattr.security.capability": CAPABILITY.decode()}),
            file("user", "x", pax=xattrs(user_note="hello", user_empty=" ")),
            directory("d", pax=xattrs(user_dir="1")),
            file("plain", "x"),
        ],
        [directory("d"), file("plain", "x", pax=xattrs(user_late="2"))],
    ),
    "long names": layers(
        [file("n" * 255, "x"), file(f"{LONG}/{'f' * 200}", "deep"), directory("e" * 255)],
        [symlink("link", "t" * 1000), hardlink("hard", f"{LONG}/{'f' * 200}"), whiteout("n" * 255)],
    ),
    "devices": layers(
        [file("kept", "1"), character_device("odd/null", 1, 3), block_device("odd/sda", 8, 0)],
        [fifo("odd/pipe", 0o620), directory("dev"), character_device("dev/tty", 5, 0)],
    ),
    "sparse": layers(sparse_archive()),
    "modes": layers(odd_modes(), [file("ro/c", "c"), file("ro/sub/b", "b")]),
    "names": layers([file("\udcff\udcfe", "x"), file("a\nb"), file(" "), file("-rf"), file("😀")]),
    "times": layers(
        [file("z", mtime=0), file("old", mtime=1.75), file("late", mtime=4_000_000_000)]
    ),
    "empty layers": layers([], BASE, [], [file("x")], []),  # type: ignore[arg-type]
    "one layer twice": layers(BASE, BASE),  # type: ignore[arg-type]
    "127 layers": layers(*([file("last", str(n)), file(f"n/{n}", str(n))] for n in range(127))),
}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with docker_registry(tmp_path_factory.mktemp("registry")) as name:
        yield name


def run(*command: str | Path, **environ: str) -> None:
    if command[0] == "skopeo":
        # For its logins: /run/containers may be root's, since root used skopeo.
        environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    done = subprocess.run(
        command,
        env={**os.environ, **environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode(errors="replace")


def unpacked_by_umoci(reference: str, folder: Path) -> Facts:
    """Let skopeo fetch an image, compressed with what umoci knows, and umoci unpack it."""
    plain, layout, bundle = folder / "plain", folder / "layout", folder / "bundle"
    choice = ("--override-arch", "amd64", "--insecure-policy", "copy", "--src-tls-verify=false")
    run("skopeo", *choice, "--dest-decompress", f"docker://{reference}", f"dir:{plain}")
    run("skopeo", "--insecure-policy", "copy", "-f", "oci", f"dir:{plain}", f"oci:{layout}:1")
    run("umoci", "unpack", "--image", f"{layout}:1", bundle)
    return facts_of_folder(bundle / "rootfs")


def declared_directories(store: ImageStore) -> set[bytes]:
    """Paths of the directories that some layer has an entry for."""
    found: set[bytes] = set()
    for data in map(decompress, store.blobs.values()):
        if data.startswith(b"{"):
            continue
        with tarfile.open(fileobj=io.BytesIO(data), errors="surrogateescape") as archive:
            found.update(
                os.fsencode(os.path.normpath(member.name)) for member in archive if member.isdir()
            )
    return found


def comparable(facts: Facts, declared: set[bytes], now: Facts) -> Facts:
    """The facts without what importing adds, leaves out, or has to make up.

    `now` is what umoci unpacked: a directory in which it removed something has the time of that.
    """
    found: Facts = {}
    for path, fact in facts.items():
        if path in GENERATED | {b"etc"} - declared or path.startswith(b"dev/"):
            continue
        if "device" in str(fact[0]):
            continue
        if fact[0] == "directory" and path not in declared:
            fact = (fact[0],)
        elif fact[0] == "directory" and path in now and _is_recent(now[path][2]):
            fact = (*fact[:2], "recent", *fact[3:])
        found[path] = fact
    return found


def _is_recent(mtime: object) -> bool:
    assert isinstance(mtime, int)
    return 0 <= time.time() - mtime < 600


def check_import(host: str, repository: str, declared: set[bytes], folder: Path) -> None:
    """Import an image and compare with what umoci makes of it."""
    image = import_image(
        f"docker://{host}/{repository}:1",
        str(folder / "image.sqsh"),
        settings=make_settings(folder),
        arch="amd64",
    )
    unpacked = unpacked_by_umoci(f"{host}/{repository}:1", folder)
    expected = comparable(unpacked, declared, unpacked)
    assert expected
    assert comparable(facts_of_image(Path(image)), declared, unpacked) == expected


@pytest.mark.parametrize("name", FIXTURES)
def test_an_import_equals_umocis_unpacking(name: str, host: str, tmp_path: Path) -> None:
    store = ImageStore()
    FIXTURES[name](store)
    repository = "t/" + "".join(letter for letter in name if letter.isalnum())
    store.tags[repository, "1"] = store.tags["t/image", "1"]
    store.push(host, repository, "1")
    check_import(host, repository, declared_directories(store), tmp_path)


def write_tree(folder: Path) -> Path:
    """Files for other tools to make layers of."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/tool").write_bytes(os.urandom(300_000))
    (folder / "bin/tool").chmod(0o4755)
    os.link(folder / "bin/tool", folder / "bin/hard")
    (folder / "bin/soft").symlink_to("tool")
    (folder / "bin" / ("n" * 255)).write_text("long")
    (folder / "bin/\udcff").write_text("not UTF-8")
    os.setxattr(folder / "bin/soft", "user.note", b"hello")
    os.setxattr(folder / "bin/hard", "security.capability", CAPABILITY)
    (folder / "ro").mkdir()
    (folder / "ro/file").write_text("x")
    for path in (folder / "ro/file", folder / "ro"):
        path.chmod(0o555)
        os.utime(path, (1_300_000_000, 1_300_000_000))
    return folder


def test_an_image_made_by_umoci(host: str, tmp_path: Path) -> None:
    layout = tmp_path / "made"
    run("umoci", "init", "--layout", layout)
    run("umoci", "new", "--image", f"{layout}:1")
    tree = write_tree(tmp_path / "tree")
    run("umoci", "insert", "--image", f"{layout}:1", tree, "/opt/tree")
    run("umoci", "insert", "--image", f"{layout}:1", "--opaque", tree / "ro", "/opt/tree/bin")
    run("umoci", "insert", "--image", f"{layout}:1", "--whiteout", "/opt/tree/ro/file")
    push = ("skopeo", "--insecure-policy", "copy", "--dest-tls-verify=false", f"oci:{layout}:1")
    run(*push, f"docker://{host}/t/umoci:1")
    declared = {b"opt/tree", b"opt/tree/bin", b"opt/tree/ro"}
    check_import(host, "t/umoci", declared, tmp_path)


@pytest.mark.parametrize("form", ["oci", "docker"])
def test_an_image_made_by_buildah(form: str, host: str, tmp_path: Path) -> None:
    (tmp_path / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\nrunroot = "{tmp_path}/run"\ngraphroot = "{tmp_path}/graph"\n'
    )
    environ = {
        "CONTAINERS_STORAGE_CONF": str(tmp_path / "storage.conf"),
        "BUILDAH_ISOLATION": "chroot",
        "TMPDIR": str(tmp_path),
    }
    write_tree(tmp_path / "tree")
    (tmp_path / "Containerfile").write_text(
        "FROM scratch\nCOPY tree/bin /opt/bin\nCOPY tree/ro /ro\nCOPY tree/ro/file /opt/bin/soft\n"
        'WORKDIR /ro\nENV A="b c"\nVOLUME /data\nCMD ["/opt/bin/tool"]\n'
    )
    build = ("buildah", "bud", "--layers", "--format", form, "--tag", "made", "--timestamp", "1000")
    run(*build, str(tmp_path), **environ)
    target = f"docker://{host}/t/buildah-{form}:1"
    run("buildah", "push", "--tls-verify=false", "made", target, **environ)
    run("buildah", "rmi", "--all", "--force", **environ)
    # Layers made of copies have an entry for each of their folders.
    check_import(host, f"t/buildah-{form}", {b"opt/bin", b"ro"}, tmp_path)


def check_random(seed: int, folder: Path) -> None:
    """Compare random layers, without those of their actions that would be refused."""
    parts = model.valid(model.random_layers(random.Random(seed)))
    store = ImageStore()
    archives = [b"".join(action.member() for action in part) + bytes(1024) for part in parts]
    store.image("t/random", "1", [Layer(data) for data in archives])
    store.write_layout(folder / "layout", "t/random", "1")
    unpack = ["umoci", "unpack", "--image", f"{folder}/layout:1", str(folder / "bundle")]
    done = subprocess.run(unpack, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    image = import_image(
        f"oci:{folder}/layout:1",
        str(folder / "image"),
        settings=make_settings(folder),
        arch="amd64",
    )
    if done.returncode:
        # The link takes the place of the folder that its target is in: umoci removes that first.
        assert b"link: no such file or directory" in done.stdout
        return
    # No times: all entries have the same one, and umoci's way of changing names moves those around.
    unpacked = facts_of_folder(folder / "bundle/rootfs")
    declared = declared_directories(store)
    expected, found = (
        {path: (*fact[:2], *fact[3:]) for path, fact in comparable(facts, declared, {}).items()}
        for facts in (unpacked, facts_of_image(Path(image)))
    )
    assert found == expected, f"seed {seed}: {parts}"


@pytest.mark.parametrize("seed", range(12))
def test_random_layers(seed: int, tmp_path: Path) -> None:
    check_random(seed, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_random_layers_for_long(tmp_path: Path) -> None:
    for seed in range(100, 1100):
        folder = tmp_path / str(seed)
        folder.mkdir()
        check_random(seed, folder)
        shutil.rmtree(folder)
