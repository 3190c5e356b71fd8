"""An agent's connection to the batch host: it joins, and stays until the job is over."""

from __future__ import annotations

import random
import signal
import socket
import time
from collections.abc import Callable

from pyxis_py.kubernetes.launcher.job.command_line import CommandLineError
from pyxis_py.kubernetes.launcher.job.deadlines import eviction_deadlines
from pyxis_py.kubernetes.launcher.job.environment import CONTROLLER_VARIABLE
from pyxis_py.kubernetes.launcher.job.job_file import Job
from pyxis_py.kubernetes.launcher.job.places import Places
from pyxis_py.kubernetes.launcher.job.signals import signal_number
from pyxis_py.kubernetes.launcher.node.agent import Agent
from pyxis_py.kubernetes.launcher.node.batch_host import (
    JOIN_LIMIT,
    REQUEUE_STATUS,
    TERMINATED_STATUS,
)
from pyxis_py.kubernetes.launcher.node.log import log
from pyxis_py.kubernetes.launcher.wire import messages
from pyxis_py.kubernetes.launcher.wire.channel import Channel, open_channel
from pyxis_py.kubernetes.launcher.wire.loop import Loop

REJOIN_LIMIT = 300.0
"""Seconds for the batch host's pod to be replaced by another one."""
FIRST_DELAY = 0.05
REJOIN_DELAY = 1.0
LONGEST_DELAY = 5.0
"""Seconds between attempts: names of new pods take a while to be known."""
REPORT_INTERVAL = 60.0
REPLACING_BACKENDS = ("kueue-job", "slurm-bridge")
"""Where a batch host's pod that is lost, evicted or queued again is replaced, and no other one."""
END_LIMIT = 5.0
"""Seconds for tasks to end after the job has."""


class Link:
    """The agent's side.

    Args:
        facts: where things are, the token, and the port on which the agent listens.
        on_over: called with the pod's exit status.
    """

    def __init__(
        self,
        loop: Loop,
        job: Job,
        facts: tuple[Places, bytes, int],
        agent: Agent,
        on_over: Callable[[int], None],
    ) -> None:
        self._places, self._token, self._port = facts
        self._loop = loop
        self._job = job
        self._agent = agent
        self._on_over = on_over
        self._channel: Channel | None = None
        self._joined = self._was_joined = False
        self._delay = FIRST_DELAY
        self._since = time.monotonic()
        self._reported = self._since
        self._evicted = self._warned = self._told = self._over = False

    def begin(self) -> None:
        """Look for the batch host, again and again."""
        try:
            address = self._resolve()
        except OSError as error:
            self._try_later(f"{self._job.hosts[0]}: {error.strerror or error}")
            return
        secret = self._token, self._job.subject(0)
        channel = open_channel(self._loop, address, secret)
        channel.on_ready = lambda: self._join(channel, address[1])
        channel.on_close = lambda reason: self._closed(reason)
        self._channel = channel

    def _resolve(self) -> tuple[str, int]:
        name, port = self._job.hosts[0], self._job.port
        if self._places.batch_address:
            name, _, number = self._places.batch_address.partition(" ")
            port = int(number or port)
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
        return str(found[0][4][0]), port

    def _join(self, channel: Channel, port: int) -> None:
        self._joined = self._was_joined = True
        self._delay = FIRST_DELAY
        channel.on_frame = self._frame
        pod = self._agent.pod
        channel.send(messages.JOIN, messages.encode({
            "index": self._job.number,
            "address": pod.get("POD_IP", ""),
            "port": self._port,
            "pod": pod.get("POD_NAME", ""),
            "machine": pod.get("K8S_NODE_NAME", ""),
        }))  # fmt: skip
        self._agent.local = {
            **self._agent.local, CONTROLLER_VARIABLE: f"{channel.peer} {port}",
        }  # fmt: skip
        log(f"node {self._job.host} of job {self._job.job_id} has joined")
        if self._evicted:
            self._tell_evicted()

    def _closed(self, reason: str) -> None:
        self._channel = None
        if self._over:
            return
        if self._joined:
            log(f"the batch host {self._job.hosts[0]} is lost: {reason or 'it has left'}")
            self._joined = False
            self._since = self._reported = time.monotonic()
        if self._evicted and self._agent.idle:
            self._leave(TERMINATED_STATUS)
            return
        self._try_later(f"{self._job.hosts[0]}: {reason}")

    def _try_later(self, why: str) -> None:
        now = time.monotonic()
        limit = REJOIN_LIMIT if self._was_joined else JOIN_LIMIT
        if now - self._since > limit:
            log(f"no connection to the batch host for {limit:.0f} s: {why}")
            # Its pod is lost, as far as can be seen from here: the cluster decides about the rest.
            self._leave(REQUEUE_STATUS)
            return
        if now - self._reported > REPORT_INTERVAL:
            self._reported = now
            log(f"no connection to the batch host yet: {why}")
        # Not all at the same moment: a job may have a thousand agents.
        self._loop.call_later(self._delay * random.uniform(0.5, 1.0), self.begin)
        self._delay = min(LONGEST_DELAY, self._delay * 2)

    def _frame(self, kind: int, payload: bytes) -> None:
        try:
            content = messages.decode(payload)
        except messages.MessageError as error:
            log(f"the batch host: {error}")
            return
        if kind == messages.SIGNAL_STEPS:
            self._signal(int(content["signal"]), content["step"])
        elif kind == messages.JOB_OVER and self._is_to_stay(content["status"]):
            log("the batch host has left: looking for the next one")
            # Not at once: this one still has its port, and waits for all to leave it.
            self._delay = REJOIN_DELAY
            if self._channel is not None:
                self._channel.close()
        elif kind == messages.JOB_OVER:
            self._over = True
            if self._agent.idle:
                self._leave(TERMINATED_STATUS if self._evicted else 0)
                return
            self._agent.on_idle = lambda: self._leave(TERMINATED_STATUS if self._evicted else 0)
            self._agent.end(END_LIMIT)
            self._loop.call_later(END_LIMIT + 1, lambda: self._leave(0))

    def _signal(self, number: int, step: int | None) -> None:
        """Signal tasks for the batch host, but not for the second time when all are evicted."""
        if number == self._warning():
            known = self._evicted and self._warned and not self._told
            self._warned = self._told = True
            if known:
                return
        self._agent.signal_steps(number, step)

    def _is_to_stay(self, status: int) -> bool:
        """Whether this pod has to be there for the batch host's next one.

        If there is none, because the job has failed, the cluster ends this pod.
        """
        replacing = self._agent.pod.get("PYXIS_BACKEND") in REPLACING_BACKENDS
        return replacing and status != 0 and not self._evicted

    def _warning(self) -> int:
        """The number of the signal that --signal names; 0 for none."""
        try:
            return signal_number(self._job.signal.name) if self._job.signal else 0
        except CommandLineError:
            return 0

    def evict(self) -> None:
        """Act upon the SIGTERM of the pod: its tasks have the pod's grace to end."""
        if self._evicted:
            return
        self._evicted = True
        log("SIGTERM: the pod has to go")
        self._agent.on_idle = self._tell_evicted
        self._tell_evicted(first=True)
        if self._was_joined and not self._joined and self._agent.idle:
            self._leave(TERMINATED_STATUS)
            return
        warning = self._warning()
        grace = self._job.grace
        actions = {
            "warn": lambda: self._warn(warning),
            "end": lambda: self._agent.signal_steps(signal.SIGTERM),
            "kill": lambda: self._agent.signal_steps(signal.SIGKILL),
        }
        for deadline in eviction_deadlines(grace, warned=bool(warning)):
            self._loop.call_later(deadline.seconds, actions[deadline.action])
        self._loop.call_later(max(0.0, grace - 1.0), lambda: self._leave(TERMINATED_STATUS))

    def _tell_evicted(self, *, first: bool = False) -> None:
        if self._channel is None or not self._joined:
            return
        if first:
            self._channel.send(messages.EVICTED, messages.encode({"idle": False}))
        if self._agent.idle:
            self._channel.send(messages.EVICTED, messages.encode({"idle": True}))

    def _warn(self, number: int) -> None:
        batch_only = self._job.signal is not None and self._job.signal.batch_only
        if number and not self._warned and not batch_only:
            self._warned = True
            self._agent.signal_steps(number)

    def _leave(self, status: int) -> None:
        self._over = True
        if self._channel is not None:
            self._channel.close()
        self._on_over(status)
