"""Mirrors, and what HTTP is allowed for."""

from __future__ import annotations

from pathlib import Path

import pytest

from enroot_py.errors import SettingsError
from enroot_py.image.reference import parse_reference
from enroot_py.registry.endpoints import find_endpoints
from tests.registry.pulling import make_settings


def endpoints(folder: Path, uri: str, **environ: str) -> list[tuple[str, bool, bool]]:
    """(URL of the repository, is it a mirror, may it get credentials) in order."""
    settings = make_settings(folder, **{"ENROOT_ALLOW_HTTP": "", **environ})
    return [
        (f"{one.scheme}://{one.host}/{one.repository}", one.mirror, one.sends_credentials)
        for one in find_endpoints(parse_reference(uri), settings)
    ]


ORIGIN = ("https://r.io/a/b", False, True)
TWO = [("https://m.io/a/b", True, True), ("https://n.io/a/b", True, True)]


@pytest.mark.parametrize(
    ("mirrors", "expected"),
    [
        ("", []),
        ("r.io=m.io", [("https://m.io/a/b", True, True)]),
        ("R.IO=M.io:5000", [("https://m.io:5000/a/b", True, True)]),
        ("r.io=m.io/cache", [("https://m.io/cache/a/b", True, True)]),
        ("r.io=m.io/c/d/", [("https://m.io/c/d/a/b", True, True)]),
        ("r.io=https://m.io", [("https://m.io/a/b", True, True)]),
        ("r.io=http://m.io", [("http://m.io/a/b", True, False)]),
        ("r.io=m.io,n.io", TWO),
        ("r.io=m.io r.io=n.io", TWO),
        ("r.io=m.io; x.io=n.io", [("https://m.io/a/b", True, True)]),
        ("x.io=n.io", []),
        ("r.io=[::1]:5000", [("https://[::1]:5000/a/b", True, True)]),
    ],
)  # fmt: skip
def test_mirrors_come_first(
    tmp_path: Path, mirrors: str, expected: list[tuple[str, bool, bool]]
) -> None:
    found = endpoints(tmp_path, "docker://r.io/a/b", ENROOT_MIRRORS=mirrors)
    assert found == [*expected, ORIGIN]


@pytest.mark.parametrize("name", ["docker.io", "index.docker.io", "registry-1.docker.io"])
def test_docker_hub_goes_by_all_its_names(tmp_path: Path, name: str) -> None:
    found = endpoints(tmp_path, "docker://ubuntu", ENROOT_MIRRORS=f"{name}=m.io")
    assert [url for url, _, _ in found] == [
        "https://m.io/library/ubuntu",
        "https://registry-1.docker.io/library/ubuntu",
    ]


@pytest.mark.parametrize("place", ["config", "etc", "named"])
def test_mirrors_from_a_file(tmp_path: Path, place: str) -> None:
    (tmp_path / place).mkdir()
    path = tmp_path / place / "mirrors"
    path.write_text("# where images come from\nr.io=m.io  # near\n\ndocker.io=n.io\n")
    environ = {"ENROOT_MIRRORS": str(path)} if place == "named" else {}
    found = endpoints(tmp_path, "docker://r.io/a/b", **environ)
    assert found == [("https://m.io/a/b", True, True), ORIGIN]


@pytest.mark.parametrize(
    "mirrors",
    ["r.io", "r.io=", "=m.io", "r.io=m.io:x", "r.io=ftp://m.io", "r.io=m.io/../x", "r.io=m.io/Up",
     "r.io=m.io,http://", "r.io=u@m.io", "r.io=m.io?x", "/no/such/file"],
)  # fmt: skip
def test_malformed_mirrors_are_named(tmp_path: Path, mirrors: str) -> None:
    with pytest.raises(SettingsError) as caught:
        endpoints(tmp_path, "docker://r.io/a/b", ENROOT_MIRRORS=mirrors)
    assert caught.value.hint


def test_a_malformed_line_of_a_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mirrors"
    path.write_text("r.io=m.io\nnonsense\n")
    with pytest.raises(SettingsError, match=f"{path}, line 2: nonsense"):
        endpoints(tmp_path, "docker://r.io/a/b", ENROOT_MIRRORS=str(path))


@pytest.mark.parametrize(
    ("value", "scheme"), [("", "https"), ("no", "https"), ("yes", "http"), ("redirects", "https")]
)
def test_http_is_for_those_who_ask_for_it(tmp_path: Path, value: str, scheme: str) -> None:
    found = endpoints(tmp_path, "docker://r.io/a/b", ENROOT_ALLOW_HTTP=value)
    assert found == [(f"{scheme}://r.io/a/b", False, True)]


def test_with_http_allowed_a_plain_mirror_gets_credentials_too(tmp_path: Path) -> None:
    found = endpoints(
        tmp_path, "docker://r.io/a/b", ENROOT_ALLOW_HTTP="y", ENROOT_MIRRORS="r.io=http://m.io"
    )
    assert found[0] == ("http://m.io/a/b", True, True)
