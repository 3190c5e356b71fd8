"""Which account belongs to which host."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from enroot_py import log
from enroot_py.errors import AuthenticationError
from enroot_py.registry.accounts.credentials import (
    Credentials,
    find_credentials,
    host_names,
    realm_belongs_to,
)
from enroot_py.settings import Settings
from tests.registry.pulling import make_settings, write_credentials

HUB = "registry-1.docker.io"


@pytest.mark.parametrize(
    ("registry", "first", "more"),
    [
        ("h", "h", set()),
        ("h:5000", "h:5000", {"h"}),
        ("[::1]:5000", "[::1]:5000", {"[::1]"}),
        ("[::1]", "[::1]", set()),
        (HUB, HUB, {"docker.io", "index.docker.io"}),
    ],
)
def test_names_an_account_may_be_listed_under(registry: str, first: str, more: set[str]) -> None:
    names = host_names(registry)
    assert names[0] == first
    assert set(names[1:]) == more


@pytest.mark.parametrize("name", ["docker.io", "index.docker.io", HUB])
def test_docker_hub_goes_by_all_its_names(settings: Settings, name: str) -> None:
    write_credentials(settings, f"machine {name} login u password p")
    found = find_credentials(settings, HUB, "library/x")
    assert found and (found.user, found.password) == ("u", "p")


@pytest.mark.parametrize(
    ("realm", "registry", "belongs"),
    [
        ("r.io", "r.io", True),
        ("auth.r.io", "r.io", True),
        ("r.io", "registry.r.io", True),
        ("gitlab.com", "registry.gitlab.com", True),
        ("auth.docker.io", HUB, True),
        ("authn.nvidia.com", "nvcr.io", True),
        ("auth.docker.io", "evil.io", False),
        ("auth.docker.io", "evil.docker.io", False),
        ("authn.nvidia.com", "evil.io", False),
        ("ghcr.io", "evil.io", False),
        ("victim.azurecr.io", "evil.azurecr.io", False),
        ("r.io", "evilr.io", False),
        ("io", "r.io", False),
        ("10.0.0.1", "110.0.0.1", False),
        ("0.0.1", "10.0.0.1", False),
        ("localhost", "127.0.0.1", False),
    ],
)
def test_realms_whose_accounts_serve_a_registry(realm: str, registry: str, belongs: bool) -> None:
    assert realm_belongs_to(realm, registry) == belongs


def test_credentials_do_not_show_their_secrets() -> None:
    found = Credentials("u", "hunter2", "refresh-me")
    assert "hunter2" not in repr(found) and "refresh-me" not in repr(found)
    assert set(found.secrets()) == {"hunter2", "refresh-me", "dTpodW50ZXIy"}


def write_login(folder: Path, document: Any, mode: int = 0o600) -> Path:
    path = folder / "home/.docker/config.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("document", "registry", "expected"),
    [
        ({"auths": {"r.io": {"auth": "dTpw"}}}, "r.io", ("u", "p", "")),
        ({"auths": {"https://r.io/v2/": {"auth": "dTpw"}}}, "r.io", ("u", "p", "")),
        ({"auths": {"https://index.docker.io/v1/": {"auth": "dTpw"}}}, HUB, ("u", "p", "")),
        ({"auths": {"r.io": {"username": "u", "password": "p"}}}, "r.io", ("u", "p", "")),
        ({"auths": {"r.io": {"auth": "dTpw", "identitytoken": "t"}}}, "r.io", ("u", "p", "t")),
        ({"auths": {"r.io": {"identitytoken": "t"}}}, "r.io", ("<token>", "", "t")),
        ({"auths": {"r.io:5000": {"auth": "dTpw"}}}, "r.io:5000", ("u", "p", "")),
        ({"auths": {"r.io": {"auth": "dTpw"}}}, "r.io:5000", ("u", "p", "")),
        ({"auths": {"r.io": {"auth": "dTpw"}, "r.io/a": {"auth": "djpx"}}}, "r.io", ("v", "q", "")),
        ({"auths": {"r.io/a/c": {"auth": "dTpw"}}}, "r.io", None),
        ({"auths": {"other": {"auth": "dTpw"}}}, "r.io", None),
        ({"auths": {"r.io": {}}}, "r.io", None),
        ({"auths": {"r.io": {"auth": "!"}}}, "r.io", None),
        ({"auths": {"r.io": None}}, "r.io", None),
        ({"auths": []}, "r.io", None),
        ([], "r.io", None),
        ("{", "r.io", None),
        ("[" * 100000, "r.io", None),
    ],
)
def test_logins_of_other_tools(
    tmp_path: Path, document: Any, registry: str, expected: tuple[str, str, str] | None
) -> None:
    write_login(tmp_path, document)
    found = find_credentials(make_settings(tmp_path), registry, "a/b")
    assert (found and (found.user, found.password, found.identity_token)) == expected
    assert found is None or not found.deliberate


def test_enroots_own_file_comes_first(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    write_login(tmp_path, {"auths": {"r.io": {"auth": "dTpw"}}})
    write_credentials(settings, "machine r.io login own password x")
    found = find_credentials(settings, "r.io", "a")
    assert found and found.user == "own" and found.deliberate


def test_a_fifo_among_the_logins_is_passed_over(tmp_path: Path) -> None:
    path = write_login(tmp_path, "")
    path.unlink()
    os.mkfifo(path)
    assert find_credentials(make_settings(tmp_path), "r.io", "a") is None


def make_helper(folder: Path, script: str) -> str:
    programs = folder / "bin"
    programs.mkdir()
    program = programs / "docker-credential-test"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return f"{programs}:/usr/bin:/bin"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ('read h; printf \'{"Username":"u","Secret":"%s"}\' "$h"', ("u", "https://r.io/v2/", "")),
        ('echo \'{"Username":"<token>","Secret":"t"}\'', ("<token>", "", "t")),
        ("echo '{}'", None),
        ("echo junk", None),
        ("exit 1", None),
    ],
)
@pytest.mark.parametrize("kind", ["credsStore", "credHelpers"])
def test_credential_helpers(
    tmp_path: Path, script: str, expected: tuple[str, str, str] | None, kind: str
) -> None:
    path = make_helper(tmp_path, script)
    choice: Any = "test" if kind == "credsStore" else {"r.io": "test"}
    write_login(tmp_path, {"auths": {"https://r.io/v2/": {}}, kind: choice})
    found = find_credentials(make_settings(tmp_path, PATH=path), "r.io", "a")
    assert (found and (found.user, found.password, found.identity_token)) == expected


@pytest.mark.parametrize("name", ["../../bin/x", "a/b", "-x", "", 1])
def test_helpers_with_odd_names_are_not_run(tmp_path: Path, name: Any) -> None:
    write_login(tmp_path, {"credHelpers": {"r.io": name}})
    assert find_credentials(make_settings(tmp_path), "r.io", "a") is None


def test_a_login_file_that_others_can_write_names_no_program(tmp_path: Path) -> None:
    path = make_helper(tmp_path, f"touch {tmp_path}/ran; echo '{{}}'")
    write_login(tmp_path, {"credHelpers": {"r.io": "test"}}, mode=0o666)
    assert find_credentials(make_settings(tmp_path, PATH=path), "r.io", "a") is None
    assert not (tmp_path / "ran").exists()


def test_secrets_are_in_no_childs_arguments_or_environment(tmp_path: Path) -> None:
    """What a looked-up password's command can see is what the user's environment has anyway."""
    settings = make_settings(tmp_path)
    (tmp_path / "secret").write_text("hunter2")
    dump = f"cat /proc/self/cmdline /proc/self/environ >{tmp_path}/seen; cat {tmp_path}/secret"
    write_credentials(
        settings,
        "machine other login u password swordfish",
        f"machine r.io login u password $({dump})",
    )
    found = find_credentials(settings, "r.io", "a")
    assert found and found.password == "hunter2"
    seen = (tmp_path / "seen").read_text()
    assert "hunter2" not in seen and "swordfish" not in seen


def test_only_the_entry_that_is_needed_is_looked_up(settings: Settings, tmp_path: Path) -> None:
    write_credentials(
        settings,
        f"machine other login u password $(touch {tmp_path}/ran; echo x)",
        "machine r.io login u password p",
    )
    assert find_credentials(settings, "r.io", "a")
    assert not (tmp_path / "ran").exists()


def test_a_world_readable_file_is_used_and_warned_of(settings: Settings) -> None:
    messages: list[str] = []
    log.set_sink(lambda level, text: messages.append(text))
    write_credentials(settings, "machine r.io login u password p", mode=0o644)
    assert find_credentials(settings, "r.io", "a")
    assert len(messages) == 1 and "chmod 600" in messages[0]


def test_a_refused_expression_is_an_error_and_not_an_anonymous_pull(settings: Settings) -> None:
    write_credentials(settings, "machine r.io login u password $(echo p)", mode=0o666)
    with pytest.raises(AuthenticationError, match="others could change it"):
        find_credentials(settings, "r.io", "a")
