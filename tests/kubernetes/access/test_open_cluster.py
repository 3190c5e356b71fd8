"""Which client is taken."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from enroot_py import NotFoundError, UsageError
from pyxis_py.kubernetes.access.kubectl import Kubectl
from pyxis_py.kubernetes.access.open_cluster import open_cluster
from pyxis_py.kubernetes.access.python_client import PythonClient

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "https://127.0.0.1:9"}}]
contexts:
- {name: a, context: {cluster: a, user: a, namespace: first}}
- {name: b, context: {cluster: a, user: a, namespace: second}}
users: [{name: a, user: {token: x}}]
current-context: a
"""


@pytest.fixture(autouse=True)
def _site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", str(tmp_path))


def install_kubectl(folder: Path) -> None:
    (folder / "kubectl").write_text("#!/bin/sh\n")
    (folder / "kubectl").chmod(0o755)


def test_kubectl_where_it_is_installed(tmp_path: Path) -> None:
    install_kubectl(tmp_path)
    assert isinstance(open_cluster()._transport, Kubectl)
    found = open_cluster("python", kubeconfig=str(tmp_path / "config"))
    assert isinstance(found._transport, PythonClient)


def test_the_package_where_there_is_no_kubectl(tmp_path: Path) -> None:
    found = open_cluster(kubeconfig=str(tmp_path / "config"))
    assert isinstance(found._transport, PythonClient)


def test_a_context_by_name(tmp_path: Path) -> None:
    config = str(tmp_path / "config")
    assert open_cluster("python", kubeconfig=config).namespace == "first"
    assert open_cluster("python", kubeconfig=config, context="b").namespace == "second"


def test_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(NotFoundError, match="`kubernetes` is not installed"):
        open_cluster("python")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NotFoundError, match="neither kubectl nor"):
        open_cluster()


def test_one_that_is_not_there() -> None:
    with pytest.raises(NotFoundError, match="kubectl is not on the PATH"):
        open_cluster("kubectl")
    with pytest.raises(UsageError, match="'curl' is none of kubectl, python"):
        open_cluster("curl")
