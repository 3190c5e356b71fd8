"""Importing: what is fetched, what is written, and what is left when it fails."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from pathlib import Path

import pytest

from enroot_py import log
from enroot_py.errors import (
    AuthenticationError,
    DigestMismatchError,
    EnrootError,
    ExistsError,
    LimitError,
    NotFoundError,
    PlatformError,
    SettingsError,
    SpaceError,
    UnsupportedError,
    UsageError,
)
from enroot_py.operations.flatten import parse_time
from enroot_py.operations.import_image import cached_image, import_image
from enroot_py.squashfs.reader import SquashfsImage
from enroot_py.squashfs.superblock import read_superblock
from tests.operations.importing import Workplace
from tests.registry.fake_registry import BasicAuth, FakeRegistry
from tests.registry.faults import answer, corrupt
from tests.registry.images import DOCKER, ImageStore, Layer, directory, file, hardlink

LAYERS = [
    [directory("etc"), file("etc/base", "base"), file("etc/gone", "x")],
    [file("etc/.wh.gone"), file("srv/data", b"data" * 5000), hardlink("srv/link", "srv/data")],
    Layer([file("etc/top", "top")], "zstd"),
]


@pytest.fixture(autouse=True)
def here(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.out)


@pytest.fixture
def messages() -> object:
    lines: list[str] = []
    log.set_sink(lambda level, text: lines.append(f"[{level}] {text}"))
    yield lines
    log.set_sink(None)


def uri(registry: FakeRegistry, name: str = "t/one:1") -> str:
    return f"docker://{registry.host}#{name}"


def paths(registry: FakeRegistry, kind: str) -> list[str]:
    with registry.lock:
        return [entry.path for entry in registry.log if f"/{kind}/" in entry.path]


def contents(path: str) -> dict[str, bytes]:
    with SquashfsImage(path) as image:
        return {
            os.fsdecode(name): image.read(os.fsdecode(name))
            for name, node in image.walk()
            if node.kind == stat.S_IFREG
        }


def sha256(path: Path | str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def test_an_image_is_flattened_into_a_file_named_after_it(
    registry: FakeRegistry, place: Workplace
) -> None:
    built = registry.images.image("t/one", "1", LAYERS, config={"Cmd": ["x"], "Env": ["A=1"]})
    path = import_image(uri(registry), settings=place.settings())
    assert path == str(place.out / "t+one+1.sqsh")
    found = contents(path)
    assert found["etc/base"] == b"base"
    assert found["etc/top"] == b"top"
    assert found["srv/data"] == found["srv/link"] == b"data" * 5000
    assert "etc/gone" not in found
    assert found["etc/environment"] == b"A=1\n"
    provenance = f"# enroot-provenance: docker://{registry.host}#t/one@{built.digest}\n"
    assert found["etc/rc"].startswith(provenance.encode())
    assert os.listdir(place.out) == ["t+one+1.sqsh"]
    assert place.leftovers() == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("t/one:1", "t+one+1.sqsh"),
        ("t/one", "t+one+latest.sqsh"),
        ("t/one:1@DIGEST", "t+one+DIGEST.sqsh"),
        ("t/one@DIGEST", "t+one+DIGEST.sqsh"),
    ],
)
def test_default_names_are_the_originals(
    registry: FakeRegistry, place: Workplace, name: str, expected: str
) -> None:
    registry.images.image("t/one", "latest", LAYERS)
    digest = registry.images.image("t/one", "1", LAYERS).digest
    path = import_image(uri(registry, name.replace("DIGEST", digest)), settings=place.settings())
    assert os.path.basename(path) == expected.replace("DIGEST", digest)


def test_an_existing_file_is_refused_before_anything_is_asked(
    registry: FakeRegistry, place: Workplace
) -> None:
    registry.images.image("t/one", "1", LAYERS)
    (place.out / "t+one+1.sqsh").write_text("mine")
    with pytest.raises(ExistsError, match="already exists"):
        import_image(uri(registry), settings=place.settings(FORCE_OVERRIDE="y"))
    assert registry.log == []
    assert (place.out / "t+one+1.sqsh").read_text() == "mine"
    import_image(uri(registry), settings=place.settings(), force=True)
    assert "etc/top" in contents("t+one+1.sqsh")


def test_a_missing_output_folder_is_refused_before_anything_is_asked(
    registry: FakeRegistry, place: Workplace
) -> None:
    with pytest.raises(NotFoundError, match="No such folder"):
        import_image(uri(registry), "no/such/i.sqsh", settings=place.settings())
    assert registry.log == []


def test_a_second_import_fetches_no_blob_and_makes_no_image(
    registry: FakeRegistry, place: Workplace, messages: list[str]
) -> None:
    registry.images.image("t/one", "1", LAYERS)
    import_image(uri(registry), "a.sqsh", settings=place.settings())
    blobs = paths(registry, "blobs")
    assert len(blobs) == len(set(blobs)) == 4
    import_image(uri(registry), "b.sqsh", settings=place.settings())
    assert paths(registry, "blobs") == blobs
    assert "[INFO] Found the finished image in the cache" in messages
    assert sha256("a.sqsh") == sha256("b.sqsh")
    assert not os.path.samefile("a.sqsh", "b.sqsh")
    assert os.stat("a.sqsh").st_nlink == 1


def test_a_copy_that_cannot_even_be_begun_is_no_reason_to_fail(
    registry: FakeRegistry,
    place: Workplace,
    messages: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry.images.image("t/one", "1", LAYERS)
    import_image(uri(registry), "whole.sqsh", settings=place.settings())
    for image in (place.cache / "images").glob("*.sqsh"):
        image.unlink()

    def refuse(*_: object, **__: object) -> object:
        raise SpaceError("No space left while storing a finished image")

    monkeypatch.setattr("enroot_py.store.images.new_file", refuse)
    import_image(uri(registry), "a.sqsh", settings=place.settings())
    assert sha256("a.sqsh") == sha256("whole.sqsh")
    assert any("[WARN] The image is not kept in the cache" in line for line in messages)


def test_other_options_use_the_layers_of_the_cache(
    registry: FakeRegistry, place: Workplace, messages: list[str]
) -> None:
    registry.images.image("t/one", "1", LAYERS)
    import_image(uri(registry), "a.sqsh", settings=place.settings())
    blobs = paths(registry, "blobs")
    settings = place.settings(SQUASH_OPTIONS="-comp gzip -b 64K")
    import_image(uri(registry), "b.sqsh", settings=settings)
    assert paths(registry, "blobs") == blobs
    assert "[INFO] Found all layers in the cache" in messages
    assert read_superblock("b.sqsh").compressor == "gzip"
    assert read_superblock("b.sqsh").block_size == 65536
    assert contents("a.sqsh") == contents("b.sqsh")


def test_an_image_asked_for_by_a_known_digest_needs_no_registry(
    registry: FakeRegistry, place: Workplace
) -> None:
    digest = registry.images.image("t/one", "1", LAYERS).digest
    import_image(uri(registry), "a.sqsh", settings=place.settings())
    asked = len(registry.log)
    import_image(uri(registry, f"t/one@{digest}"), "b.sqsh", settings=place.settings())
    assert len(registry.log) == asked
    assert sha256("a.sqsh") == sha256("b.sqsh")
    # Another repository may have it or not: that only the registry knows.
    with pytest.raises(NotFoundError):
        import_image(uri(registry, f"t/two@{digest}"), "c.sqsh", settings=place.settings())
    # Another architecture is the registry's to say as well.
    import_image(
        uri(registry, f"t/one@{digest}"), "d.sqsh", settings=place.settings(), arch="arm64"
    )
    assert len(registry.log) > asked + 1


def test_layers_that_were_trimmed_are_fetched_again_though_the_manifest_is_known(
    registry: FakeRegistry, place: Workplace
) -> None:
    built = registry.images.image("t/one", "1", LAYERS)
    reference = uri(registry, f"t/one@{built.digest}")
    import_image(reference, "a.sqsh", settings=place.settings())
    for image in (place.cache / "images").iterdir():
        image.unlink()
    layer = built.layers[1]["digest"].removeprefix("sha256:")
    (place.cache / "oci" / "blobs" / "sha256" / layer).unlink()
    before = paths(registry, "blobs")
    import_image(reference, "b.sqsh", settings=place.settings())
    assert paths(registry, "blobs")[len(before) :] == [f"/v2/t/one/blobs/sha256:{layer}"]
    assert sha256("a.sqsh") == sha256("b.sqsh")


def test_tag_digest_and_index_give_the_same_bytes_with_any_number_of_threads(
    registry: FakeRegistry, place: Workplace
) -> None:
    images = registry.images
    built = images.image("t/one", "1", LAYERS)
    other = images.image("t/one", "arm", [[file("etc/arch", "arm")]], architecture="arm64")
    entries = [images.attestation("t/one"), (other, "linux/arm64"), (built, "linux/amd64")]
    index = images.index("t/one", "all", entries)
    names = ["t/one:1", f"t/one@{built.digest}", "t/one:all", f"t/one@{index['digest']}"]
    sums = set()
    for number, name in enumerate(names):
        for processors in ("1", "4"):
            settings = place.settings(
                MAX_PROCESSORS=processors,
                CACHE_PATH=str(place.path / f"cache{number}{processors}"),
            )
            path = import_image(
                uri(registry, name), f"{number}{processors}.sqsh", settings=settings, arch="x86_64"
            )
            sums.add(sha256(path))
    assert len(sums) == 1
    arm = import_image(uri(registry, "t/one:all"), "arm", settings=place.settings(), arch="aarch64")
    assert contents(arm)["etc/arch"] == b"arm"


def test_a_missing_platform_lists_those_there_are(registry: FakeRegistry, place: Workplace) -> None:
    built = registry.images.image("t/one", "1", LAYERS)
    registry.images.index("t/one", "all", [(built, "linux/amd64")])
    with pytest.raises(PlatformError, match=r"linux/ppc64le; available: linux/amd64"):
        import_image(uri(registry, "t/one:all"), settings=place.settings(), arch="ppc64le")
    with pytest.raises(UsageError, match="Unsupported architecture"):
        import_image(uri(registry), settings=place.settings(), arch="z80")
    assert os.listdir(place.out) == []


def test_another_architecture_than_asked_for_is_warned_about(
    registry: FakeRegistry, place: Workplace, messages: list[str]
) -> None:
    registry.images.image("t/one", "1", LAYERS, architecture="arm64")
    import_image(uri(registry), settings=place.settings(), arch="amd64")
    assert any(line.startswith("[WARN]") and "arm64 != amd64" in line for line in messages)


def test_source_date_epoch_is_the_time_of_everything(
    registry: FakeRegistry, place: Workplace
) -> None:
    registry.images.image("t/one", "1", LAYERS)
    place.environ["SOURCE_DATE_EPOCH"] = "1700000000"
    path = import_image(uri(registry), settings=place.settings())
    assert read_superblock(path).mkfs_time == 1700000000
    with SquashfsImage(path) as image:
        assert {node.mtime for _, node in image.walk()} == {1700000000}
    del place.environ["SOURCE_DATE_EPOCH"]
    other = import_image(uri(registry), "b.sqsh", settings=place.settings())
    assert read_superblock(other).mkfs_time == 1577836800  # the image's own `created`
    place.environ["SOURCE_DATE_EPOCH"] = "yesterday"
    with pytest.raises(SettingsError, match="SOURCE_DATE_EPOCH"):
        import_image(uri(registry), "c.sqsh", settings=place.settings())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2020-01-01T00:00:00Z", 1577836800),
        ("2020-01-01T01:30:00.123456789+01:30", 1577836800),
        ("2019-12-31t23:59:59.9-00:00", 1577836799),
        ("2024-02-29T12:00:00Z", 1709208000),
        ("0001-01-01T00:00:00Z", -62135596800),
        ("0000-00-00T00:00:00Z", 0),
        ("2020-13-01T00:00:00Z", 0),
        ("2020-01-01", 0),
        ("", 0),
    ],
)
def test_times_of_images(text: str, seconds: int) -> None:
    assert parse_time(text) == seconds


def test_a_missing_mksquashfs_is_named_before_anything_is_downloaded(
    registry: FakeRegistry, place: Workplace
) -> None:
    registry.images.image("t/one", "1", LAYERS)
    options = "-comp lzo -Xalgorithm lzo1x_1"
    done = place.run("import", uri(registry), PATH=str(place.temp), ENROOT_SQUASH_OPTIONS=options)
    assert done.returncode == 1
    assert "only mksquashfs can do (-Xalgorithm)" in done.stderr
    assert len(paths(registry, "blobs")) == 1  # the config, a few hundred bytes
    assert os.listdir(place.out) == []


def test_mixed_media_types_and_docker_manifests(registry: FakeRegistry, place: Workplace) -> None:
    layers = [
        Layer([file("a", "gzip")], "gzip", "application/vnd.docker.image.rootfs.diff.tar.zstd"),
        Layer([file("b", "zstd")], "zstd", "application/vnd.docker.image.rootfs.diff.tar.gzip"),
        Layer([file("c", "none")], "none"),
    ]
    registry.images.image("t/one", "1", layers, style=DOCKER)
    found = contents(import_image(uri(registry), settings=place.settings()))
    assert (found["a"], found["b"], found["c"]) == (b"gzip", b"zstd", b"none")


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_layer_of_wrong_bytes_leaves_nothing_and_spoils_nothing(
    registry: FakeRegistry, place: Workplace, which: int
) -> None:
    built = registry.images.image("t/one", "1", LAYERS)
    bad = built.layers[which]["digest"]
    registry.fault(bad, corrupt(), times=2)
    with pytest.raises(DigestMismatchError, match=bad):
        import_image(uri(registry), settings=place.settings())
    assert os.listdir(place.out) == []
    assert place.leftovers() == []
    assert not (place.cache / "oci/blobs/sha256" / bad.removeprefix("sha256:")).exists()
    fetched = set(paths(registry, "blobs"))
    path = import_image(uri(registry), settings=place.settings())
    assert "etc/top" in contents(path)
    # What had arrived before was not fetched again.
    again = [path for path in paths(registry, "blobs")[len(fetched) :] if path.endswith(bad)]
    assert len(again) >= 1
    for layer in built.layers:
        name = place.cache / "oci/blobs/sha256" / layer["digest"].removeprefix("sha256:")
        assert sha256(name) == name.name


def test_a_layer_that_is_missing_stops_the_others(registry: FakeRegistry, place: Workplace) -> None:
    built = registry.images.image("t/one", "1", LAYERS)
    registry.fault(built.layers[0]["digest"], answer(404))
    with pytest.raises(NotFoundError, match=built.layers[0]["digest"]):
        import_image(uri(registry), settings=place.settings())
    assert os.listdir(place.out) == []
    assert place.leftovers() == []


def test_a_layer_that_is_no_archive_is_named_and_leaves_nothing(
    registry: FakeRegistry, place: Workplace
) -> None:
    layers = [LAYERS[0], Layer(b"no archive at all" * 100, "none"), LAYERS[2]]
    registry.images.image("t/one", "1", layers)
    with pytest.raises(EnrootError, match=r"Layer 2 of 3 .*not a tar archive"):
        import_image(uri(registry), settings=place.settings())
    assert os.listdir(place.out) == []
    assert place.leftovers() == []


@pytest.mark.parametrize(
    ("setting", "value"), [("MAX_IMAGE_SIZE", "100K"), ("MAX_IMAGE_ENTRIES", "3")]
)
def test_limits_stop_an_import_and_name_the_setting(
    registry: FakeRegistry, place: Workplace, setting: str, value: str
) -> None:
    registry.images.image("t/one", "1", [*LAYERS, [file("zeros", bytes(1 << 20))]])
    with pytest.raises(LimitError) as caught:
        import_image(uri(registry), settings=place.settings(**{setting: value}))
    assert f"ENROOT_{setting}" in caught.value.hint
    assert os.listdir(place.out) == []
    assert place.leftovers() == []


def test_a_decompression_bomb_is_stopped(registry: FakeRegistry, place: Workplace) -> None:
    # 3 GiB of zeros in 3 MB of zstd frames: more than 250 bytes for one.
    import zstandard

    frame = zstandard.ZstdCompressor().compress(bytes(1 << 26))
    archive = Layer([file("zeros", bytes(1 << 20))], "none").archive()
    header = archive[:512]
    huge = bytearray(header)
    huge[124:136] = b"\x80" + (3 << 30).to_bytes(11, "big")
    huge[148:156] = b" " * 8
    huge[148:156] = b"%06o\0 " % sum(huge)
    blob = zstandard.ZstdCompressor().compress(bytes(huge)) + frame * 48
    images = registry.images
    layer = images.blob(blob, "application/vnd.oci.image.layer.v1.tar+zstd")
    config = images.blob(b'{"os": "linux"}', "application/vnd.oci.image.config.v1+json")
    manifest_type = "application/vnd.oci.image.manifest.v1+json"
    document = {
        "schemaVersion": 2, "mediaType": manifest_type, "config": config, "layers": [layer],
    }  # fmt: skip
    images.document("t/bomb", "1", document, manifest_type)
    with pytest.raises(LimitError, match="expand"):
        import_image(uri(registry, "t/bomb:1"), settings=place.settings())
    assert os.listdir(place.out) == []


def test_images_pulled_with_credentials_stay_private_in_a_shared_cache(place: Workplace) -> None:
    place.cache.mkdir()
    place.cache.chmod(0o1777)
    images = ImageStore()
    public = images.image("t/public", "1", [LAYERS[0]])
    private = images.image("t/private", "1", [LAYERS[1]])
    (place.path / "config").mkdir()
    shared = place.cache / "oci/blobs/sha256"
    own = place.cache / f"user.{os.geteuid()}" / "oci/blobs/sha256"
    with FakeRegistry(images) as registry:
        import_image(uri(registry, "t/public:1"), settings=place.settings())
    with FakeRegistry(images, auth=BasicAuth("u", "p")) as registry:
        credentials = place.path / "config" / ".credentials"
        credentials.write_text(f"machine {registry.host} login u password wrong\n")
        credentials.chmod(0o600)
        with pytest.raises(AuthenticationError):
            import_image(uri(registry, "t/private:1"), settings=place.settings())
        credentials.write_text(f"machine {registry.host} login u password p\n")
        import_image(uri(registry, "t/private:1"), settings=place.settings())

    def names(*built: object) -> set[str]:
        found = set()
        for image in built:
            for entry in (image.manifest, image.config, *image.layers):  # type: ignore[attr-defined]
                found.add(entry["digest"].removeprefix("sha256:"))
        return found

    assert {path.name for path in shared.iterdir()} == names(public)
    assert {path.name for path in own.iterdir()} == names(private)
    assert (place.cache / f"user.{os.geteuid()}").stat().st_mode & 0o077 == 0


def test_downloads_interrupted_long_ago_are_cleared_away(
    registry: FakeRegistry, place: Workplace
) -> None:
    registry.images.image("t/one", "1", LAYERS)
    partial = place.cache / "partial"
    partial.mkdir(parents=True)
    for folder in (place.cache, partial):
        folder.chmod(0o700)
    for name, age in (("sha256-old", 2 * 86400), ("sha256-new", 3600)):
        (partial / name).write_bytes(b"half")
        os.utime(partial / name, (time.time() - age,) * 2)
    import_image(uri(registry), settings=place.settings())
    assert os.listdir(partial) == ["sha256-new"]


def test_the_cache_is_trimmed_to_its_limit(registry: FakeRegistry, place: Workplace) -> None:
    registry.images.image("t/one", "1", [*LAYERS, [file("big", os.urandom(300_000))]])
    import_image(uri(registry), settings=place.settings(CACHE_LIMIT="100K"))
    size = sum(path.stat().st_blocks * 512 for path in place.cache.rglob("*") if path.is_file())
    assert size <= 110_000
    assert "big" in contents("t+one+1.sqsh")


def test_a_cached_image_is_made_once_and_lies_in_the_cache(
    registry: FakeRegistry, place: Workplace
) -> None:
    registry.images.image("t/one", "1", LAYERS)
    with cached_image(uri(registry), settings=place.settings()) as path:
        assert path.startswith(str(place.cache / "images"))
        assert "etc/top" in contents(path)
        first = os.stat(path).st_ino
    with cached_image(uri(registry), settings=place.settings()) as path:
        assert os.stat(path).st_ino == first
    assert place.leftovers() == []


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ("ubuntu", EnrootError),
        ("http://x/y", EnrootError),
        ("docker://", EnrootError),
        ("docker://u@h.test:1#A/B:1", EnrootError),
        ("oci:", EnrootError),
    ],
)
def test_malformed_references_are_refused_without_a_request(
    place: Workplace, wrong: str, kind: type[EnrootError]
) -> None:
    with pytest.raises(kind):
        import_image(wrong, settings=place.settings())
    assert not place.cache.exists()
    assert os.listdir(place.out) == []


def test_what_is_no_image_is_refused(registry: FakeRegistry, place: Workplace) -> None:
    chart = registry.images.blob(b"{}", "application/vnd.cncf.helm.config.v1+json")
    manifest_type = "application/vnd.oci.image.manifest.v1+json"
    document = {"schemaVersion": 2, "mediaType": manifest_type, "config": chart, "layers": []}
    registry.images.document("t/chart", "1", document, manifest_type)
    with pytest.raises(UnsupportedError, match="Not a container image"):
        import_image(uri(registry, "t/chart:1"), settings=place.settings())
    assert os.listdir(place.out) == []
