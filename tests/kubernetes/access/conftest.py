"""The stub API server and its clients, of tests/kubernetes/cluster."""

from tests.kubernetes.cluster.conftest import (
    client,
    kubeconfig,
    kubectl_home,
    python,
    running_server,
    server,
)

__all__ = ["client", "kubeconfig", "kubectl_home", "python", "running_server", "server"]
