"""What every pod runs: `python3 launcher.pyz node`. Pod 0 is the batch host, all have an agent."""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
from collections.abc import Mapping

from pyxis_py.kubernetes.launcher.job.environment import local_variables
from pyxis_py.kubernetes.launcher.job.job_file import Job, JobFileError, read_job, read_token
from pyxis_py.kubernetes.launcher.job.limits import raise_file_limit
from pyxis_py.kubernetes.launcher.job.places import Places, find_places
from pyxis_py.kubernetes.launcher.node.agent import Agent
from pyxis_py.kubernetes.launcher.node.batch_host import BatchHost
from pyxis_py.kubernetes.launcher.node.body import Body
from pyxis_py.kubernetes.launcher.node.bundle import BundleError, make_bundle
from pyxis_py.kubernetes.launcher.node.controller import Controller
from pyxis_py.kubernetes.launcher.node.link import Link
from pyxis_py.kubernetes.launcher.node.log import log
from pyxis_py.kubernetes.launcher.node.processes import Processes
from pyxis_py.kubernetes.launcher.node.workplace import NoFolderError, Workplace, make_workplace
from pyxis_py.kubernetes.launcher.wire import messages
from pyxis_py.kubernetes.launcher.wire.channel import Channel, Listener, listen
from pyxis_py.kubernetes.launcher.wire.loop import Loop

FAILED_STATUS = 1
"""Of a pod that could not do what it is for."""


def run_node(archive: str, environ: Mapping[str, str]) -> int:
    """Be a node of the job until it is over; return the pod's exit status.

    Args:
        archive: the launcher's file.
        environ: the pod's variables.
    """
    places = find_places(environ)
    try:
        job = read_job(places.job_file, environ)
        token = read_token(places.token)
        secrets = _read_secrets(places, job)
        workplace = make_workplace(archive, environ)
    except (JobFileError, NoFolderError) as error:
        log(str(error))
        return FAILED_STATUS
    raise_file_limit()
    loop = Loop()
    try:
        node = _Node(loop, job, (places, dict(environ), secrets, token), workplace)
        loop.run()
        return node.status
    except OSError as error:
        log(f"{job.host}: {error}")
        return FAILED_STATUS
    finally:
        workplace.remove()
        loop.close()


def _read_secrets(places: Places, job: Job) -> dict[str, str]:
    secrets = {}
    for name in job.secrets:
        path = os.path.join(places.token_folder, f"env.{name}")
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                secrets[name] = file.read()
        except OSError as error:
            raise JobFileError(f"cannot read {path}: {error.strerror}") from error
    return secrets


class _Node:
    """The parts of one pod, connected."""

    def __init__(
        self,
        loop: Loop,
        job: Job,
        facts: tuple[Places, dict[str, str], dict[str, str], bytes],
        workplace: Workplace,
    ) -> None:
        places, pod, secrets, token = facts
        self.status = 0
        self._loop = loop
        self._job = job
        processes = Processes(loop)
        batch = job.number == 0
        sock = _listen(places, job, batch=batch)
        self._listener = Listener(loop, sock, (token, job.subject(job.number)), self._welcome)
        local_address = places.listen_address or "127.0.0.1"
        controller_address = _join_address(local_address, self._listener.port)
        local = local_variables(job, pod, workplace.bin, controller_address)
        local.update(places.as_variables())
        self._agent = Agent(loop, processes, job, (pod, local, secrets))
        self._controller: Controller | None = None
        if batch:
            address = (local_address, self._listener.port)
            self._controller = Controller(loop, job, self._agent, address)
            self._controller.add_self(pod)
            parts = self._controller, self._agent, Body(loop, processes, job), workplace
            host = BatchHost(loop, job, parts, self._leave)
            loop.on_signal(signal.SIGTERM, host.evict)
            loop.on_signal(signal.SIGINT, host.evict)
            host.begin(places.script, secrets)
        else:
            link = Link(loop, job, (places, token, self._listener.port), self._agent, self._leave)
            loop.on_signal(signal.SIGTERM, link.evict)
            loop.on_signal(signal.SIGINT, link.evict)
            link.begin()

    def _welcome(self, channel: Channel) -> None:
        """A process that holds the token has connected; its first message tells what it is."""
        channel.on_frame = lambda kind, payload: self._first(channel, kind, payload)
        channel.on_close = lambda reason: None

    def _first(self, channel: Channel, kind: int, payload: bytes) -> None:
        try:
            content = messages.decode(payload)
            if kind == messages.LAUNCH:
                self._agent.serve(channel, content)
            elif self._controller is None:
                channel.close("not the batch host")
            elif kind == messages.JOIN:
                self._controller.join(channel, content)
            else:
                self._controller.serve(channel, kind, content)
        except (messages.MessageError, KeyError, TypeError, ValueError) as error:
            log(f"{channel.peer}: a message that makes no sense: {error!r}")
            channel.close("a message that makes no sense")

    def _leave(self, status: int) -> None:
        self.status = status
        self._listener.close()
        self._loop.stop()


def _listen(places: Places, job: Job, *, batch: bool) -> socket.socket:
    """Listen where the manifests say; only the batch host has to be found there.

    On the machine's own network another job may have the port.
    """
    try:
        return listen(places.listen_address, job.port)
    except OSError as error:
        if batch or error.errno != errno.EADDRINUSE:
            raise
        return listen(places.listen_address, 0)


def _join_address(address: str, port: int) -> str:
    return f"{address} {port}"


def main(argv: list[str]) -> int:
    """`launcher.pyz node`, and `launcher.pyz python FOLDER`."""
    if argv[1:] == ["node"]:
        return run_node(argv[0], os.environ)
    if len(argv) == 3 and argv[1] == "python":
        try:
            make_bundle(argv[2])
        except (BundleError, OSError) as error:
            log(f"cannot copy Python: {error}")
            return FAILED_STATUS
        return 0
    print("usage: launcher.pyz node | python FOLDER", file=sys.stderr)
    return 2
