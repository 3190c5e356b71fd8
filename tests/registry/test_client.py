"""Pulling images: which requests are made, and what is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from enroot_py.errors import (
    DigestMismatchError,
    EnrootError,
    ManifestError,
    NotFoundError,
    PlatformError,
    RegistryError,
    UnsupportedError,
)
from enroot_py.image.digest import parse_digest
from enroot_py.image.manifest import DOCKER_MANIFEST, OCI_INDEX, OCI_MANIFEST, Descriptor
from enroot_py.image.platform import parse_platform
from enroot_py.operations.digest import digest
from enroot_py.settings import Settings
from tests.registry.fake_registry import BasicAuth, FakeRegistry
from tests.registry.faults import answer, body, change, corrupt, redirect, truncate
from tests.registry.images import DOCKER, ImageStore, Layer, directory, file
from tests.registry.pulling import (
    HashedTarget,
    Pull,
    Target,
    make_settings,
    write_credentials,
)

GZIP_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


@pytest.mark.parametrize(
    "form",
    [
        "#t/idx:1",
        "/t/idx:1",
        "#t/idx@DIGEST",
        "/t/idx@DIGEST",
        "#t/idx:2@DIGEST",
        "/t/idx:2@DIGEST",
    ],
)
def test_every_spelling_asks_for_the_same_repository(
    pull: Pull, store: ImageStore, form: str
) -> None:
    index = store.tags["t/idx", "1"][0]
    with FakeRegistry(store) as registry:
        image = pull.run(f"docker://u@{registry.host}" + form.replace("DIGEST", index))
        selector = index if "DIGEST" in form else "1"
        assert registry.paths()[0] == f"/v2/t/idx/manifests/{selector}"
        assert all(path.startswith("/v2/t/idx/") for path in registry.paths())
    assert str(image.index_digest) == index
    assert image.config.architecture == "amd64"
    assert image.reference.canonical().endswith(f"#t/idx@{image.manifest_digest}")


def test_a_repository_of_one_component_is_asked_for_as_it_is(pull: Pull, store: ImageStore) -> None:
    with FakeRegistry(store) as registry:
        pull.run(f"docker://{registry.host}#solo:1")
        assert registry.paths("manifests") == ["/v2/solo/manifests/1"]


@pytest.mark.parametrize(
    ("arch", "chosen"),
    [("x86_64", "amd64"), ("amd64", "amd64"), ("aarch64", "arm64"), ("arm64", "arm64")],
)
def test_both_spellings_of_an_architecture_choose(
    pull: Pull, store: ImageStore, arch: str, chosen: str
) -> None:
    pull.arch = arch
    with FakeRegistry(store) as registry:
        assert pull.run(f"docker://{registry.host}/t/idx:1").config.architecture == chosen


def test_a_missing_architecture_is_answered_with_those_that_there_are(
    pull: Pull, store: ImageStore
) -> None:
    pull.arch = "ppc64le"
    with FakeRegistry(store) as registry, pytest.raises(PlatformError) as caught:
        pull.run(f"docker://{registry.host}/t/idx:1")
    assert "linux/ppc64le" in str(caught.value)
    assert "linux/arm64, linux/amd64" in str(caught.value)
    assert "unknown" not in str(caught.value)


def test_an_image_without_index_for_another_architecture_is_warned_of(
    pull: Pull, store: ImageStore
) -> None:
    pull.arch = "aarch64"
    with FakeRegistry(store) as registry:
        pull.run(f"docker://{registry.host}/t/one:1")
    assert (
        "WARN",
        "The image is made for another architecture than asked for: amd64 != arm64",
    ) in (pull.messages)


@pytest.mark.parametrize("compression", ["gzip", "zstd", "none"])
@pytest.mark.parametrize("style", ["oci", DOCKER])
def test_all_media_types_are_pulled(pull: Pull, style: str, compression: str) -> None:
    store = ImageStore()
    layer = Layer([directory("etc")], compression)
    built = store.image("x", "1", [layer], style=style)
    store.index("x", "2", [(built, "linux/amd64")], style=style)
    with FakeRegistry(store) as registry:
        for tag in "12":
            assert (
                str(pull.run(f"docker://{registry.host}#x:{tag}").manifest_digest) == built.digest
            )
    assert pull.layers == [layer.stored()] * 2


def test_the_request_for_a_manifest_accepts_every_type(pull: Pull, store: ImageStore) -> None:
    with FakeRegistry(store) as registry:
        pull.run(f"docker://{registry.host}/t/one:1")
        accepted = registry.log[0].headers["accept"].split(", ")
    assert {OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST} < set(accepted)


def test_digest_prints_that_of_the_platforms_manifest(tmp_path: Path, store: ImageStore) -> None:
    settings = make_settings(tmp_path)
    with FakeRegistry(store) as registry:
        for arch in ("amd64", "arm64"):
            found = digest(f"docker://{registry.host}/t/idx:1", settings=settings, arch=arch)
            assert json.loads(store.blobs[found])["layers"]
            config = json.loads(store.blobs[found])["config"]["digest"]
            assert json.loads(store.blobs[config])["architecture"] == arch
        assert not registry.paths("/blobs/")


@pytest.mark.parametrize("uri", ["dockerd://x", "podman://x", "x"])
def test_digest_wants_a_registrys_reference(settings: Settings, uri: str) -> None:
    with pytest.raises(EnrootError):
        digest(uri, settings=settings)


@pytest.mark.parametrize("by_digest", [False, True])
def test_a_manifest_with_other_bytes_is_refused(
    pull: Pull, store: ImageStore, by_digest: bool
) -> None:
    built = store.tags["t/one", "1"][0]
    other = store.blobs[store.tags["solo", "1"][0]]
    with FakeRegistry(store) as registry:
        registry.fault("/manifests/", body(other))
        form = f"@{built}" if by_digest else ":1"
        with pytest.raises(DigestMismatchError, match="another manifest"):
            pull.run(f"docker://{registry.host}/t/one{form}")
        assert len(registry.log) == 1


@pytest.mark.parametrize("label", ["sha256:" + "0" * 64, "sha256:../../x", "nonsense", "md5:00"])
def test_a_manifest_announced_wrongly_is_refused(pull: Pull, store: ImageStore, label: str) -> None:
    with FakeRegistry(store) as registry:
        registry.fault("/manifests/", change(Docker_Content_Digest=label))
        with pytest.raises(DigestMismatchError):
            pull.run(f"docker://{registry.host}/t/one:1")


def test_a_manifest_announced_by_sha512_is_checked_with_that(pull: Pull, store: ImageStore) -> None:
    data = store.blobs[store.tags["t/one", "1"][0]]
    right = "sha512:" + hashlib.sha512(data).hexdigest()
    with FakeRegistry(store) as registry:
        registry.fault("/manifests/", change(Docker_Content_Digest=right), times=1)
        pull.run(f"docker://{registry.host}/t/one:1")
        registry.fault("/manifests/", change(Docker_Content_Digest="sha512:" + "0" * 128))
        with pytest.raises(DigestMismatchError):
            pull.run(f"docker://{registry.host}/t/one:1")


def test_a_registry_without_content_digest_will_do(pull: Pull, store: ImageStore) -> None:
    with FakeRegistry(store) as registry:
        registry.fault("/manifests/", change(Docker_Content_Digest=""))
        pull.run(f"docker://{registry.host}/t/one:1")


def test_an_endless_manifest_is_cut_off(pull: Pull, store: ImageStore) -> None:
    with FakeRegistry(store) as registry:
        registry.fault("/manifests/", body(b" " * (5 << 20)))
        with pytest.raises(RegistryError, match="longer than"):
            pull.run(f"docker://{registry.host}/t/one:1")


def test_a_config_that_claims_to_be_huge_is_not_fetched(pull: Pull, store: ImageStore) -> None:
    manifest = json.loads(store.blobs[store.tags["t/one", "1"][0]])
    manifest["config"]["size"] = 1 << 40
    store.document("t/one", "2", manifest, OCI_MANIFEST)
    with FakeRegistry(store) as registry:
        with pytest.raises(ManifestError, match="too large"):
            pull.run(f"docker://{registry.host}/t/one:2")
        assert not registry.paths("/blobs/")


def test_indexes_may_lie_within_each_other_but_not_without_end(pull: Pull) -> None:
    store = ImageStore()
    inner: Any = store.image("x", "", [[file("a")]])
    for depth in range(6):
        entry = inner if isinstance(inner, dict) else inner.manifest
        inner = store.index("x", str(depth), [(entry, "linux/amd64")])
    with FakeRegistry(store) as registry:
        pull.run(f"docker://{registry.host}#x:2")
        with pytest.raises(ManifestError, match="without end"):
            pull.run(f"docker://{registry.host}#x:5")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"layers": []}, ManifestError),
        ({"layers": None}, ManifestError),
        ({"config": {"mediaType": "application/vnd.cncf.helm.config.v1+json"}}, UnsupportedError),
        ({"layers": [{"mediaType": f"{GZIP_LAYER}+encrypted"}]}, UnsupportedError),
        ({"layers": [{"mediaType": "application/x-unknown"}]}, UnsupportedError),
    ],
)  # fmt: skip
def test_what_is_no_image_is_refused_before_any_blob(
    pull: Pull, store: ImageStore, changes: dict[str, Any], error: type[EnrootError]
) -> None:
    manifest = json.loads(store.blobs[store.tags["t/one", "1"][0]])
    for key, value in changes.items():
        if isinstance(value, dict):
            manifest[key] |= value
        elif value:
            manifest[key] = [manifest[key][0] | value[0]]
        else:
            manifest[key] = value
    store.document("t/one", "2", manifest, OCI_MANIFEST)
    with FakeRegistry(store) as registry:
        with pytest.raises(error):
            pull.run(f"docker://{registry.host}/t/one:2")
        assert not registry.paths("/blobs/")


def test_a_config_that_speaks_of_other_layers_is_refused(pull: Pull, store: ImageStore) -> None:
    manifest = json.loads(store.blobs[store.tags["t/one", "1"][0]])
    manifest["layers"].pop()
    store.document("t/one", "2", manifest, OCI_MANIFEST)
    with FakeRegistry(store) as registry, pytest.raises(ManifestError, match="1 layers.*of 2"):
        pull.run(f"docker://{registry.host}/t/one:2")


def test_an_image_for_another_system_is_refused(pull: Pull) -> None:
    store = ImageStore()
    store.image("x", "1", [[file("a")]], os="windows")
    with FakeRegistry(store) as registry, pytest.raises(UnsupportedError, match="windows"):
        pull.run(f"docker://{registry.host}#x:1")


def foreign_layer(store: ImageStore, url: str) -> Descriptor:
    data = b"layer elsewhere"
    digest_text = "sha256:" + hashlib.sha256(data).hexdigest()
    return Descriptor(
        "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
        parse_digest(digest_text),
        len(data),
        urls=(url,),
    )


def test_layers_to_be_had_from_elsewhere_only_are_not_fetched_there(
    tmp_path: Path, store: ImageStore
) -> None:
    settings = make_settings(tmp_path)
    with (
        FakeRegistry() as internal,
        FakeRegistry(store, auth=BasicAuth("u", "p")) as registry,
    ):
        write_credentials(settings, f"machine {registry.host} login u password p")
        layer = foreign_layer(store, f"{internal.url}/latest/meta-data")
        with Pull(settings).open(f"docker://{registry.host}/t/one:1") as client:
            with pytest.raises(UnsupportedError, match="only a link"):
                client.download_blob(layer, Target())
            store.blobs[str(layer.digest)] = b"layer elsewhere"
            assert client.read_blob(layer) == b"layer elsewhere"
        assert not internal.log


def test_a_missing_tag_is_answered_with_similar_ones(pull: Pull) -> None:
    store = ImageStore()
    for tag in ("24.01-py3", "24.02-py3", "23.12-py3", "latest"):
        store.image("ns/torch", tag, [[file("a")]])
    with FakeRegistry(store) as registry:
        with pytest.raises(NotFoundError) as caught:
            pull.run(f"docker://{registry.host}/ns/torch:24.03-py3")
        assert "24.03-py3" in str(caught.value)
        assert f"{registry.host}/ns/torch" in str(caught.value)
        assert "24.02-py3" in str(caught.value)
        assert f"{registry.host}/v2/ns/torch/tags/list" in caught.value.hint


@pytest.mark.parametrize(
    ("tags", "hint"),
    [
        # Of a repository that is not there no list of tags can be had.
        (answer(404), "check the name: the registry has no t/one"),
        (answer(401), "list the tags"),
        (answer(200, b"[]"), "list the tags"),
        (answer(503), "list the tags"),
    ],
)
def test_a_missing_tag_is_said_even_if_there_is_no_list(
    pull: Pull, store: ImageStore, tags: Any, hint: str
) -> None:
    with FakeRegistry(store) as registry:
        registry.fault("/tags/", tags)
        with pytest.raises(NotFoundError, match="No such image: .*t/one, 2") as caught:
            pull.run(f"docker://{registry.host}/t/one:2")
        assert caught.value.hint.startswith(hint)


def test_a_missing_digest_is_said(pull: Pull, store: ImageStore) -> None:
    wrong = "sha256:" + "0" * 64
    with FakeRegistry(store) as registry:
        with pytest.raises(NotFoundError, match=wrong):
            pull.run(f"docker://{registry.host}/t/one@{wrong}")
        assert not registry.paths("/tags/")


def test_a_missing_blob_is_said(pull: Pull, store: ImageStore) -> None:
    with FakeRegistry(store) as registry:
        registry.fault("/blobs/", answer(404))
        with pytest.raises(NotFoundError, match="has no blob sha256:"):
            pull.run(f"docker://{registry.host}/t/one:1")


def test_blobs_behind_a_redirect_get_no_secret(tmp_path: Path, store: ImageStore) -> None:
    settings = make_settings(tmp_path)
    with FakeRegistry(store) as storage, FakeRegistry(store, auth=BasicAuth("u", "p")) as registry:
        registry.fault("/blobs/", redirect(storage.url))
        write_credentials(
            settings,
            f"machine {registry.host} login u password p",
            f"machine {storage.host} login x password y",
        )
        Pull(settings).run(f"docker://{registry.host}/t/one:1")
        assert len(storage.log) == 3
        for entry in storage.log:
            assert not {"authorization", "cookie", "referer"} & set(entry.headers)


def test_a_storage_that_asks_for_a_login_gets_none(tmp_path: Path, store: ImageStore) -> None:
    settings = make_settings(tmp_path)
    with (
        FakeRegistry(store, auth=BasicAuth("u", "p")) as storage,
        FakeRegistry(store, auth=BasicAuth("u", "p")) as registry,
    ):
        registry.fault("/blobs/", redirect(storage.url))
        write_credentials(settings, "machine 127.0.0.1 login u password p")
        with pytest.raises(RegistryError, match=f"{storage.host}.* 401"):
            Pull(settings).run(f"docker://{registry.host}/t/one:1")
        assert not any(entry.authorization for entry in storage.log)


def test_redirects_within_the_registry_keep_the_login(tmp_path: Path, store: ImageStore) -> None:
    settings = make_settings(tmp_path)
    with FakeRegistry(store, auth=BasicAuth("u", "p")) as registry:
        blob = next(iter(store.blobs))
        registry.fault("/blobs/", redirect(registry.url + f"/v2/t/one/blobs/{blob}"), times=1)
        write_credentials(settings, f"machine {registry.host} login u password p")
        with Pull(settings).open(f"docker://{registry.host}/t/one:1") as client:
            descriptor = Descriptor("x", parse_digest(blob), len(store.blobs[blob]))
            assert client.read_blob(descriptor) == store.blobs[blob]


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("ftp://127.0.0.1/x", "no web address"),
        ("file:///etc/passwd", "no web address"),
        ("http://127.0.0.1:0/x", "no web address"),
        ("http://[::1", "no web address"),
    ],
)
def test_redirects_to_elsewhere_than_the_web_are_refused(
    pull: Pull, store: ImageStore, location: str, words: str
) -> None:
    with FakeRegistry(store) as registry:
        registry.fault("/blobs/", answer(307, b" ", {"Location": location}))
        with pytest.raises(RegistryError, match=words):
            pull.run(f"docker://{registry.host}/t/one:1")


def test_redirects_without_end_are_refused(pull: Pull, store: ImageStore) -> None:
    with FakeRegistry(store) as registry:
        registry.fault("/blobs/", redirect(registry.url))
        with pytest.raises(RegistryError, match="without end"):
            pull.run(f"docker://{registry.host}/t/one:1")
        assert len(registry.paths("/blobs/")) == 6


def test_a_user_in_a_redirect_becomes_no_login(pull: Pull, store: ImageStore) -> None:
    with FakeRegistry(store) as storage, FakeRegistry(store) as registry:
        registry.fault("/blobs/", redirect(f"http://u:p@{storage.host}"))
        pull.run(f"docker://{registry.host}/t/one:1")
        assert not any(entry.authorization for entry in storage.log)


def test_queries_of_redirects_are_not_shown(pull: Pull, store: ImageStore) -> None:
    with FakeRegistry() as storage, FakeRegistry(store) as registry:
        registry.fault("/blobs/", redirect(f"{storage.url}/x?X-Amz-Signature=hunter2"))
        with pytest.raises(RegistryError) as caught:
            pull.run(f"docker://{registry.host}/t/one:1")
        assert storage.log[0].query == {"X-Amz-Signature": ["hunter2"]}
        assert "hunter2" not in str(caught.value) + caught.value.hint + pull.text()


def test_escape_codes_of_a_registry_are_not_passed_on(pull: Pull, store: ImageStore) -> None:
    text = json.dumps({"errors": [{"code": "X", "message": "a\x1b[2Jb\nc\u202e"}]}).encode()
    with FakeRegistry(store) as registry:
        registry.fault("/manifests/", answer(418, text, {"Content-Type": "application/json"}))
        with pytest.raises(RegistryError) as caught:
            pull.run(f"docker://{registry.host}/t/one:1")
        assert str(caught.value).isprintable()
        assert "418" in str(caught.value) and "a\\x1b[2Jb c\\u202e" in str(caught.value)


def test_mirrors_are_asked_first_and_fallen_back_from(tmp_path: Path, store: ImageStore) -> None:
    partial = ImageStore()
    partial.image("cache/solo", "1", [[file("solo")]])
    with FakeRegistry(partial) as mirror, FakeRegistry(store) as registry:
        mirrors = f"{registry.host}=127.0.0.1:1,http://{mirror.host}/cache"
        settings = make_settings(tmp_path, ENROOT_MIRRORS=mirrors)
        pull = Pull(settings)
        image = pull.run(f"docker://{registry.host}#solo:1")
        assert pull.text().count("127.0.0.1:1 cannot serve") == 1
        assert image.reference.registry == registry.host
        assert not registry.log
        assert mirror.paths("manifests") == ["/v2/cache/solo/manifests/1"]
        pull = Pull(settings)
        pull.run(f"docker://{registry.host}/t/one:1")
        assert registry.paths("manifests") == ["/v2/t/one/manifests/1"]
        assert "does not have" in pull.text()


def test_the_registry_serves_what_a_mirror_sends_wrongly(tmp_path: Path, store: ImageStore) -> None:
    with FakeRegistry(store) as mirror, FakeRegistry(store) as registry:
        settings = make_settings(tmp_path, ENROOT_MIRRORS=f"{registry.host}={mirror.host}")
        mirror.fault("/blobs/", corrupt())
        pull = Pull(settings)
        pull.run(f"docker://{registry.host}/t/one:1")
        assert len(registry.paths("/blobs/")) == 3


def test_what_a_mirror_has_sent_is_not_fetched_again(tmp_path: Path) -> None:
    data = bytes(range(256)) * 4000
    store = ImageStore()
    store.image("x", "1", [Layer(data, "none")])
    with FakeRegistry(store) as mirror, FakeRegistry(store) as registry:
        settings = make_settings(tmp_path, ENROOT_MIRRORS=f"{registry.host}={mirror.host}")
        layer = "/blobs/sha256:" + hashlib.sha256(data).hexdigest()
        mirror.fault(layer, truncate(500_000), times=1)
        mirror.fault(layer, answer(404))
        with Pull(settings).open(f"docker://{registry.host}#x:1") as client:
            descriptor = client.get_manifest(parse_platform("amd64")).manifest.layers[0]
            target = HashedTarget(data)
            client.download_blob(descriptor, target)
        assert target.data == data
        assert [entry.headers["range"] for entry in registry.log] == ["bytes=500000-"]


def test_a_mirror_gets_neither_the_registrys_account_nor_the_references_user(
    tmp_path: Path, store: ImageStore
) -> None:
    auth = BasicAuth("u", "p")
    with FakeRegistry(store, auth=auth) as mirror, FakeRegistry(store, auth=auth) as registry:
        settings = make_settings(tmp_path, ENROOT_MIRRORS=f"{registry.host}={mirror.host}")
        write_credentials(settings, f"machine {registry.host} login u password p")
        pull = Pull(settings)
        pull.run(f"docker://u@{registry.host}/t/one:1")
        assert not any(entry.authorization for entry in mirror.log)
        assert not pull.asked
