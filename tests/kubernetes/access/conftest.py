"""The stub API server and its clients, of tests/kubernetes/cluster."""

from tests.kubernetes.cluster.conftest import client, kubeconfig, python, server

__all__ = ["client", "kubeconfig", "python", "server"]
