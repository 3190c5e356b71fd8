"""Challenges, and what is sent in answer to whom."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from enroot_py.errors import AuthenticationError, NotFoundError
from enroot_py.image.platform import parse_platform
from enroot_py.registry.auth import parse_challenges
from tests.registry.fake_registry import CA_FILE, BasicAuth, BearerAuth, FakeRegistry, TokenIssuer
from tests.registry.faults import answer, change, redirect
from tests.registry.images import ImageStore
from tests.registry.pulling import Pull, make_settings, write_credentials

BEARER = 'Bearer realm="https://a/t",service="s",scope="repository:a/b:pull"'
BEARER_PARAMETERS = {"realm": "https://a/t", "service": "s", "scope": "repository:a/b:pull"}


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", []),
        ("Basic", [("basic", {})]),
        ('Basic realm="x"', [("basic", {"realm": "x"})]),
        ("basic realm=x", [("basic", {"realm": "x"})]),
        (BEARER, [("bearer", BEARER_PARAMETERS)]),
        (BEARER.replace(",", " , "), [("bearer", BEARER_PARAMETERS)]),
        (BEARER.replace("Bearer", "BEARER"), [("bearer", BEARER_PARAMETERS)]),
        ('Bearer Realm="r"', [("bearer", {"realm": "r"})]),
        ('Basic realm="a, b=c \\"d\\""', [("basic", {"realm": 'a, b=c "d"'})]),
        (f'Basic realm="x", {BEARER}', [("basic", {"realm": "x"}), ("bearer", BEARER_PARAMETERS)]),
        ('Negotiate, Basic realm="x"', [("negotiate", {}), ("basic", {"realm": "x"})]),
        ('Negotiate abc==, Basic realm="x"', [("negotiate", {}), ("basic", {"realm": "x"})]),
        ('Bearer realm="a",realm="b"', [("bearer", {"realm": "a"})]),
        ('Bearer realm="open', [("bearer", {"realm": ""}), ("open", {})]),
        ("=,=\x00", []),
    ],
)
def test_challenges(header: str, expected: list[tuple[str, dict[str, str]]]) -> None:
    assert [(one.scheme, one.parameters) for one in parse_challenges(header)] == expected


def credentials_cases(host: str) -> list[tuple[list[str], bool]]:
    bare = host.partition(":")[0]
    return [
        ([f"machine {bare} login u password p"], True),
        ([f"machine {host} login u password p"], True),
        ([f"machine {bare} login u password wrong", f"machine {host} login u password p"], True),
        ([f"machine {host} login u password p", f"machine {bare} login u password wrong"], True),
        ([f"machine {host} login u password $SECRET"], True),
        ([f"machine {host} login u password $(printf p)"], True),
        ([f"machine {host} login u password wrong"], False),
        ([f"machine {host} login v password p"], False),
        ([f"machine {bare}.test login u password p"], False),
        (["default login u password p"], False),
        ([], False),
    ]


@pytest.mark.parametrize("kind", ["basic", "bearer"])
@pytest.mark.parametrize("case", range(len(credentials_cases(""))))
def test_credentials_file(tmp_path: Path, store: ImageStore, kind: str, case: int) -> None:
    auth = BasicAuth("u", "p") if kind == "basic" else BearerAuth(TokenIssuer({"u": "p"}))
    with FakeRegistry(store, auth=auth) as registry:
        settings = make_settings(tmp_path, SECRET="p")
        lines, right = credentials_cases(registry.host)[case]
        path = write_credentials(settings, *lines)
        pull = Pull(settings)
        if right:
            image = pull.run(f"docker://{registry.host}/t/one:1")
            assert image.authenticated
            assert f"as u (credentials from {path}" in pull.text()
            return
        with pytest.raises(AuthenticationError) as caught:
            pull.run(f"docker://{registry.host}/t/one:1")
        message = str(caught.value) + caught.value.hint
        assert registry.host in message
        assert str(path) in message
        assert "401" in message
        if "wrong" in str(lines):
            assert "as u" in message
        assert "wrong" not in message and "success" not in pull.text()


AWKWARD = ("dom\\user", 'a b"c$d\\e:#é')


@pytest.mark.parametrize("kind", ["basic", "bearer"])
@pytest.mark.parametrize(
    ("user", "password"), [AWKWARD, ("u", "x" * 4096), ("u", "p:q"), ("ü", "\t")]
)
def test_awkward_accounts(
    tmp_path: Path, store: ImageStore, kind: str, user: str, password: str
) -> None:
    account = {user: password}
    auth = BasicAuth(user, password) if kind == "basic" else BearerAuth(TokenIssuer(account))
    quoted = password.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
    (tmp_path / "secret").write_text(password + "\n")
    with FakeRegistry(store, auth=auth) as registry:
        for field in (f'"{quoted}"', f"$(cat {tmp_path}/secret)", "$SECRET"):
            settings = make_settings(tmp_path, SECRET=password)
            write_credentials(settings, f"machine {registry.host} login {user} password {field}")
            Pull(settings).run(f"docker://{registry.host}/t/one:1")


def test_user_in_the_reference_chooses_among_accounts(tmp_path: Path, store: ImageStore) -> None:
    settings = make_settings(tmp_path)
    with FakeRegistry(store, auth=BasicAuth("v", "q")) as registry:
        write_credentials(
            settings,
            f"machine {registry.host} login u password p",
            f"machine {registry.host} login v password q",
        )
        Pull(settings).run(f"docker://v@{registry.host}/t/one:1")
        with pytest.raises(AuthenticationError, match="as u"):
            Pull(settings).run(f"docker://{registry.host}/t/one:1")


def test_a_person_is_asked_for_the_password_of_a_user_without_entry(
    tmp_path: Path, store: ImageStore
) -> None:
    pull = Pull(make_settings(tmp_path), password="q")
    with FakeRegistry(store, auth=BasicAuth("v", "q")) as registry:
        pull.run(f"docker://v@{registry.host}/t/one:1")
        assert pull.asked == [(registry.host, "v")]
        pull.password = ""
        with pytest.raises(AuthenticationError, match="No password for v"):
            pull.run(f"docker://v@{registry.host}/t/one:1")


def test_a_password_in_the_reference_is_used(tmp_path: Path, store: ImageStore) -> None:
    with FakeRegistry(store, auth=BasicAuth("v", "q")) as registry:
        pull = Pull(make_settings(tmp_path))
        image = pull.run(f"docker://v:q@{registry.host}/t/one:1")
        assert "v" not in image.reference.canonical().split("#")[0]
        with pytest.raises(AuthenticationError) as caught:
            pull.run(f"docker://v:hunter2@{registry.host}/t/one:1")
        assert "hunter2" not in str(caught.value) + caught.value.hint + pull.text()


def test_nobody_is_asked_where_no_account_is_needed(tmp_path: Path, store: ImageStore) -> None:
    pull = Pull(make_settings(tmp_path))
    with FakeRegistry(store) as registry:
        pull.run(f"docker://v@{registry.host}/t/one:1")
        assert not pull.asked
        assert not any(entry.authorization for entry in registry.log)


def test_one_token_serves_all_requests(tmp_path: Path, store: ImageStore) -> None:
    issuer = TokenIssuer(public={"t/one"})
    with FakeRegistry(store, auth=BearerAuth(issuer)) as registry:
        Pull(make_settings(tmp_path)).run(f"docker://{registry.host}/t/one:1")
        assert len(registry.paths("/token")) == 1
        assert [entry.status for entry in registry.log].count(401) == 1


def test_tokens_are_renewed_when_they_run_out(tmp_path: Path, store: ImageStore) -> None:
    issuer = TokenIssuer(public=None, lifetime=300)
    with FakeRegistry(store, auth=BearerAuth(issuer)) as registry:
        pull = Pull(make_settings(tmp_path))
        with pull.open(f"docker://{registry.host}/t/one:1") as client:
            image = client.get_manifest(parse_platform("amd64"))
            issuer.tokens.clear()
            for layer in image.manifest.layers:
                assert client.read_blob(layer)
        assert len(registry.paths("/token")) == 2


def test_public_and_private_repositories_of_one_registry_take_turns(
    tmp_path: Path, store: ImageStore
) -> None:
    settings = make_settings(tmp_path)
    issuer = TokenIssuer({"u": "p"}, public={"t/idx"})
    with FakeRegistry(store, auth=BearerAuth(issuer)) as registry:
        Pull(settings).run(f"docker://{registry.host}/t/idx:1")
        with pytest.raises(AuthenticationError):
            Pull(settings).run(f"docker://{registry.host}/t/one:1")
        write_credentials(settings, f"machine {registry.host} login u password p")
        Pull(settings).run(f"docker://{registry.host}/t/one:1")
        Pull(settings).run(f"docker://{registry.host}/t/idx:1")


@pytest.mark.parametrize("entry", ["registry", "realm"])
def test_realm_on_another_port_takes_either_hosts_account(
    tmp_path: Path, store: ImageStore, entry: str
) -> None:
    settings = make_settings(tmp_path)
    issuer = TokenIssuer({"u": "p"})
    with FakeRegistry(issuer=issuer) as realm:
        auth = BearerAuth(issuer, realm=f"{realm.url}/token")
        with FakeRegistry(store, auth=auth) as registry:
            host = registry.host if entry == "registry" else realm.host
            write_credentials(settings, f"machine {host} login u password p")
            Pull(settings).run(f"docker://{registry.host}/t/one:1")
            assert {item.auth_kind for item in registry.log} == {"", "Bearer"}
            assert [item.auth_kind for item in realm.log] == ["Basic"]


def test_a_strangers_account_is_not_used_for_the_token_of_a_registry(
    tmp_path: Path, store: ImageStore
) -> None:
    """A registry that names another one's token server gets no token made with its account."""
    settings = make_settings(tmp_path)
    issuer = TokenIssuer({"u": "p"})
    with FakeRegistry(issuer=issuer, name="localhost") as realm:
        auth = BearerAuth(issuer, realm=f"{realm.url}/token")
        with FakeRegistry(store, auth=auth) as registry:
            write_credentials(settings, f"machine {realm.host} login u password p")
            pull = Pull(settings)
            with pytest.raises(AuthenticationError):
                pull.run(f"docker://{registry.host}/t/one:1")
            assert [item.auth_kind for item in realm.log] == [""]
            assert "is not used" in pull.text()


def test_a_token_server_on_plain_http_gets_nothing_from_those_who_want_https(
    tmp_path: Path, store: ImageStore
) -> None:
    settings = make_settings(tmp_path, ENROOT_ALLOW_HTTP="", SSL_CERT_FILE=str(CA_FILE))
    issuer = TokenIssuer({"u": "p"}, public={"t/one"})
    with FakeRegistry(issuer=issuer) as realm:
        auth = BearerAuth(issuer, realm=f"{realm.url}/token")
        with FakeRegistry(store, auth=auth, tls=True) as registry:
            write_credentials(settings, "machine 127.0.0.1 login u password p")
            with pytest.raises(AuthenticationError, match="token server on plain HTTP") as caught:
                Pull(settings).run(f"docker://{registry.host}/t/one:1")
            assert "ENROOT_ALLOW_HTTP" in caught.value.hint
        assert not realm.log


def test_a_mirror_on_plain_http_gets_no_account(tmp_path: Path, store: ImageStore) -> None:
    auth = BasicAuth("u", "p")
    with (
        FakeRegistry(store, auth=auth) as mirror,
        FakeRegistry(store, auth=auth, tls=True) as registry,
    ):
        settings = make_settings(
            tmp_path,
            ENROOT_ALLOW_HTTP="",
            SSL_CERT_FILE=str(CA_FILE),
            ENROOT_MIRRORS=f"{registry.host}=http://{mirror.host}",
        )
        write_credentials(settings, "machine 127.0.0.1 login u password p")
        Pull(settings).run(f"docker://{registry.host}/t/one:1")
        assert mirror.log and not any(entry.authorization for entry in mirror.log)


@pytest.mark.parametrize(
    "realm", ["", "ftp://h/t", "http://", "http://h:0/t", "http://h:99999/t", "//h/t", "http://[/t"]
)
def test_realms_that_are_no_web_address_are_refused(
    tmp_path: Path, store: ImageStore, realm: str
) -> None:
    challenge = f'Bearer realm="{realm}",service="s"'
    with FakeRegistry(store) as registry:
        registry.fault("/v2/", answer(401, b"{}", {"WWW-Authenticate": challenge}))
        with pytest.raises(AuthenticationError, match="token server"):
            Pull(make_settings(tmp_path)).run(f"docker://{registry.host}/t/one:1")


@pytest.mark.parametrize("kind", ['Digest realm="x"', "Negotiate", ""])
def test_unknown_kinds_of_login_are_named(tmp_path: Path, store: ImageStore, kind: str) -> None:
    headers = {"WWW-Authenticate": kind} if kind else {}
    with FakeRegistry(store) as registry:
        registry.fault("/v2/", answer(401, b"no", headers))
        with pytest.raises(AuthenticationError) as caught:
            Pull(make_settings(tmp_path)).run(f"docker://{registry.host}/t/one:1")
        expected = kind.split()[0].lower() if kind else "does not say how to log in"
        assert expected in str(caught.value)


@pytest.mark.parametrize("status", [401, 403])
def test_plain_text_refusals_are_shown_as_status_and_host(
    tmp_path: Path, store: ImageStore, status: int
) -> None:
    settings = make_settings(tmp_path)
    with FakeRegistry(store, auth=BasicAuth("u", "p", text_errors=True)) as registry:
        if status == 403:
            registry.fault(
                "/manifests/", answer(403, b"access refused", {"Content-Type": "text/plain"})
            )
        write_credentials(settings, f"machine {registry.host} login u password bad")
        with pytest.raises(AuthenticationError) as caught:
            Pull(settings).run(f"docker://{registry.host}/t/one:1")
    message = str(caught.value)
    assert str(status) in message and registry.host in message
    assert "access refused" in message and "JSON" not in message


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"<html>",
        b'{"token": 1}',
        b'{"token": ""}',
        b'{"token": "a\\nb"}',
        b'{"token": "\xc3\xa9"}',
        b"[" * 100000,
    ],
)
def test_token_servers_without_a_usable_token(
    tmp_path: Path, store: ImageStore, body: bytes
) -> None:
    with FakeRegistry(store, auth=BearerAuth(TokenIssuer(public=None))) as registry:
        registry.fault("/token", answer(200, body or b" "))
        with pytest.raises(AuthenticationError, match="without a token"):
            Pull(make_settings(tmp_path)).run(f"docker://{registry.host}/t/one:1")


def test_a_server_that_repeats_the_secret_does_not_get_it_shown(
    tmp_path: Path, store: ImageStore
) -> None:
    settings = make_settings(tmp_path)
    with FakeRegistry(store, auth=BasicAuth("u", "p")) as registry:
        write_credentials(settings, f"machine {registry.host} login u password hunter2")
        echo = b"you sent dTpodW50ZXIy, that is u:hunter2 \x1b[2J"
        headers = {"WWW-Authenticate": "Basic", "Content-Type": "text/plain"}
        registry.fault("/manifests/", answer(401, echo, headers))
        with pytest.raises(AuthenticationError) as caught:
            Pull(settings).run(f"docker://{registry.host}/t/one:1")
    message = str(caught.value) + caught.value.hint
    assert "you sent ***" in message
    assert "hunter2" not in message and "dTpodW50" not in message and "\x1b" not in message


def test_a_registry_that_refuses_every_token_is_not_asked_for_ever(
    tmp_path: Path, store: ImageStore
) -> None:
    auth = BearerAuth(TokenIssuer(public=None, lifetime=0))
    with FakeRegistry(store, auth=auth) as registry:
        with pytest.raises(AuthenticationError, match="refuses to give t/one"):
            Pull(make_settings(tmp_path)).run(f"docker://{registry.host}/t/one:1")
        assert len(registry.log) == 3


def test_a_login_that_is_refused_later_is_not_sent_again(tmp_path: Path, store: ImageStore) -> None:
    settings = make_settings(tmp_path)
    with FakeRegistry(store, auth=BasicAuth("u", "p")) as registry:
        registry.fault("/blobs/", answer(401, b"{}", {"WWW-Authenticate": "Basic"}))
        write_credentials(settings, f"machine {registry.host} login u password p")
        with pytest.raises(AuthenticationError, match="refuses to give t/one as u"):
            Pull(settings).run(f"docker://{registry.host}/t/one:1")
        assert len(registry.paths("/blobs/")) == 1


def test_token_server_that_redirects_to_a_stranger_keeps_the_password(
    tmp_path: Path, store: ImageStore
) -> None:
    settings = make_settings(tmp_path)
    issuer = TokenIssuer({"u": "p"})
    with FakeRegistry(issuer=TokenIssuer(public=None)) as stranger:
        with FakeRegistry(store, auth=BearerAuth(issuer)) as registry:
            registry.fault("/token", redirect(stranger.url + "/token"))
            write_credentials(settings, f"machine {registry.host} login u password p")
            with pytest.raises(AuthenticationError):
                Pull(settings).run(f"docker://{registry.host}/t/one:1")
        assert [item.auth_kind for item in stranger.log] == [""]


def test_logins_of_docker_and_podman_serve_too(tmp_path: Path, store: ImageStore) -> None:
    with FakeRegistry(store, auth=BasicAuth("u", "p")) as registry:
        account = {"auth": "dTpw"}
        places = {
            "home/.docker/config.json": {"auths": {registry.host: account}},
            "home/.config/containers/auth.json": {"auths": {f"{registry.host}/t": account}},
        }
        for place, document in places.items():
            settings = make_settings(tmp_path)
            path = tmp_path / place
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps(document))
            pull = Pull(settings)
            pull.run(f"docker://{registry.host}/t/one:1")
            assert str(path) in pull.text()
            path.unlink()


def test_a_stale_login_of_another_tool_does_not_stop_a_public_pull(
    tmp_path: Path, store: ImageStore
) -> None:
    issuer = TokenIssuer({"u": "p"}, public={"t/one"})
    with FakeRegistry(store, auth=BearerAuth(issuer)) as registry:
        settings = make_settings(tmp_path)
        path = tmp_path / "home/.docker/config.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"auths": {registry.host: {"auth": "dTpiYWQ="}}}))
        image = Pull(settings).run(f"docker://{registry.host}/t/one:1")
        assert not image.authenticated


def test_a_challenge_with_an_own_scope_is_followed(tmp_path: Path, store: ImageStore) -> None:
    auth = BearerAuth(TokenIssuer(public=None), scope="repository:t/one:pull repository:x:pull")
    with FakeRegistry(store, auth=auth) as registry:
        Pull(make_settings(tmp_path)).run(f"docker://{registry.host}/t/one:1")
        token = next(entry for entry in registry.log if entry.path == "/token")
        assert token.query["scope"] == ["repository:t/one:pull", "repository:x:pull"]


def test_a_challenge_without_scope_gets_the_repositorys(tmp_path: Path, store: ImageStore) -> None:
    with FakeRegistry(store, auth=BearerAuth(TokenIssuer(public=None), scope="")) as registry:
        Pull(make_settings(tmp_path)).run(f"docker://{registry.host}/t/one:1")
        token = next(entry for entry in registry.log if entry.path == "/token")
        assert token.query["scope"] == ["repository:t/one:pull"]


def test_cookies_are_not_kept(tmp_path: Path, store: ImageStore) -> None:
    with FakeRegistry(store) as registry:
        registry.fault("/v2/", change(Set_Cookie="a=b; Path=/"))
        Pull(make_settings(tmp_path)).run(f"docker://{registry.host}/t/one:1")
        assert not any("cookie" in entry.headers for entry in registry.log)


def test_netrc_of_the_home_folder_is_not_used(
    tmp_path: Path, store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with FakeRegistry(store, auth=BasicAuth("u", "p")) as registry:
        settings = make_settings(tmp_path, NETRC=str(tmp_path / "netrc"))
        (tmp_path / "netrc").write_text("machine 127.0.0.1 login u password p\n")
        with pytest.raises(AuthenticationError):
            Pull(settings).run(f"docker://{registry.host}/t/one:1")


def test_a_missing_image_of_a_private_registry(tmp_path: Path, store: ImageStore) -> None:
    settings = make_settings(tmp_path)
    with FakeRegistry(store, auth=BasicAuth("u", "p")) as registry:
        write_credentials(settings, f"machine {registry.host} login u password p")
        with pytest.raises(NotFoundError, match="No such tag: 2 of .*t/one; similar ones: 1"):
            Pull(settings).run(f"docker://{registry.host}/t/one:2")
