"""What a pod is told about its own access to the cluster: login nodes may be pods themselves.

Source: kubernetes.io, "Accessing the Kubernetes API from a Pod".
"""

from __future__ import annotations

NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


def pod_namespace(path: str = NAMESPACE_FILE) -> str:
    """Return the namespace of the pod that this runs in, "" where this is no pod."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""
