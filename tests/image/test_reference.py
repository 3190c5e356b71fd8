"""References: every spelling enroot takes, and everything that must be refused."""

from __future__ import annotations

import pytest

from enroot_py.errors import InvalidReferenceError
from enroot_py.image.digest import parse_digest
from enroot_py.image.reference import (
    DOCKER_HUB,
    default_filename,
    default_name,
    parse_reference,
)

HEX = "0123456789abcdef" * 4
DIGEST = f"sha256:{HEX}"

SPELLINGS = [
    # uri, user, registry, repository, what is asked for
    ("docker://ubuntu", "", DOCKER_HUB, "library/ubuntu", "latest"),
    ("docker://ubuntu:24.04", "", DOCKER_HUB, "library/ubuntu", "24.04"),
    ("docker://docker.io/ubuntu", "", DOCKER_HUB, "library/ubuntu", "latest"),
    ("docker://docker.io#ubuntu", "", DOCKER_HUB, "library/ubuntu", "latest"),
    ("docker://docker.io/library/ubuntu", "", DOCKER_HUB, "library/ubuntu", "latest"),
    ("docker://index.docker.io/ubuntu", "", DOCKER_HUB, "library/ubuntu", "latest"),
    ("docker://registry-1.docker.io#ubuntu:1", "", DOCKER_HUB, "library/ubuntu", "1"),
    ("docker://ns/img", "", DOCKER_HUB, "ns/img", "latest"),
    ("docker://a/b/c:1", "", DOCKER_HUB, "a/b/c", "1"),
    ("docker://nvcr.io/nvidia/cuda:12.4", "", "nvcr.io", "nvidia/cuda", "12.4"),
    ("docker://nvcr.io#nvidia/cuda:12.4", "", "nvcr.io", "nvidia/cuda", "12.4"),
    ("docker://NVCR.io#nvidia/cuda:12.4", "", "nvcr.io", "nvidia/cuda", "12.4"),
    ("docker://$oauthtoken@nvcr.io#nvidia/cuda:1", "$oauthtoken", "nvcr.io", "nvidia/cuda", "1"),
    ("docker://$oauthtoken@nvcr.io/nvidia/cuda:1", "$oauthtoken", "nvcr.io", "nvidia/cuda", "1"),
    ("docker://me@ubuntu", "me", DOCKER_HUB, "library/ubuntu", "latest"),
    ("docker://me@ubuntu:24.04", "me", DOCKER_HUB, "library/ubuntu", "24.04"),
    ("docker://me@ns/img:1", "me", DOCKER_HUB, "ns/img", "1"),
    ("docker://me@corp.com@r.io#a/b:1", "me@corp.com", "r.io", "a/b", "1"),
    ("docker://dom\\me@r.io#a:1", "dom\\me", "r.io", "a", "1"),
    ("docker://dom/me@r.io/a:1", "dom/me", "r.io", "a", "1"),
    ("docker://127.0.0.1:5601#t/idx:1", "", "127.0.0.1:5601", "t/idx", "1"),
    ("docker://127.0.0.1:5601/t/idx:1", "", "127.0.0.1:5601", "t/idx", "1"),
    ("docker://127.0.0.1:5601/solo:1", "", "127.0.0.1:5601", "solo", "1"),
    ("docker://localhost/img", "", "localhost", "img", "latest"),
    ("docker://localhost:5000/img", "", "localhost:5000", "img", "latest"),
    ("docker://host:5000/img", "", "host:5000", "img", "latest"),
    ("docker://host#img", "", "host", "img", "latest"),
    ("docker://[::1]:5000/img:1", "", "[::1]:5000", "img", "1"),
    ("docker://[::1]/img:1", "", "[::1]", "img", "1"),
    ("docker://me@host:5000/img", "me", "host:5000", "img", "latest"),
    (f"docker://ubuntu@{DIGEST}", "", DOCKER_HUB, "library/ubuntu", DIGEST),
    (f"docker://ubuntu:24.04@{DIGEST}", "", DOCKER_HUB, "library/ubuntu", DIGEST),
    (f"docker://ns/img@{DIGEST}", "", DOCKER_HUB, "ns/img", DIGEST),
    (f"docker://ns/img:1@{DIGEST}", "", DOCKER_HUB, "ns/img", DIGEST),
    (f"docker://h:1#t/idx@{DIGEST}", "", "h:1", "t/idx", DIGEST),
    (f"docker://h:1/t/idx@{DIGEST}", "", "h:1", "t/idx", DIGEST),
    (f"docker://h:1#t/idx:1@{DIGEST}", "", "h:1", "t/idx", DIGEST),
    (f"docker://h:1/t/idx:1@{DIGEST}", "", "h:1", "t/idx", DIGEST),
    (f"docker://u@h:1/t/idx:1@{DIGEST}", "u", "h:1", "t/idx", DIGEST),
    ("docker://r.io/a.b/c_d/e__f/g--h:v1_2.3-x", "", "r.io", "a.b/c_d/e__f/g--h", "v1_2.3-x"),
    ("oras://ghcr.io/org/model:1", "", "ghcr.io", "org/model", "1"),
]  # fmt: skip


@pytest.mark.parametrize(("uri", "user", "registry", "repository", "selector"), SPELLINGS)
def test_spellings(uri: str, user: str, registry: str, repository: str, selector: str) -> None:
    reference = parse_reference(uri)
    assert reference.user == user
    assert reference.registry == registry
    assert reference.repository == repository
    assert reference.selector() == selector


@pytest.mark.parametrize("uri", [row[0] for row in SPELLINGS])
def test_the_canonical_form_means_the_same_and_has_no_user(uri: str) -> None:
    reference = parse_reference(uri)
    again = parse_reference(reference.canonical())
    assert again.canonical() == reference.canonical()
    assert (again.registry, again.repository) == (reference.registry, reference.repository)
    assert again.selector() == reference.selector()
    assert again.user == ""


REFUSED = [
    "",
    "ubuntu",
    "docker:ubuntu",
    "docker://",
    "docker://#",
    "docker://@",
    "docker://#img",
    "docker://host#",
    "docker://host/#img",
    "docker://a#b#c",
    "docker://ubuntu:",
    "docker://host:1#img:",
    "docker://img:1:2",
    "docker://img:-x",
    "docker://img:" + "t" * 129,
    "docker://img:ta g",
    "docker://Ubuntu",
    "docker://NVIDIA/cuda",
    "docker://host:1/T/idx",
    "docker://img\n",
    "docker://img\x1b[2J",
    "docker://imäge",
    "docker://../../etc",
    "docker://host:1/../etc",
    "docker://host:1/a/../b",
    "docker://host:1/a//b",
    "docker://host:1//a",
    "docker://host:1/a/",
    "docker://host:1/.a",
    "docker://host:1/a___b",
    "docker://host:1/" + "a" * 256,
    "docker://host:0/img",
    "docker://host:65536/img",
    "docker://host:99999999999999999999/img",
    "docker://host:x/img",
    "docker://host:٣/img",
    "docker://ubuntu:20.04/foo",
    "docker://ho st#img",
    "docker://-host.io/img",
    "docker://host..io/img",
    "docker://.host/img",
    "docker://host.io./img",
    "docker://" + "a" * 64 + ".io/img",
    "docker://" + "a." * 127 + "io/img",
    "docker://bücher.example/img",
    "docker://dоcker.io/img",  # a Cyrillic o
    "docker://[::1/img",
    "docker://[g::1]:5000/img",
    "docker://us er@host.io/img",
    "docker://us#er@host.io/img",
    "docker://host.io/img?tag=1",
    "docker://host.io/img%2f..",
    "docker://img@sha256:",
    "docker://img@sha256:../../x",
    f"docker://img@sha256:{HEX[:-1]}",
    f"docker://img@sha256:{HEX}0",
    f"docker://img@sha256:{HEX.upper()}",
    f"docker://img@SHA256:{HEX}",
    f"docker://img@sha1:{HEX[:40]}",
    f"docker://img@md5:{HEX[:32]}",
    f"docker://img@sha512:{HEX}",
    f"docker://img@{DIGEST}@{DIGEST}",
    f"docker://@{DIGEST}",
    "http://host.io/img",
    "file:///etc/passwd",
    "DOCKER://img",
    "dockerd://",
    "dockerd://-v",
    "dockerd://img;id",
    "podman://a b",
    "podman://$(id)",
]


@pytest.mark.parametrize("uri", REFUSED)
def test_refused(uri: str) -> None:
    with pytest.raises(InvalidReferenceError) as caught:
        parse_reference(uri)
    assert caught.value.hint
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("uri", "right"),
    [
        ("nvcr.io/nvidia/cuda:12.4", "docker://nvcr.io/nvidia/cuda:12.4"),
        ("docker:/ubuntu", "docker://ubuntu"),
        ("//ubuntu", "docker://ubuntu"),
        ("docker:24-dind", "docker://docker:24-dind"),  # an image of that name
    ],
)
def test_a_name_without_a_scheme_is_answered_with_the_right_spelling(uri: str, right: str) -> None:
    with pytest.raises(InvalidReferenceError) as caught:
        parse_reference(uri)
    assert caught.value.hint.endswith(f" {right}")


def test_a_password_in_a_bad_reference_is_not_repeated() -> None:
    with pytest.raises(InvalidReferenceError) as caught:
        parse_reference("docker://me:hunter2@host.io/BAD")
    assert "hunter2" not in str(caught.value) + caught.value.hint
    assert "hunter2" not in repr(parse_reference("docker://me:hunter2@host.io/ok"))


def test_sha512_digests_are_known() -> None:
    reference = parse_reference(f"docker://img@sha512:{HEX}{HEX}")
    assert str(reference.digest) == f"sha512:{HEX}{HEX}"


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("docker://ubuntu", "ubuntu+latest"),
        ("docker://ubuntu:24.04", "ubuntu+24.04"),
        ("docker://docker.io#library/ubuntu:24.04", "ubuntu+24.04"),
        ("docker://ns/img:1", "ns+img+1"),
        ("docker://nvcr.io#nvidia/cuda:12.4", "nvidia+cuda+12.4"),
        ("docker://host.io#library/x:1", "library+x+1"),
        (f"docker://ubuntu:24.04@{DIGEST}", f"ubuntu+{DIGEST}"),
        ("dockerd://ubuntu", "ubuntu"),
        ("dockerd://host:5000/a/b:1", "host+5000+a+b+1"),
        ("podman://localhost/img:1", "localhost+img+1"),
    ],
)
def test_default_names(uri: str, name: str) -> None:
    assert default_name(parse_reference(uri)) == name
    assert default_filename(parse_reference(uri)) == name + ".sqsh"


def test_pinned_reference_has_the_digest_and_neither_tag_nor_user() -> None:
    pinned = parse_reference("docker://me@host.io/img:1").pinned(parse_digest(DIGEST))
    assert pinned.canonical() == f"docker://host.io#img@{DIGEST}"
    assert pinned.user == ""


def test_daemon_references_keep_the_name_as_it_is() -> None:
    reference = parse_reference("dockerd://Host/Img_x:V1")
    assert reference.repository == "Host/Img_x:V1"
    assert reference.canonical() == "dockerd://Host/Img_x:V1"
