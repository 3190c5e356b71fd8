"""Which program talks to the cluster: `--client kubectl|python`, or whichever is there."""

from __future__ import annotations

import importlib.util
import shutil

from enroot_py import NotFoundError, UsageError
from pyxis_py.kubernetes.access.client import ClusterClient

CLIENTS = ("kubectl", "python")


def open_cluster(client: str = "", *, kubeconfig: str = "", context: str = "") -> ClusterClient:
    """Return a client for the user's cluster; nothing is sent yet.

    Args:
        client: one of CLIENTS; "" for kubectl where it is installed, else the Python package.

    Raises:
        UsageError: if there is no such client.
        NotFoundError: if it is not installed.
    """
    from pyxis_py.kubernetes.access.kubectl import Kubectl
    from pyxis_py.kubernetes.access.python_client import PythonClient

    program = shutil.which("kubectl")
    if client not in ("", *CLIENTS):
        raise UsageError(f"--client: {client!r} is none of {', '.join(CLIENTS)}")
    if not client:
        if program is None and importlib.util.find_spec("kubernetes") is None:
            raise NotFoundError(
                "There is neither kubectl nor the Python package `kubernetes`",
                hint="install kubectl, or pip install pyxis-enroot[kubernetes]",
            )
        client = "kubectl" if program else "python"
    if client == "python":
        return ClusterClient(PythonClient(kubeconfig=kubeconfig, context=context))
    if program is None:
        raise NotFoundError("kubectl is not on the PATH", hint="install it, or use --client python")
    return ClusterClient(Kubectl(program, kubeconfig=kubeconfig, context=context))
