"""Names and credentials through the `enroot` command itself, watched from outside."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.command import ENROOT
from tests.registry.fake_registry import BasicAuth, BearerAuth, FakeRegistry, TokenIssuer
from tests.registry.images import ImageStore, file


def environment(folder: Path, **more: str) -> dict[str, str]:
    """The whole environment of a command that sees only `folder`."""
    names = ("CACHE", "DATA", "RUNTIME", "TEMP", "CONFIG", "SYSCONF")
    paths = {f"ENROOT_{name}_PATH": str(folder / name.lower()) for name in names}
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        "ENROOT_ALLOW_HTTP": "y",
        **paths,
        **more,
    }


def run(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ENROOT), *words],
        env=environment(folder, **environ),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_digest_goes_to_standard_output_alone(tmp_path: Path, store: ImageStore) -> None:
    with FakeRegistry(store) as registry:
        done = run(tmp_path, "digest", "-a", "aarch64", f"docker://{registry.host}#t/idx:1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in store.blobs and done.stdout.count("\n") == 1
    assert "[INFO]" in done.stderr


def test_a_name_without_scheme_is_answered_with_the_command_to_use(tmp_path: Path) -> None:
    done = run(tmp_path, "digest", "nvcr.io/nvidia/cuda:12.4")
    assert done.returncode == 1
    assert "docker://nvcr.io/nvidia/cuda:12.4" in done.stderr
    assert not done.stdout


class Watch:
    """Looks at the arguments and environments of all processes that appear meanwhile."""

    def __init__(self, flag: Path) -> None:
        """Watch; `flag` is made when a command that sleeps has been seen."""
        self._flag = flag
        self.seen: set[bytes] = set()
        self._stop = threading.Event()
        self._own = {name for name in os.listdir("/proc") if name.isdigit()}

    def look(self) -> None:
        for name in os.listdir("/proc"):
            if name.isdigit() and name not in self._own:
                for kind in ("cmdline", "environ"):
                    try:
                        self.seen.add(Path("/proc", name, kind).read_bytes())
                    except OSError:
                        continue
        if any(b"sleep" in text for text in self.seen):
            self._flag.touch()

    def run(self) -> None:
        while not self._stop.wait(0.005):
            self.look()

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()


@pytest.mark.parametrize("kind", ["basic", "bearer"])
@pytest.mark.parametrize("right", [True, False])
def test_secrets_are_seen_nowhere(
    tmp_path: Path, store: ImageStore, kind: str, right: bool
) -> None:
    secret = 'a b"c$d\\e:#é hunter2'
    issuer = TokenIssuer({"dom\\user": secret})
    auth = BasicAuth("dom\\user", secret) if kind == "basic" else BearerAuth(issuer)
    (tmp_path / "secret").write_text(secret if right else "hunter2")
    (tmp_path / "config").mkdir()
    credentials = tmp_path / "config/.credentials"
    watch = Watch(tmp_path / "flag")
    command = f"until test -e {tmp_path}/flag; do sleep 0.1; done; cat {tmp_path}/secret"
    with FakeRegistry(store, auth=auth) as registry, watch.running():
        account = f"machine {registry.host} login dom\\user"
        credentials.write_text(f"{account} password $({command})\n")
        credentials.chmod(0o600)
        done = run(tmp_path, "digest", f"docker://{registry.host}#t/one:1")
        tokens = set(issuer.tokens)
    assert done.returncode == (0 if right else 1), done.stderr
    output = done.stdout + done.stderr
    assert "dom\\user" in output and str(credentials) in output
    if not right:
        assert "401" in output and registry.host in output and done.stdout == ""
    assert any(b"sleep" in text for text in watch.seen), "nothing was seen at all"
    encoded = "ZG9tXHVzZXI6"
    for text in (*watch.seen, output.encode()):
        for hidden in ("hunter2", encoded, *tokens):
            assert hidden.encode() not in text
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.name not in ("secret",):
            assert b"hunter2" not in path.read_bytes()


@pytest.mark.root
@pytest.mark.parametrize(
    ("name", "repository"),
    [
        ("ubuntu:1", "library/ubuntu"),
        ("docker.io/ubuntu:1", "library/ubuntu"),
        ("docker.io/library/ubuntu:1", "library/ubuntu"),
        ("index.docker.io/ubuntu:1", "library/ubuntu"),
        ("docker.io#ubuntu:1", "library/ubuntu"),
        ("ns/img:1", "ns/img"),
    ],
)
def test_docker_hubs_names_with_a_hosts_file(tmp_path: Path, name: str, repository: str) -> None:
    """The name service itself leads to a server on loopback; nothing inside is replaced."""
    store = ImageStore()
    store.image("library/ubuntu", "1", [[file("a")]])
    store.image("ns/img", "1", [[file("a")]])
    hosts = tmp_path / "hosts"
    address = "127.80.80.80"
    names = "registry-1.docker.io docker.io index.docker.io"
    hosts.write_text(f"127.0.0.1 localhost\n{address} {names}\n")
    script = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'
    with FakeRegistry(store, port=80, address=address) as registry:
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", script, "sh", str(hosts)]
            + [str(ENROOT), "digest", f"docker://{name}"],
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert registry.paths() == [f"/v2/{repository}/manifests/1"]
        assert registry.log[0].headers["host"] == "registry-1.docker.io"
