"""Finished images, extractions, the index, and trimming all of them."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from enroot_py.errors import StoreError
from enroot_py.image.digest import digest_of
from enroot_py.image.manifest import OCI_MANIFEST, Descriptor
from enroot_py.image.platform import Platform
from enroot_py.store.blobs import BlobStore, blob_path
from enroot_py.store.extractions import extraction_path, hold_extraction
from enroot_py.store.images import ImageKey, ImageStore, copy_file
from enroot_py.store.layout_index import NamedManifest, forget_images, read_index, record_image
from enroot_py.store.trimming import list_entries, prune, shrink

KEY = ImageKey(digest_of(b"manifest"), "amd64", "zstd 1", "docker://r#i@sha256:0")
DAY = 24 * 3600.0


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(str(tmp_path / "cache"))


@pytest.fixture
def images(store: BlobStore) -> ImageStore:
    return ImageStore(store.folders)


def add_blob(store: BlobStore, data: bytes, media_type: str = "layer") -> Descriptor:
    descriptor = Descriptor(media_type, digest_of(data), len(data))
    store.put(descriptor, data, private=False)
    return descriptor


def add_image(store: BlobStore, name: str, *layers: bytes) -> Descriptor:
    """Store an image of these layers' blobs; return its manifest's descriptor."""
    config = add_blob(store, b"{}")
    described = [add_blob(store, layer) for layer in layers]
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": {"mediaType": "c", "digest": str(config.digest), "size": config.size},
        "layers": [
            {"mediaType": "l", "digest": str(layer.digest), "size": layer.size}
            for layer in described
        ],
    }
    manifest = add_blob(store, json.dumps(document).encode(), OCI_MANIFEST)
    record_image(store.folders.layouts[0], manifest, name)
    return manifest


def age(path: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_a_finished_image_is_found_by_its_key_alone(images: ImageStore) -> None:
    assert images.open(KEY) is None
    with images.create(KEY) as new:
        new.file.write(b"image")
        assert images.open(KEY) is None
    file = images.open(KEY)
    assert file is not None
    with file:
        assert file.read() == b"image"
    others = [
        replace(KEY, manifest=digest_of(b"other")),
        replace(KEY, architecture="arm64"),
        replace(KEY, squash_options="gzip"),
        replace(KEY, provenance="docker://r#j@sha256:0"),
    ]
    assert len({KEY.file_name, *(other.file_name for other in others)}) == 5
    assert all(images.open(other) is None for other in others)


@pytest.mark.parametrize("plant", ["link", "fifo", "empty", "writable", "folder"])
def test_a_planted_image_is_not_used(images: ImageStore, tmp_path: Path, plant: str) -> None:
    path = Path(images.path(KEY))
    if plant == "link":
        (tmp_path / "evil").write_bytes(b"evil")
        path.symlink_to(tmp_path / "evil")
    elif plant == "fifo":
        os.mkfifo(path)
    elif plant == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"" if plant == "empty" else b"evil")
        path.chmod(0o600 if plant == "empty" else 0o666)
    assert images.open(KEY) is None


@pytest.mark.root
def test_another_users_image_is_not_used(images: ImageStore) -> None:
    Path(images.path(KEY)).write_bytes(b"evil")
    os.chmod(images.path(KEY), 0o644)
    os.chown(images.path(KEY), 12345, 12345)
    assert images.open(KEY) is None


@pytest.mark.root
def test_a_folder_of_images_that_others_can_change_is_refused(store: BlobStore) -> None:
    os.chown(store.folders.images, 12345, 12345)
    with pytest.raises(StoreError, match="not yours alone"):
        BlobStore(store.folders.path)


@pytest.mark.parametrize("size", [0, 1, 5_000_000])
def test_a_copy_has_the_same_bytes_and_shares_no_inode(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "source").write_bytes(data)
    with (
        open(tmp_path / "source", "rb", buffering=0) as source,
        open(tmp_path / "target", "w+b", buffering=0) as target,
    ):
        copy_file(source, target)
    assert (tmp_path / "target").read_bytes() == data
    assert not os.path.samefile(tmp_path / "source", tmp_path / "target")


def test_a_copy_between_file_systems_works_too(tmp_path: Path) -> None:
    # /proc files have no size and cannot be copied in the kernel: the slow way must do.
    with (
        open("/proc/version", "rb", buffering=0) as source,
        open(tmp_path / "target", "w+b", buffering=0) as target,
    ):
        copy_file(source, target)
    assert (tmp_path / "target").read_bytes() == Path("/proc/version").read_bytes()


def test_the_index_lists_an_image_by_its_latest_name(store: BlobStore) -> None:
    layout = store.folders.layouts[0]
    first = Descriptor(OCI_MANIFEST, digest_of(b"1"), 1, platform=Platform("linux", "amd64"))
    second = replace(first, digest=digest_of(b"2"))
    other = replace(first, digest=digest_of(b"3"), platform=Platform("linux", "arm", "v7"))
    for descriptor, name in [
        (first, "r/i:1"),
        (second, "r/i:1"),
        (first, "r/i:2"),
        (other, "r/i:1"),
    ]:
        record_image(layout, descriptor, name)
    listed = [(entry.name, entry.descriptor.digest) for entry in read_index(layout)]
    assert listed == [
        ("r/i:1", second.digest), ("r/i:2", first.digest), ("r/i:1", other.digest),
    ]  # fmt: skip
    assert Path(layout, "oci-layout").read_text() == '{"imageLayoutVersion":"1.0.0"}'
    assert read_index(layout)[2].descriptor.platform == Platform("linux", "arm", "v7")
    before = os.stat(os.path.join(layout, "index.json")).st_ino
    record_image(layout, first, "r/i:2")
    assert os.stat(os.path.join(layout, "index.json")).st_ino == before
    forget_images(layout, frozenset({str(first.digest)}))
    assert [entry.name for entry in read_index(layout)] == ["r/i:1", "r/i:1"]
    assert sorted(os.listdir(layout)) == ["blobs", "index.json", "oci-layout"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"manifests": 1}', b'{"layers": []}'])
def test_an_index_that_cannot_be_read_is_written_anew(store: BlobStore, content: bytes) -> None:
    layout = store.folders.layouts[0]
    Path(layout, "index.json").write_bytes(content)
    assert read_index(layout) == ()
    descriptor = Descriptor(OCI_MANIFEST, digest_of(b"1"), 1)
    record_image(layout, descriptor, "name")
    assert [entry.name for entry in read_index(layout)] == ["name"]
    assert isinstance(read_index(layout)[0], NamedManifest)


def test_an_extraction_is_made_once_and_known_by_the_image_file(
    store: BlobStore, tmp_path: Path
) -> None:
    made: list[str] = []

    def extract(folder: str) -> None:
        made.append(folder)
        Path(folder, "bin").mkdir()

    image = tmp_path / "image.sqsh"
    image.write_bytes(b"1")
    for _ in range(2):
        with hold_extraction(store.folders, os.stat(image), extract) as path:
            assert os.listdir(path) == ["bin"]
    assert len(made) == 1
    image.write_bytes(b"22")
    with hold_extraction(store.folders, os.stat(image), extract):
        assert len(made) == 2
    assert len(os.listdir(store.folders.extracted)) == 2


def test_a_failed_extraction_leaves_nothing(store: BlobStore, tmp_path: Path) -> None:
    def extract(folder: str) -> None:
        Path(folder, "half").touch()
        raise StoreError("broken image")

    with (
        pytest.raises(StoreError, match="broken image"),
        hold_extraction(store.folders, os.stat(tmp_path), extract),
    ):
        pytest.fail("the block ran")
    assert os.listdir(store.folders.extracted) == []


def test_entries_are_listed_with_their_images_least_recently_used_first(
    store: BlobStore, images: ImageStore
) -> None:
    manifest = add_image(store, "r/i:1", b"layer" * 1000)
    stray = add_blob(store, b"stray")
    age(blob_path(store.folders.layouts[0], stray.digest), DAY)
    key = replace(KEY, manifest=manifest.digest)
    with images.create(key) as new:
        new.file.write(b"x" * 10_000)
    age(images.path(key), 2 * DAY)
    Path(store.folders.partial, "sha256-0").write_bytes(b"half")
    Path(store.folders.path, "nvidia-layer").write_bytes(b"not ours")
    entries = list_entries(store.folders)
    assert [(entry.kind, entry.references) for entry in entries[:2]] == [
        ("image", ("r/i:1",)), ("blob", ()),
    ]  # fmt: skip
    kinds = sorted(entry.kind for entry in entries)
    assert kinds == ["blob"] * 4 + ["image", "partial"]
    assert entries[0].size >= 10_000
    assert all(entry.references == ("r/i:1",) for entry in entries if entry.kind == "image")
    needed = [entry for entry in entries if entry.kind == "blob" and entry.references]
    assert len(needed) == 3


def test_pruning_takes_what_no_image_needs_once_it_is_a_day_old(store: BlobStore) -> None:
    add_image(store, "r/i:1", b"layer")
    layout = store.folders.layouts[0]
    old, new = add_blob(store, b"old stray"), add_blob(store, b"new stray")
    for entry in list_entries(store.folders):
        if entry.name != str(new.digest):
            age(entry.path, 2 * DAY)
    for name, seconds in (("sha256-old", 2 * DAY), ("sha256-new", 60)):
        path = Path(store.folders.partial, name)
        path.write_bytes(b"half")
        age(str(path), seconds)
    Path(store.folders.images, ".enroot.leftover").touch()
    removed = prune(store.folders)
    assert sorted(entry.name for entry in removed) == sorted([str(old.digest), "sha256:old"])
    assert not os.path.exists(blob_path(layout, old.digest))
    assert len(list_entries(store.folders)) == 5
    assert os.listdir(store.folders.images) == []
    assert len(read_index(layout)) == 1


def test_shrinking_takes_the_least_recently_used_and_nothing_in_use(
    store: BlobStore, images: ImageStore
) -> None:
    layers = [bytes([number]) * 10_000 for number in range(4)]
    add_image(store, "r/old:1", layers[0], layers[1])
    add_image(store, "r/new:1", layers[2], layers[3])
    paths = [blob_path(store.folders.layouts[0], digest_of(layer)) for layer in layers]
    for path, days in zip(paths, (4, 3, 2, 1), strict=True):
        age(path, days * DAY)
    with store.open(Descriptor("layer", digest_of(layers[1]), 10_000)):
        age(paths[1], 3 * DAY)
        total = sum(entry.size for entry in list_entries(store.folders))
        assert shrink(store.folders, total) == []
        removed = shrink(store.folders, total - 20_000)
    assert [entry.path for entry in removed] == [paths[0], paths[2]]
    assert os.path.exists(paths[1])
    # An image that lacks a layer is no image any more.
    assert read_index(store.folders.layouts[0]) == ()
    shrink(store.folders, 0)
    assert list_entries(store.folders) == []


def test_shrinking_removes_images_and_extractions_that_are_not_held(
    store: BlobStore, images: ImageStore, tmp_path: Path
) -> None:
    with images.create(KEY) as new:
        new.file.write(b"x" * 10_000)
    status = os.stat(tmp_path)

    def extract(folder: str) -> None:
        Path(folder, "file").write_bytes(b"x" * 10_000)
        os.chmod(folder, 0o500)

    held = images.open(KEY)
    assert held is not None
    with held, hold_extraction(store.folders, status, extract):
        assert shrink(store.folders, 0) == []
    assert {entry.kind for entry in shrink(store.folders, 0)} == {"image", "extraction"}
    assert os.listdir(store.folders.images) == []
    assert os.listdir(store.folders.extracted) == []


@pytest.mark.root
def test_an_extraction_that_a_mount_shows_is_in_use(store: BlobStore, tmp_path: Path) -> None:
    def extract(folder: str) -> None:
        Path(folder, "file").write_bytes(b"x" * 10_000)

    with hold_extraction(store.folders, os.stat(tmp_path), extract) as path:
        pass
    assert path == extraction_path(store.folders, os.stat(tmp_path))
    (tmp_path / "top").mkdir()
    script = f"""
        cd {tmp_path}/top && mount -t tmpfs x . && cd . && mkdir upper work merged &&
        mount -t overlay -o lowerdir={path},upperdir=$PWD/upper,workdir=$PWD/work x $PWD/merged &&
        echo ready && read line
    """
    command = ["unshare", "--mount", "sh", "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert shrink(store.folders, 0) == []
        process.communicate(b"\n")
    assert len(shrink(store.folders, 0)) == 1


@pytest.mark.root
def test_other_users_entries_are_neither_listed_nor_removed(store: BlobStore) -> None:
    path = Path(store.folders.layouts[0], "blobs", "sha256", "0" * 64)
    path.write_bytes(b"theirs")
    os.chown(path, 12345, 12345)
    assert shrink(store.folders, 0) == []
    assert path.exists()
