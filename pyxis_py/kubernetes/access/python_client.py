"""Requests through the `kubernetes` package, for machines without kubectl.

The package reads the kubeconfig, logs in and keeps tokens fresh; requests go through the
connection pool that it has set up. Its own calls changed with version 36, the pool did not.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Generator, Sequence
from typing import Any
from urllib.parse import urlencode

from enroot_py import EnrootError, NotFoundError
from pyxis_py.kubernetes.access.client import ByteStream, Query, Target
from pyxis_py.kubernetes.access.failures import ClusterError, Status, failure, unreachable
from pyxis_py.kubernetes.access.pod_account import pod_namespace
from pyxis_py.kubernetes.access.resources import Object

TIMEOUT = 60
"""Seconds for one answer, but for those that are followed."""


class PythonClient:
    """A transport over the `kubernetes` package's connections."""

    def __init__(self, *, kubeconfig: str = "", context: str = "") -> None:
        try:
            from kubernetes import config
        except ImportError as error:
            raise NotFoundError(
                "The Python package `kubernetes` is not installed",
                hint="pip install pyxis-enroot[kubernetes], or use --client kubectl",
            ) from error
        self._api, self._namespace = _connect(config, kubeconfig, context)

    @property
    def namespace(self) -> str:
        """The namespace of the current context, "" where it names none."""
        return self._namespace

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def send(self, method: str, target: Target, query: Query, body: Object | None = None) -> Object:
        """Send one request and return its answer."""
        response = self._open(method, target, query, body, "application/json")
        answer = json.loads(response.data or b"{}")
        if not isinstance(answer, dict):
            raise ClusterError(f"Not an object of the API: the answer to {method} {target.path}")
        return answer

    def patch(self, target: Target, body: Object) -> None:
        """Send a merge patch."""
        self._open("PATCH", target, {}, body, "application/merge-patch+json")

    def stream(self, target: Target, query: Query) -> ByteStream:
        """Return an answer's body."""
        return _Body(lambda: self._open("GET", target, query, None, "", followed=True))

    def execute(self, target: Target, command: Sequence[str]) -> tuple[int, str]:
        """Run a program over a WebSocket."""
        from kubernetes.client import CoreV1Api
        from kubernetes.client.exceptions import ApiException
        from kubernetes.stream import stream

        try:
            channel = stream(
                CoreV1Api(self._api).connect_get_namespaced_pod_exec, target.name,
                target.namespace, container="main", command=list(command), stdout=True,
                stderr=True, stdin=False, tty=False, _preload_content=False,
            )  # fmt: skip
            channel.run_forever(timeout=TIMEOUT)
            return int(channel.returncode or 0), channel.read_all()
        except ApiException as error:
            raise _handshake_error(error.reason or "", target) from error

    def _open(
        self, method: str, target: Target, query: Query, body: Object | None, content_type: str,
        *, followed: bool = False,
    ) -> Any:  # fmt: skip
        import urllib3

        settings = self._api.configuration
        headers = {"Accept": "application/json, */*", "User-Agent": "pyxis"}
        token = settings.auth_settings().get("BearerToken", {}).get("value")
        if token:
            headers["Authorization"] = token
        if body is not None:
            headers["Content-Type"] = content_type
        url = settings.host.rstrip("/") + target.path + (f"?{urlencode(query)}" if query else "")
        # A log that is followed may be silent for hours.
        timeout = urllib3.Timeout(connect=TIMEOUT, read=None if followed else TIMEOUT)
        try:
            response = self._api.rest_client.pool_manager.request(
                method, url, headers=headers, timeout=timeout, retries=False,
                body=None if body is None else json.dumps(body).encode("utf-8"),
                preload_content=not followed,
            )  # fmt: skip
        except urllib3.exceptions.HTTPError as error:
            raise unreachable(str(error)) from error
        if response.status >= 400:
            text = response.data.decode("utf-8", "replace")
            raise _error(response.status, text, target)
        return response


class _Body:
    """The body of an answer that may go on for hours; it is asked for with the first piece."""

    def __init__(self, open_response: Callable[[], Any]) -> None:
        self._open = open_response
        self._response: Any = None
        self._closed = False

    def __iter__(self) -> Generator[bytes, None, None]:
        """Yield pieces as they come."""
        import urllib3

        self._response = self._open()
        try:
            while not self._closed and (piece := self._response.read1(1 << 16)):
                yield piece
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            if not self._closed:
                raise unreachable(str(error)) from error
        finally:
            self._response.close()

    def close(self) -> None:
        """End the connection; a reader that waits for it sees the end."""
        self._closed = True
        # shutdown() came with urllib3 2.3; close() alone does not wake a reader.
        shutdown = getattr(self._response, "shutdown", None)
        if shutdown is not None:
            with contextlib.suppress(OSError, RuntimeError, ValueError):
                shutdown()


def _connect(config: Any, kubeconfig: str, context: str) -> tuple[Any, str]:
    """Read the kubeconfig, or what a pod is given, as kubectl would."""
    import yaml
    from kubernetes.client import ApiClient, Configuration

    choice = {"config_file": kubeconfig or None, "context": context or None}
    try:
        _, current = config.list_kube_config_contexts(config_file=kubeconfig or None)
        if context:
            rows, _ = config.list_kube_config_contexts(config_file=kubeconfig or None)
            current = next((row for row in rows if row["name"] == context), None)
        api = config.new_client_from_config(**choice)
        return api, str(((current or {}).get("context") or {}).get("namespace") or "")
    except config.ConfigException as error:
        if kubeconfig or context:
            raise unreachable(f"kubeconfig: {error}") from error
    except (yaml.YAMLError, OSError) as error:
        raise unreachable(f"kubeconfig: {error}") from error
    try:
        settings = Configuration()
        config.load_incluster_config(client_configuration=settings)
        return ApiClient(settings), pod_namespace()
    except config.ConfigException as error:
        raise unreachable("there is no kubeconfig, and this is no pod") from error


def _handshake_error(text: str, target: Target) -> EnrootError:
    """The package keeps the answer to a WebSocket's handshake in its own message alone."""
    status = re.search(r"Handshake status (\d{3})", text)
    answer = re.search(r'\{"kind".*\}', text, re.DOTALL)
    code = int(status[1]) if status else 0
    return _error(code, answer[0] if answer else text, target)


def _error(code: int, text: str, target: Target) -> EnrootError:
    try:
        answer = json.loads(text)
        status = Status(code, str(answer.get("reason", "")), str(answer.get("message", "")))
    except (ValueError, AttributeError):
        status = Status(code, "", text)
    return failure(status, target.verb, target.resource, target.name, target.namespace)
