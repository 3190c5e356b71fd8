"""Requests through the user's own kubectl: its contexts, logins, plugins and proxies all count.

Requests are `--raw`: the API's own paths and answers, without discovery. Bodies go to standard
input; nothing but names stands on kubectl's command line, which every user of a machine can read.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Generator, Sequence
from urllib.parse import urlencode

from enroot_py import EnrootError
from pyxis_py.kubernetes.access.client import ByteStream, Query, Target
from pyxis_py.kubernetes.access.failures import ClusterError, Status, failure, unreachable
from pyxis_py.kubernetes.access.pod_account import pod_namespace
from pyxis_py.kubernetes.access.resources import Object

TIMEOUT = 60
"""Seconds for one request."""
_PIECE = 1 << 16
_FROM_SERVER = re.compile(r"Error from server(?: \((?P<reason>\w+)\))?: (?P<message>.*)", re.DOTALL)
_INVALID = re.compile(
    r"(?:The request is invalid|The \S+ .* is invalid): (?P<message>.*)", re.DOTALL
)
_ENDED = re.compile(r"command terminated with exit code (\d+)\n?\Z")
_LOGGED_OUT = re.compile(r"You must be logged in|\(Unauthorized\)|provide credentials")
_NO_ANSWER = re.compile(
    r"Unable to connect|connection to the server|context .* does not exist|no configuration"
    r"|stat .*: no such file|invalid configuration|error loading config|dial tcp|timed out|i/o time"
    r"|getting credentials|exec plugin"
)


class Kubectl:
    """A transport that runs kubectl once for each request."""

    def __init__(self, program: str, *, kubeconfig: str = "", context: str = "") -> None:
        self._command = [program]
        if kubeconfig:
            self._command.append(f"--kubeconfig={kubeconfig}")
        if context:
            self._command.append(f"--context={context}")
        self._namespace: str | None = None

    @property
    def namespace(self) -> str:
        """The namespace of the current context, "" where it names none."""
        if self._namespace is None:
            words = [
                "config",
                "view",
                "--minify",
                "-o",
                "jsonpath={.contexts[0].context.namespace}",
            ]
            done = self._run(words)
            text = _text(done.stderr)
            inside = pod_namespace() if "current-context must exist" in text else ""
            if done.returncode and not inside:
                raise unreachable(text)
            self._namespace = inside or done.stdout.decode("utf-8").strip()
        return self._namespace

    def close(self) -> None:
        """Nothing stays open between requests."""

    def send(self, method: str, target: Target, query: Query, body: Object | None = None) -> Object:
        """Send one request with `kubectl get|create|delete --raw`."""
        verb = {"GET": "get", "POST": "create", "DELETE": "delete"}[method]
        words = [verb, "--raw", _path(target, query), f"--request-timeout={TIMEOUT}s"]
        if body is not None:
            words += ["-f", "-"]
        answer = json.loads(self._checked(words, target, body) or b"{}")
        if not isinstance(answer, dict):
            raise ClusterError(f"Not an object of the API: the answer to {verb} {target.path}")
        return answer

    def patch(self, target: Target, body: Object) -> None:
        """Send a merge patch with `kubectl patch`, the only verb that has no --raw."""
        words = ["patch", target.resource.title, target.name, f"--namespace={target.namespace}",
                 "--type=merge", "--patch-file=/dev/stdin", "--output=name",
                 f"--request-timeout={TIMEOUT}s"]  # fmt: skip
        self._checked(words, target, body)

    def stream(self, target: Target, query: Query) -> ByteStream:
        """Return what kubectl copies to its standard output."""
        return _Copy([*self._command, "get", "--raw", _path(target, query)], target)

    def execute(self, target: Target, command: Sequence[str]) -> tuple[int, str]:
        """Run a program with `kubectl exec`."""
        words = ["exec", target.name, f"--namespace={target.namespace}", "--container=main"]
        done = self._run([*words, "--", *command])
        text = _text(done.stderr)
        ended = _ENDED.search(text)
        if done.returncode and not ended:
            raise _error(text, target)
        output = done.stdout.decode("utf-8", "replace") + _ENDED.sub("", text)
        return int(ended[1]) if ended else 0, output

    def _checked(self, words: Sequence[str], target: Target, body: Object | None) -> bytes:
        done = self._run(words, None if body is None else json.dumps(body).encode("utf-8"))
        if done.returncode:
            raise _error(_text(done.stderr), target)
        return done.stdout

    def _run(
        self, words: Sequence[str], body: bytes | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(
                [*self._command, *words], input=body or b"", capture_output=True, check=False,
                timeout=2 * TIMEOUT,
            )  # fmt: skip
        except OSError as error:
            raise ClusterError(f"Cannot run {self._command[0]}: {error.strerror}") from error
        except subprocess.TimeoutExpired as error:
            raise unreachable(f"kubectl gave none in {2 * TIMEOUT} s") from error


class _Copy:
    """A kubectl that copies an answer. It is started when the first piece is asked for."""

    def __init__(self, command: Sequence[str], target: Target) -> None:
        self._command, self._target = command, target
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def __iter__(self) -> Generator[bytes, None, None]:
        """Yield pieces until kubectl ends; raises what it complained of, unless it was closed."""
        with subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, bufsize=0,
        ) as process:  # fmt: skip
            self._process = process
            assert process.stdout is not None and process.stderr is not None
            try:
                if self._closed:
                    return
                while piece := process.stdout.read(_PIECE):
                    yield piece
                complaint = process.stderr.read()
                if process.wait() and not self._closed:
                    raise _error(_text(complaint), self._target)
            finally:
                # A reader that stops early, on Ctrl-C or a closed pipe, ends kubectl as well.
                process.kill()

    def close(self) -> None:
        """End kubectl."""
        self._closed = True
        if self._process is not None:
            self._process.kill()


def _path(target: Target, query: Query) -> str:
    return target.path + (f"?{urlencode(query)}" if query else "")


def _text(data: bytes) -> str:
    # Warnings of the server come first, one a line; the error is the rest.
    lines = data.decode("utf-8", "replace").splitlines()
    return "\n".join(line for line in lines if not line.startswith("Warning:"))


def _error(text: str, target: Target) -> EnrootError:
    """Read kubectl's complaint back into the server's answer."""
    if _LOGGED_OUT.search(text):
        status = Status(401, "Unauthorized", text)
    elif found := _FROM_SERVER.search(text):
        status = Status(0, found["reason"] or "", found["message"])
    elif found := _INVALID.search(text):
        status = Status(422, "Invalid", found["message"])
    elif "doesn't have a resource type" in text:
        status = Status(404, "", "no matches for kind")
    elif _NO_ANSWER.search(text):
        return unreachable(text.removeprefix("error: "))
    else:
        return ClusterError(f"kubectl cannot {target.verb} {target.path}: {text.strip()}")
    return failure(status, target.verb, target.resource, target.name, target.namespace)
