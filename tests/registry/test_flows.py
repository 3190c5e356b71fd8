"""The logins of the large registries, answered as they answer, under their own names.

Names are resolved to servers on loopback; everything else is what a pull from the real one does.
Plain HTTP stands for HTTPS: certificates for these names are nobody's to make.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from enroot_py.errors import AuthenticationError
from enroot_py.settings import Settings
from tests.registry.fake_registry import (
    Auth,
    BasicAuth,
    BearerAuth,
    FakeRegistry,
    Handler,
    Response,
    TokenIssuer,
    refuse,
)
from tests.registry.faults import answer, redirect
from tests.registry.images import DOCKER, ImageStore, file
from tests.registry.pulling import Pull, make_settings, write_credentials

Serve = Callable[..., FakeRegistry]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """`serve("quay.io", store, auth=…)`: a server that is found under that name."""
    ports: dict[str, int] = {}
    resolve = socket.getaddrinfo

    def look_up(host: str, port: int, *arguments: Any, **options: Any) -> Any:
        if host in ports:
            return resolve("127.0.0.1", ports[host], *arguments, **options)
        raise socket.gaierror(socket.EAI_NONAME, f"not in this test: {host}")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with ExitStack() as servers:

        def start(name: str, images: ImageStore | None = None, **options: Any) -> FakeRegistry:
            server = servers.enter_context(FakeRegistry(images, **options))
            ports[name] = server.port
            server.host = name
            return server

        yield start


def one_image(repository: str, tag: str = "1") -> ImageStore:
    store = ImageStore()
    store.image(repository, tag, [[file("a", "content")]], style=DOCKER)
    return store


class Storage(ImageStore):
    """What a signed address leads to."""


def signed_storage(serve: Serve, name: str, registry: FakeRegistry) -> FakeRegistry:
    """A storage that refuses requests with a second kind of authorization, as S3 and Azure do."""

    def check(handler: Handler, response: Response) -> Response:
        if "Authorization" in handler.headers:
            return Response(400, b"<Code>InvalidArgument</Code>Only one auth mechanism allowed")
        return response if handler.query.get("Signature") == ["s1"] else refuse(403, "")

    storage = serve(name, registry.images)
    storage.fault("/", check)

    def to_storage(handler: Handler, response: Response) -> Response:
        if response.status >= 400:
            return response
        return Response(307, b"", {"Location": f"http://{name}{handler.path}?Signature=s1"})

    registry.fault("/blobs/", to_storage)
    return storage


def realm_auth(
    issuer: TokenIssuer, realm: str, service: str, scope: str | None = None
) -> BearerAuth:
    return BearerAuth(issuer, realm=realm, service=service, scope=scope)


def token_server(serve: Serve, name: str, path: str, issuer: TokenIssuer) -> FakeRegistry:
    server = serve(name)
    server.fault(path, lambda handler, response: issuer.answer(handler))
    return server


@pytest.mark.parametrize(
    "entries", [("nvcr.io", "authn.nvidia.com"), ("nvcr.io",), ("authn.nvidia.com",)]
)
def test_nvcr(tmp_path: Path, serve: Serve, entries: tuple[str, ...]) -> None:
    settings = make_settings(tmp_path)
    issuer = TokenIssuer({"$oauthtoken": "nvapi-1"})
    realm = token_server(serve, "authn.nvidia.com", "/token", issuer)
    auth = realm_auth(issuer, "http://authn.nvidia.com/token", "registry")
    registry = serve("nvcr.io", one_image("nvidia/cuda", "12.4"), auth=auth)
    storage = signed_storage(serve, "layers.nvcr.io", registry)
    write_credentials(
        settings, *(f"machine {name} login $oauthtoken password nvapi-1" for name in entries)
    )
    for uri in (
        "docker://nvcr.io#nvidia/cuda:12.4",
        "docker://$oauthtoken@nvcr.io/nvidia/cuda:12.4",
    ):
        Pull(settings).run(uri)
    assert {entry.auth_kind for entry in realm.log} == {"Basic"}
    assert not any(entry.authorization for entry in storage.log)


def test_nvcr_with_the_scope_in_its_realm(tmp_path: Path, serve: Serve) -> None:
    settings = make_settings(tmp_path)
    issuer = TokenIssuer({"$oauthtoken": "nvapi-1"})
    realm = "http://nvcr.io/proxy_auth?scope=repository:nvidia/cuda:pull&group=a%20b"
    registry = serve("nvcr.io", one_image("nvidia/cuda"), auth=realm_auth(issuer, realm, "", ""))
    registry.fault("/proxy_auth", lambda handler, response: issuer.answer(handler))
    write_credentials(settings, "machine nvcr.io login $oauthtoken password nvapi-1")
    Pull(settings).run("docker://nvcr.io#nvidia/cuda:1")
    asked = next(entry for entry in registry.log if entry.path == "/proxy_auth")
    assert asked.query["scope"] == ["repository:nvidia/cuda:pull"]
    assert asked.query["group"] == ["a b"]


@pytest.fixture
def hub(serve: Serve) -> tuple[FakeRegistry, FakeRegistry]:
    """Docker Hub: (registry, token server)."""
    issuer = TokenIssuer({"me": "pw"}, public={"library/ubuntu", "ns/img"})
    realm = token_server(serve, "auth.docker.io", "/token", issuer)

    class Hub(BearerAuth):
        def refusal(self, handler: Handler, repository: str) -> Response | None:
            found = super().refusal(handler, repository)
            # Whoever may not know gets the same answer for what is private and what is not there.
            if found is None and not handler.registry.images.tags.get((repository, "1")):
                return refuse(
                    401, 'Bearer realm="http://auth.docker.io/token",error="insufficient_scope"'
                )
            return found

    store = one_image("library/ubuntu")
    store.image("ns/img", "1", [[file("a")]])
    store.image("me/private", "1", [[file("a")]])
    auth: Auth = Hub(issuer, realm="http://auth.docker.io/token", service="registry.docker.io")
    registry = serve("registry-1.docker.io", store, auth=auth)
    signed_storage(serve, "production.cloudflare.docker.com", registry)
    return registry, realm


@pytest.mark.parametrize(
    "uri",
    ["docker://ubuntu:1", "docker://docker.io/ubuntu:1", "docker://docker.io/library/ubuntu:1",
     "docker://index.docker.io/ubuntu:1", "docker://registry-1.docker.io#ubuntu:1"],
)  # fmt: skip
def test_docker_hub_anonymously(
    settings: Settings, hub: tuple[FakeRegistry, FakeRegistry], uri: str
) -> None:
    registry, realm = hub
    image = Pull(settings).run(uri)
    assert not image.authenticated
    assert all(path.startswith("/v2/library/ubuntu/") for path in registry.paths())
    assert realm.log[0].query["service"] == ["registry.docker.io"]
    assert not any(entry.authorization for entry in realm.log)


def test_docker_hub_namespaces(settings: Settings, hub: tuple[FakeRegistry, FakeRegistry]) -> None:
    Pull(settings).run("docker://ns/img:1")
    assert all(path.startswith("/v2/ns/img/") for path in hub[0].paths())


@pytest.mark.parametrize(
    "name", ["docker.io", "index.docker.io", "registry-1.docker.io", "auth.docker.io"]
)
def test_docker_hub_with_an_account(
    settings: Settings, hub: tuple[FakeRegistry, FakeRegistry], name: str
) -> None:
    write_credentials(settings, f"machine {name} login me password pw")
    assert Pull(settings).run("docker://me/private:1").authenticated
    assert {entry.auth_kind for entry in hub[1].log} == {"Basic"}
    assert {entry.auth_kind for entry in hub[0].log} == {"", "Bearer"}


def test_docker_hub_refusals(settings: Settings, hub: tuple[FakeRegistry, FakeRegistry]) -> None:
    wrong = answer(401, b'{"details":"incorrect username or password"}')
    hub[1].fault("/token", wrong, times=1, first=True)
    write_credentials(settings, "machine index.docker.io login me password wrong")
    pull = Pull(settings)
    with pytest.raises(AuthenticationError) as caught:
        pull.run("docker://me/private:1")
    assert "incorrect username or password" in str(caught.value)
    assert "as me" in str(caught.value) and settings.credentials_file in str(caught.value)
    assert "granted" not in pull.text().lower() and "success" not in pull.text().lower()
    write_credentials(settings)
    with pytest.raises(AuthenticationError, match="token for registry-1.docker.io/me/nothing"):
        Pull(settings).run("docker://me/nothing:1")


def test_docker_hub_hides_what_is_not_there(
    settings: Settings, hub: tuple[FakeRegistry, FakeRegistry]
) -> None:
    write_credentials(settings, "machine docker.io login me password pw")
    with pytest.raises(AuthenticationError) as caught:
        Pull(settings).run("docker://me/nothing:1")
    assert "me/nothing" in str(caught.value) and "exists" in caught.value.hint


@pytest.mark.parametrize("public", [True, False])
def test_ghcr(tmp_path: Path, serve: Serve, public: bool) -> None:
    settings = make_settings(tmp_path)
    repository = "org/team/tool"
    issuer = TokenIssuer({"me": "ghp_1"}, public={repository} if public else set())
    auth = realm_auth(issuer, "http://ghcr.io/token", "ghcr.io")
    registry = serve("ghcr.io", one_image(repository), auth=auth)
    signed_storage(serve, "pkg-containers.githubusercontent.com", registry)
    if not public:
        denied = b'{"errors":[{"code":"DENIED","message":"requested access is denied"}]}'
        registry.fault("/token", answer(403, denied), times=1)
        with pytest.raises(AuthenticationError, match="403 Forbidden.*requested access is denied"):
            Pull(settings).run(f"docker://ghcr.io/{repository}:1")
        write_credentials(settings, "machine ghcr.io login me password ghp_1")
    assert Pull(settings).run(f"docker://ghcr.io/{repository}:1").authenticated != public


def test_quay(tmp_path: Path, serve: Serve) -> None:
    settings = make_settings(tmp_path)
    issuer = TokenIssuer({"org+robot": "R0BOT"})
    auth = realm_auth(issuer, "http://quay.io/v2/auth", "quay.io")
    registry = serve("quay.io", one_image("org/img"), auth=auth)
    registry.fault("/v2/auth", lambda handler, response: issuer.answer(handler))
    signed_storage(serve, "cdn03.quay.io", registry)
    write_credentials(settings, "machine quay.io login org+robot password R0BOT")
    Pull(settings).run("docker://quay.io/org/img:1")
    Pull(settings).run("docker://org+robot@quay.io#org/img:1")
    token = next(entry for entry in registry.log if entry.path == "/v2/auth")
    assert token.query["account"] == ["org+robot"]


ECR = "12345.dkr.ecr.eu-west-2.amazonaws.com"


def test_ecr(tmp_path: Path, serve: Serve) -> None:
    """Basic all the way, refusals in plain text, a password that a command prints."""
    password = "e" * 2000
    settings = make_settings(tmp_path)
    (tmp_path / "password").write_text(password)
    challenge = f'Basic realm="https://{ECR}/",service="ecr.amazonaws.com"'
    auth = BasicAuth("AWS", password, text_errors=True, challenge=challenge)
    registry = serve(ECR, one_image("team/img"), auth=auth)
    signed_storage(serve, "prod-eu-west-2-starport-layer-bucket.s3.amazonaws.com", registry)
    write_credentials(settings, f"machine {ECR} login AWS password $(cat {tmp_path}/password)")
    Pull(settings).run(f"docker://{ECR}/team/img:1")
    expired = b"Your authorization token has expired. Reauthenticate and try again."
    registry.fault("/v2/", answer(403, expired, {"Content-Type": "text/plain; charset=utf-8"}))
    with pytest.raises(AuthenticationError, match="403 Forbidden.*authorization token has expired"):
        Pull(settings).run(f"docker://{ECR}/team/img:1")


JSON_KEY = '{\n  "type": "service_account",\n  "private_key": "-----BEGIN\\nx=\\n"\n}'


@pytest.mark.parametrize(
    ("user", "password"), [("oauth2accesstoken", "ya29." + "t" * 1000), ("_json_key", JSON_KEY)]
)
def test_google(tmp_path: Path, serve: Serve, user: str, password: str) -> None:
    settings = make_settings(tmp_path)
    (tmp_path / "password").write_text(password)
    host = "us-docker.pkg.dev"
    issuer = TokenIssuer({user: password})
    registry = serve(
        host,
        one_image("project/repo/img"),
        auth=realm_auth(issuer, f"http://{host}/v2/token", host),
    )
    registry.fault("/v2/token", lambda handler, response: issuer.answer(handler))
    denied = 'Permission "artifactregistry.repositories.downloadArtifacts" denied'
    body = json.dumps({"errors": [{"code": "DENIED", "message": denied}]}).encode()
    registry.fault("/manifests/", answer(403, body), times=1)
    with pytest.raises(AuthenticationError, match="downloadArtifacts"):
        Pull(settings).run(f"docker://{host}/project/repo/img:1")
    write_credentials(settings, f"machine {host} login {user} password $(cat {tmp_path}/password)")
    Pull(settings).run(f"docker://{host}/project/repo/img:1")


ACR = "myregistry.azurecr.io"
ZERO = "00000000-0000-0000-0000-000000000000"


def acr(serve: Serve, issuer: TokenIssuer) -> FakeRegistry:
    auth = realm_auth(issuer, f"http://{ACR}/oauth2/token", ACR)
    registry = serve(ACR, one_image("team/img"), auth=auth)
    registry.fault("/oauth2/token", lambda handler, response: issuer.answer(handler))
    signed_storage(serve, "eusmanaged4.blob.core.windows.net", registry)
    return registry


@pytest.mark.parametrize("methods", [("POST",), ("GET", "POST")])
def test_azure_refresh_token(tmp_path: Path, serve: Serve, methods: tuple[str, ...]) -> None:
    settings = make_settings(tmp_path)
    issuer = TokenIssuer(refresh_tokens={"refresh-1"}, key="access_token", methods=methods)
    registry = acr(serve, issuer)
    write_credentials(settings, f"machine {ACR} login {ZERO} password refresh-1")
    Pull(settings).run(f"docker://{ACR}/team/img:1")
    posted = next(entry for entry in registry.log if entry.method == "POST")
    assert posted.form["grant_type"] == ["refresh_token"]
    assert posted.form["service"] == [ACR]
    assert posted.form["scope"] == ["repository:team/img:pull"]
    assert "refresh-1" not in str([entry.query for entry in registry.log])


def test_azure_admin_user(tmp_path: Path, serve: Serve) -> None:
    settings = make_settings(tmp_path)
    acr(serve, TokenIssuer({"myregistry": "admin+pw/=="}, key="access_token"))
    write_credentials(settings, f"machine {ACR} login myregistry password admin+pw/==")
    Pull(settings).run(f"docker://{ACR}/team/img:1")


def test_azure_identity_token_of_its_own_command(tmp_path: Path, serve: Serve) -> None:
    """`az acr login` leaves an identity token among docker's logins."""
    settings = make_settings(tmp_path)
    registry = acr(serve, TokenIssuer(refresh_tokens={"refresh-1"}, key="access_token"))
    path = tmp_path / "home/.docker/config.json"
    path.parent.mkdir(parents=True)
    account = {"auth": "MDAwOg==", "identitytoken": "refresh-1"}
    path.write_text(json.dumps({"auths": {ACR: account}}))
    Pull(settings).run(f"docker://{ACR}/team/img:1")
    assert [entry.method for entry in registry.log if "oauth2" in entry.path] == ["POST"]


def test_a_token_server_that_knows_only_posts(tmp_path: Path, serve: Serve) -> None:
    settings = make_settings(tmp_path)
    issuer = TokenIssuer({"u": "p"}, methods=("POST",))
    registry = serve("r.example", one_image("a/b"), auth=BearerAuth(issuer))
    write_credentials(settings, "machine r.example login u password p")
    Pull(settings).run("docker://r.example/a/b:1")
    assert [entry.method for entry in registry.log if entry.path == "/token"] == ["GET", "POST"]


def test_a_login_by_post_is_not_sent_on_to_another_host(tmp_path: Path, serve: Serve) -> None:
    settings = make_settings(tmp_path)
    issuer = TokenIssuer({"u": "p"}, methods=("POST",))
    stranger = serve("stranger.example", issuer=issuer)
    registry = serve("r.example", one_image("a/b"), auth=BearerAuth(issuer))

    def send_posts_on(handler: Handler, response: Response) -> Response:
        act = redirect("http://stranger.example/token")
        return (act(handler, Response(200)) or response) if handler.command == "POST" else response

    registry.fault("/token", send_posts_on)
    write_credentials(settings, "machine r.example login u password p")
    with pytest.raises(Exception, match="to another host"):
        Pull(settings).run("docker://r.example/a/b:1")
    assert not stranger.log


def test_an_account_for_one_azure_registry_is_not_spent_on_another(
    tmp_path: Path, serve: Serve
) -> None:
    """evil.azurecr.io asks for a token of victim.azurecr.io for the victim's repository."""
    settings = make_settings(tmp_path)
    issuer = TokenIssuer({"me": "pw"})
    victim = serve("victim.azurecr.io", issuer=issuer)
    auth = realm_auth(issuer, "http://victim.azurecr.io/token", "victim.azurecr.io")
    serve("evil.azurecr.io", one_image("private/img"), auth=auth)
    write_credentials(settings, "machine victim.azurecr.io login me password pw")
    with pytest.raises(AuthenticationError):
        Pull(settings).run("docker://evil.azurecr.io/private/img:1")
    assert not any(entry.authorization for entry in victim.log)
