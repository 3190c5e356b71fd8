"""Images from folders and archives: OCI layouts, docker's archives, bare root filesystems."""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import zstandard

from enroot_py.errors import (
    DigestMismatchError,
    EnrootError,
    InvalidReferenceError,
    LayerError,
    LimitError,
    ManifestError,
    NotFoundError,
    PlatformError,
)
from enroot_py.operations.import_image import cached_image, import_image
from enroot_py.operations.load import load
from enroot_py.operations.sources.location import default_name, split_tag
from enroot_py.squashfs.reader import SquashfsImage
from tests.operations.importing import Workplace, add_cases, describe_tree
from tests.registry.fake_registry import FakeRegistry
from tests.registry.images import ImageStore, Layer, directory, fifo, file, symlink, tar_bytes

GENERATED = {"etc/rc", "etc/rc.local", "etc/fstab", "etc/environment"}
LAYERS = [
    [directory("etc"), file("etc/base", "base"), file("gone", "x")],
    [file(".wh.gone"), file("srv/data", b"data" * 5000)],
]


@pytest.fixture(autouse=True)
def here(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.out)


def contents(path: str) -> dict[str, bytes]:
    with SquashfsImage(path) as image:
        return {
            os.fsdecode(name): image.read(os.fsdecode(name))
            for name, node in image.walk()
            if node.kind == stat.S_IFREG
        }


def write_archive(
    path: Path, files: Mapping[str, bytes], links: Sequence[tuple[str, str]] = ()
) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for name, target in links:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    data = buffer.getvalue()
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".zst":
        data = zstandard.ZstdCompressor().compress(data)
    path.write_bytes(data)


def write_layout_archive(folder: Path, path: Path) -> None:
    files = {
        str(found.relative_to(folder)): found.read_bytes()
        for found in sorted(folder.rglob("*"))
        if found.is_file()
    }
    write_archive(path, files)


def docker_archive(images: ImageStore, repository: str, tag: str) -> dict[str, bytes]:
    """The files of what `docker save` writes for one image; layers uncompressed."""
    manifest = json.loads(images.blobs[images.tags[repository, tag][0]])
    config = manifest["config"]["digest"].removeprefix("sha256:")
    files = {f"{config}.json": images.blobs[manifest["config"]["digest"]]}
    names = []
    for at, layer in enumerate(manifest["layers"]):
        data = images.blobs[layer["digest"]]
        if data.startswith(b"\x1f\x8b"):
            data = gzip.decompress(data)
        files[f"layer{at}/layer.tar"] = data
        names.append(f"layer{at}/layer.tar")
    entry = {"Config": f"{config}.json", "RepoTags": [f"{repository}:{tag}"], "Layers": names}
    return {**files, "manifest.json": json.dumps([entry]).encode()}


@pytest.fixture(scope="module")
def images() -> ImageStore:
    store = ImageStore()
    add_cases(store)
    store.image("t/one", "1", LAYERS, config={"Cmd": ["run"], "Env": ["A=1"]})
    return store


@pytest.mark.parametrize("name", ["opq", "wh", "odd", "names", "dup"])
def test_every_local_form_gives_the_tree_of_the_registry(
    images: ImageStore, place: Workplace, name: str
) -> None:
    settings = place.settings()
    images.write_layout(place.path / "layout", f"t/{name}", "1")
    write_layout_archive(place.path / "layout", place.path / "layout.tar")
    write_archive(place.path / "saved.tar", docker_archive(images, f"t/{name}", "1"))
    with FakeRegistry(images) as registry:
        load(f"docker://{registry.host}#t/{name}:1", "registry", settings=settings)
    load(f"oci:{place.path}/layout:1", "layout", settings=settings)
    load(f"oci-archive:{place.path}/layout.tar", "archive", settings=settings)
    load(f"docker-archive:{place.path}/saved.tar", "saved", settings=settings)
    trees = {}
    for key in ("registry", "layout", "archive", "saved"):
        tree = describe_tree(place.data / key)
        rc = tree.pop("etc/rc")
        assert rc[0] == "0o100644"
        trees[key] = tree
    assert trees["layout"] == trees["registry"]
    assert trees["archive"] == trees["registry"]
    assert trees["saved"] == trees["registry"]
    assert place.leftovers() == []


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_archives_may_be_compressed(images: ImageStore, place: Workplace, suffix: str) -> None:
    write_archive(place.path / f"s.tar{suffix}", docker_archive(images, "t/one", "1"))
    images.write_layout(place.path / "layout", "t/one", "1")
    write_layout_archive(place.path / "layout", place.path / f"l.tar{suffix}")
    for scheme, stem in (("docker-archive", "s"), ("oci-archive", "l")):
        path = import_image(f"{scheme}:{place.path}/{stem}.tar{suffix}", settings=place.settings())
        assert os.path.basename(path) == f"{stem}.sqsh"
        assert contents(path)["srv/data"] == b"data" * 5000
    assert place.leftovers() == []


@pytest.mark.parametrize("scheme", ["docker-archive", "oci-archive", "tar"])
def test_archives_may_come_through_a_pipe(
    images: ImageStore, place: Workplace, scheme: str
) -> None:
    if scheme == "docker-archive":
        write_archive(place.path / "x.tar", docker_archive(images, "t/one", "1"))
    elif scheme == "oci-archive":
        images.write_layout(place.path / "layout", "t/one", "1")
        write_layout_archive(place.path / "layout", place.path / "x.tar")
    else:
        (place.path / "x.tar").write_bytes(tar_bytes(LAYERS[1]))
    words = place.command("import", "-o", "i.sqsh", f"{scheme}:/dev/stdin")
    data = (place.path / "x.tar").read_bytes()
    subprocess.run(words, input=data, env=place.environ, cwd=place.out, check=True)
    assert contents("i.sqsh")["srv/data"] == b"data" * 5000
    assert place.leftovers() == []


def test_config_and_provenance_come_along(images: ImageStore, place: Workplace) -> None:
    images.write_layout(place.path / "layout", "t/one", "1")
    digest = images.tags["t/one", "1"][0]
    found = contents(import_image(f"oci:{place.path}/layout:1", "a", settings=place.settings()))
    assert found["etc/rc"].startswith(f"# enroot-provenance: oci:layout:1@{digest}\n".encode())
    assert found["etc/environment"] == b"A=1\n"
    again = import_image(f"oci:{place.path}/layout:1", "b", settings=place.settings())
    assert Path(again).read_bytes() == Path("a").read_bytes()


@pytest.mark.parametrize("broken", ["config", "layer", "manifest"])
def test_blobs_of_a_layout_are_verified_before_use(
    images: ImageStore, place: Workplace, broken: str
) -> None:
    layout = place.path / "layout"
    images.write_layout(layout, "t/one", "1")
    digest = images.tags["t/one", "1"][0]
    manifest = json.loads(images.blobs[digest])
    chosen = {
        "manifest": digest,
        "config": manifest["config"]["digest"],
        "layer": manifest["layers"][0]["digest"],
    }[broken]
    path = layout / "blobs" / "sha256" / chosen.removeprefix("sha256:")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(DigestMismatchError, match=chosen):
        import_image(f"oci:{layout}", settings=place.settings())
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(EnrootError):
        import_image(f"oci:{layout}", settings=place.settings())
    path.unlink()
    with pytest.raises(NotFoundError, match=path.name):
        import_image(f"oci:{layout}", settings=place.settings())
    assert os.listdir(place.out) == []
    assert place.leftovers() == []


def test_layers_of_a_docker_archive_are_those_that_its_config_names(
    images: ImageStore, place: Workplace
) -> None:
    files = docker_archive(images, "t/one", "1")
    files["layer0/layer.tar"] = tar_bytes([file("etc/evil", "x")])
    write_archive(place.path / "saved.tar", files)
    with pytest.raises(DigestMismatchError, match="Layer sha256:"):
        import_image(f"docker-archive:{place.path}/saved.tar", settings=place.settings())
    assert os.listdir(place.out) == []


def test_layers_of_a_docker_archive_may_be_links_and_compressed(
    images: ImageStore, place: Workplace
) -> None:
    files = docker_archive(images, "t/one", "1")
    files["blobs/real"] = gzip.compress(files.pop("layer0/layer.tar"))
    links = [("layer0/layer.tar", "../blobs/step"), ("blobs/step", "real")]
    write_archive(place.path / "saved.tar", files, links)
    path = import_image(f"docker-archive:{place.path}/saved.tar", settings=place.settings())
    assert contents(path)["etc/base"] == b"base"
    write_archive(place.path / "loop.tar", files, [("layer0/layer.tar", "layer.tar")])
    with pytest.raises(NotFoundError, match="No layer layer0/layer.tar"):
        import_image(f"docker-archive:{place.path}/loop.tar", settings=place.settings())
    write_archive(place.path / "out.tar", files, [("layer0/layer.tar", "../../../etc/passwd")])
    with pytest.raises(NotFoundError):
        import_image(f"docker-archive:{place.path}/out.tar", settings=place.settings())


def test_one_of_several_images_is_chosen_by_its_name(images: ImageStore, place: Workplace) -> None:
    files = docker_archive(images, "t/one", "1")
    entry = json.loads(files["manifest.json"])[0]
    entries = [
        {**entry, "RepoTags": ["docker.io/library/ubuntu:latest"]},
        {**entry, "RepoTags": ["r.test:5000/x/y:2", "other:1"]},
        {**entry, "RepoTags": ["docker.io/t/x:1"]},
        {**entry, "RepoTags": None},
    ]
    files["manifest.json"] = json.dumps(entries).encode()
    write_archive(place.path / "saved.tar", files)
    base = f"docker-archive:{place.path}/saved.tar"
    for at, name in enumerate(("ubuntu", "ubuntu:latest", "r.test:5000/x/y:2", "other:1", "t/x:1")):
        import_image(f"{base}:{name}", f"{at}", settings=place.settings())
    with pytest.raises(NotFoundError, match="4 images") as caught:
        import_image(base, settings=place.settings())
    assert "r.test:5000/x/y:2" in caught.value.hint
    with pytest.raises(NotFoundError, match="no image nothing"):
        import_image(f"{base}:nothing", settings=place.settings())


def test_one_of_several_images_of_a_layout_is_chosen_by_tag_digest_and_platform(
    images: ImageStore, place: Workplace
) -> None:
    store = ImageStore()
    amd = store.image("t/two", "amd", [[file("arch", "amd64")]])
    arm = store.image("t/two", "arm", [[file("arch", "arm64")]], architecture="arm64")
    store.index("t/two", "both", [(amd, "linux/amd64"), (arm, "linux/arm64")])
    layout = place.path / "layout"
    store.write_layout(layout, "t/two", "both")
    index = json.loads((layout / "index.json").read_text())
    entry = {**arm.manifest, "annotations": {"org.opencontainers.image.ref.name": "r:1/x:arm"}}
    index["manifests"].append(entry)
    (layout / "index.json").write_text(json.dumps(index))
    settings = place.settings()

    def arch(location: str, machine: str) -> bytes:
        path = import_image(
            f"oci:{layout}{location}", "i", settings=settings, arch=machine, force=True
        )
        return contents(path)["arch"]

    assert arch(":both", "x86_64") == b"amd64"
    assert arch(":both", "aarch64") == b"arm64"
    assert arch(":r:1/x:arm", "aarch64") == b"arm64"
    assert arch(f":{arm.digest}", "aarch64") == b"arm64"
    with pytest.raises(PlatformError, match="available: linux/amd64, linux/arm64"):
        arch(":both", "ppc64le")
    with pytest.raises(NotFoundError, match="several images") as caught:
        arch("", "x86_64")
    assert "both, r:1/x:arm" in caught.value.hint
    with pytest.raises(NotFoundError, match="no image none"):
        arch(":none", "x86_64")


def test_a_root_filesystem_in_a_tar_archive(place: Workplace) -> None:
    entries = [directory("bin"), file("bin/sh", "#!", 0o755), symlink("sbin", "bin"), fifo("pipe")]
    for name, compression in (
        ("r.tar", "none"),
        ("r.tar.gz", "gzip"),
        ("r.tgz", "gzip"),
        ("r.tar.zst", "zstd"),
    ):
        (place.path / name).write_bytes(Layer(entries, compression).stored())
        path = import_image(f"tar:{place.path}/{name}", settings=place.settings(), force=True)
        assert os.path.basename(path) == "r.sqsh"
        found = contents(path)
        assert found["bin/sh"] == b"#!"
        assert found["etc/rc"].startswith(f"# enroot-provenance: tar:{name}\n".encode())
        assert b"exec '/bin/sh'" in found["etc/rc"]
    with pytest.raises(NotFoundError, match="No such file"):
        import_image(f"tar:{place.path}/none.tar", settings=place.settings())
    (place.path / "junk.tar").write_bytes(b"junk" * 1000)
    with pytest.raises(LayerError, match="not a tar archive"):
        import_image(f"tar:{place.path}/junk.tar", settings=place.settings())


def test_a_root_filesystem_in_a_folder(place: Workplace) -> None:
    rootfs = place.path / "my rootfs"
    (rootfs / "etc").mkdir(parents=True)
    (rootfs / "etc/name").write_text("x")
    (rootfs / "secret").write_text("s")
    (rootfs / "secret").chmod(0)
    path = import_image(f"dir:{rootfs}", settings=place.settings())
    assert os.path.basename(path) == "my+rootfs.sqsh"
    assert contents(path)["etc/name"] == b"x"
    assert contents(path)["secret"] == b"s"
    assert load(f"dir:{rootfs}/", settings=place.settings()) == str(place.data / "my+rootfs")
    for wrong in (f"{rootfs}/etc/name", f"{rootfs}/none"):
        with pytest.raises(NotFoundError, match="No such folder"):
            import_image(f"dir:{wrong}", settings=place.settings())


def test_an_image_without_digest_has_a_temporary_file_instead_of_the_cache(
    place: Workplace,
) -> None:
    (place.path / "r.tar").write_bytes(tar_bytes([file("a", "1")]))
    with cached_image(f"tar:{place.path}/r.tar", settings=place.settings()) as path:
        assert contents(path)["a"] == b"1"
        assert path.startswith(str(place.temp))
    assert place.leftovers() == []


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({}, LayerError),
        ({"x": b"1"}, NotFoundError),
        ({"manifest.json": b"{}"}, ManifestError),
        ({"manifest.json": b"[]"}, ManifestError),
        ({"manifest.json": b"[1]"}, ManifestError),
        ({"manifest.json": b'[{"Config": "c", "Layers": []}]'}, ManifestError),
        ({"manifest.json": b'[{"Config": 1, "Layers": ["l"]}]'}, ManifestError),
        ({"manifest.json": b'[{"Config": "c", "Layers": [1]}]'}, ManifestError),
        ({"manifest.json": b'[{"Config": "c", "Layers": ["l"]}]'}, NotFoundError),
        ({"manifest.json": b'[{"Config": "c", "Layers": ["l"]}]', "c": b"{}"}, ManifestError),
        ({"manifest.json": b" " * (5 << 20)}, LimitError),
    ],
)
def test_malformed_docker_archives_are_refused(
    place: Workplace, files: Mapping[str, bytes], kind: type[EnrootError]
) -> None:
    write_archive(place.path / "saved.tar", files)
    with pytest.raises(kind):
        import_image(f"docker-archive:{place.path}/saved.tar", settings=place.settings())
    assert os.listdir(place.out) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"junk" * 200,
        tar_bytes([file("a", "1" * 5000)])[:2000],
        tar_bytes([file("a", "1")])[:100],
        tar_bytes([file("a" * 300, "1")])[:512],
    ],
    ids=["empty", "junk", "truncated", "half a header", "header of an extension alone"],
)
def test_damaged_archives_are_refused(place: Workplace, data: bytes) -> None:
    (place.path / "x.tar").write_bytes(data)
    for scheme in ("docker-archive", "oci-archive"):
        with pytest.raises((LayerError, NotFoundError)):
            import_image(f"{scheme}:{place.path}/x.tar", settings=place.settings())
    assert os.listdir(place.out) == []
    assert place.leftovers() == []


@pytest.mark.parametrize(
    "index",
    [
        b"",
        b"{",
        b"[]",
        b'{"schemaVersion": 2, "manifests": []}',
        b'{"layers": []}',
        b"x" * (5 << 20),
    ],
)
def test_malformed_layouts_are_refused(place: Workplace, index: bytes) -> None:
    (place.path / "layout").mkdir()
    (place.path / "layout" / "index.json").write_bytes(index)
    with pytest.raises(EnrootError):
        import_image(f"oci:{place.path}/layout", settings=place.settings())
    assert os.listdir(place.out) == []


def test_a_folder_that_is_no_layout_is_answered_with_what_it_may_be(place: Workplace) -> None:
    (place.path / "rootfs/etc").mkdir(parents=True)
    with pytest.raises(NotFoundError, match="Not an OCI layout: .*/rootfs") as caught:
        import_image(f"oci:{place.path}/rootfs", settings=place.settings())
    assert "dir:" in caught.value.hint


def test_indexes_without_end_are_refused(place: Workplace) -> None:
    store = ImageStore()
    inner = store.image("t/x", "0", LAYERS)
    entry: object = inner
    for depth in range(6):
        entry = store.index("t/x", str(depth + 1), [(entry, "linux/amd64")])  # type: ignore[list-item]
    store.write_layout(place.path / "layout", "t/x", "6")
    with pytest.raises(ManifestError, match="without end"):
        import_image(f"oci:{place.path}/layout:6", settings=place.settings())


def test_the_path_is_the_longest_one_that_exists(place: Workplace) -> None:
    (place.out / "a:b").mkdir()
    assert split_tag("a:b") == ("a:b", "")
    assert split_tag("a:b:r:1/x:2") == ("a:b", "r:1/x:2")
    assert split_tag("none:tag:x") == ("none", "tag:x")
    assert split_tag(f"{place.out}/a:b:t") == (f"{place.out}/a:b", "t")
    with pytest.raises(InvalidReferenceError):
        split_tag("")


@pytest.mark.parametrize(
    ("path", "tag", "name"),
    [
        ("/x/ubuntu.tar.gz", "", "ubuntu"),
        ("layout/", "r.io/a:1", "layout+r.io+a:1"),
        ("/x/-we ird\u00e9.tgz", "", "we+ird+"),
        ("/", "", "image"),
    ],
)
def test_local_images_give_valid_names(path: str, tag: str, name: str) -> None:
    assert default_name(path, tag) == name
