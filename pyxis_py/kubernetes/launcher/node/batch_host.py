"""The batch host: runs the script once all nodes are there, and decides how the job ends."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from pyxis_py.kubernetes.launcher.job.command_line import CommandLineError
from pyxis_py.kubernetes.launcher.job.deadlines import (
    KILL_WAIT,
    Deadline,
    eviction_deadlines,
    time_limit_deadlines,
)
from pyxis_py.kubernetes.launcher.job.environment import (
    DEFAULT_PATH,
    body_environment,
    move_path,
)
from pyxis_py.kubernetes.launcher.job.job_file import Job
from pyxis_py.kubernetes.launcher.job.signals import signal_number
from pyxis_py.kubernetes.launcher.job.statuses import exit_code
from pyxis_py.kubernetes.launcher.node.agent import Agent
from pyxis_py.kubernetes.launcher.node.body import Body, is_login_script
from pyxis_py.kubernetes.launcher.node.controller import Controller
from pyxis_py.kubernetes.launcher.node.log import log
from pyxis_py.kubernetes.launcher.node.workplace import Workplace
from pyxis_py.kubernetes.launcher.wire.loop import Loop, Timer

JOIN_LIMIT = 3600.0
"""Seconds that pods have to come up: an image of 20 GB is pulled in that time."""
JOIN_REPORT = 60.0
"""Seconds between two lines of the log about nodes that are missing."""
DRAIN_LIMIT = 1.0
"""Seconds that the script's output stays open after its end, if something holds it open."""
FAREWELL_LIMIT = 5.0
"""Seconds for agents to leave."""
REQUEUE_STATUS = 85
TIME_LIMIT_STATUS = 124
TERMINATED_STATUS = 128 + signal.SIGTERM
"""The manifests know the first two (docs/adr/0061)."""


class BatchHost:
    """The life of the job, seen from its first pod.

    Args:
        on_over: called with the pod's exit status.
    """

    def __init__(
        self,
        loop: Loop,
        job: Job,
        parts: tuple[Controller, Agent, Body, Workplace],
        on_over: Callable[[int], None],
    ) -> None:
        self._controller, self._agent, self._body, self._workplace = parts
        self._loop = loop
        self._job = job
        self._on_over = on_over
        self._started = False
        self._timers: list[Timer] = []
        self._status: int | None = None
        self._ending = False
        self._over_since = 0.0
        self._script = ""
        self._secrets: Mapping[str, str] = {}
        self._body.on_exit = self._body_ended
        self._controller.on_joined = self._check_nodes
        self._controller.on_requeue = self._requeue
        self._controller.on_cancel = self._cancel

    def begin(self, script: str, secrets: Mapping[str, str]) -> None:
        """Wait for the nodes, then start the script."""
        self._script, self._secrets = script, secrets
        self._check_nodes()
        if not self._started:
            self._timers.append(self._loop.call_later(JOIN_LIMIT, self._give_up))
            self._timers.append(self._loop.call_later(JOIN_REPORT, self._report))

    def _report(self) -> None:
        if not self._started and not self._ending:
            log("waiting for " + ", ".join(self._controller.missing))
            self._timers.append(self._loop.call_later(JOIN_REPORT, self._report))

    def _give_up(self) -> None:
        if not self._started:
            missing = ", ".join(self._controller.missing)
            self._end(f"{missing}: not there after {JOIN_LIMIT:.0f} s", 1)

    def _check_nodes(self) -> None:
        if self._started or self._ending or self._controller.missing:
            return
        self._started = True
        self._cancel_timers()
        self._controller.start = time.time()
        limit = self._job.time_limit
        if limit is not None:
            self._controller.end = self._controller.start + limit
        try:
            self._body.start(self._script, self._environment())
        except OSError as error:
            self._end(f"cannot start the script: {error.strerror}: {error.filename}", 1)
            return
        lead = self._job.signal.seconds if self._job.signal else 0
        self._plan(time_limit_deadlines(limit, lead), "its time is over", TIME_LIMIT_STATUS)

    def _environment(self) -> dict[str, str]:
        pod = self._agent.pod
        environ = body_environment(self._job, pod, self._secrets, int(self._controller.start))
        environ.update(self._agent.local)
        environ["PATH"] = move_path(environ.get("PATH", DEFAULT_PATH), "", self._workplace.bin)
        if is_login_script(self._script):
            original = environ.get("BASH_ENV", "")
            environ["BASH_ENV"] = self._workplace.write_profile(original)
        return environ

    def _plan(self, deadlines: tuple[Deadline, ...], why: str, status: int) -> None:
        actions: dict[str, Callable[[], None]] = {
            "warn": self._warn,
            "end": lambda: self._end(why, status),
            "kill": self._kill,
        }
        for deadline in deadlines:
            self._timers.append(self._loop.call_later(deadline.seconds, actions[deadline.action]))

    def _cancel_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _warn(self) -> None:
        """Send the signal of --signal: to the steps, or to the script's shell alone."""
        asked = self._job.signal
        if asked is None:
            return
        try:
            number = signal_number(asked.name)
        except CommandLineError as error:
            log(str(error))
            return
        log(f"signal {asked.name}, as --signal asks")
        if asked.batch_only:
            self._body.signal(number, alone=True)
        else:
            self._controller.signal_steps(number)

    def evict(self) -> None:
        """Act upon the SIGTERM of the pod."""
        if self._ending:
            return
        self._cancel_timers()
        log("SIGTERM: the pod has to go")
        self._controller.leaving = True
        warned = self._job.signal is not None
        why = "its pod is evicted"
        self._status = TERMINATED_STATUS
        self._plan(eviction_deadlines(self._job.grace, warned=warned), why, TERMINATED_STATUS)

    def _requeue(self) -> None:
        self._end("it is queued again", REQUEUE_STATUS)

    def _cancel(self, content: Mapping[str, Any]) -> None:
        number = content["signal"]
        if number is None:
            self._end("it is cancelled", TERMINATED_STATUS)
        elif content["batch"]:
            self._body.signal(number, alone=True)
        else:
            if content["full"]:
                self._body.signal(number)
            self._controller.signal_steps(number)

    def _end(self, why: str, status: int) -> None:
        """Ask everything to end; what does not, is killed."""
        if self._ending:
            return
        self._ending = True
        self._status = status
        log(f"the job ends: {why}")
        self._controller.notify(f"job {self._job.job_id}: {why}")
        self._stop_all()
        self._over_since = time.monotonic()
        self._check_over()

    def _stop_all(self) -> None:
        self._controller.state = "COMPLETING"
        for number in (signal.SIGCONT, signal.SIGTERM):
            self._body.signal(number)
            self._controller.signal_steps(number)
        patience = min(KILL_WAIT, max(1.0, self._job.grace - FAREWELL_LIMIT))
        self._timers.append(self._loop.call_later(patience, self._kill))

    def _kill(self) -> None:
        self._body.signal(signal.SIGKILL)
        self._controller.signal_steps(signal.SIGKILL)

    def _body_ended(self, status: int) -> None:
        if self._status is None:
            code = exit_code(status)
            if code == REQUEUE_STATUS:
                log(f"the script's status {code} would queue the job again; the pod's is 1")
                code = 1
            if code and self._controller.disrupted and self._job.requeue:
                log("a node was lost: the job is queued again")
                code = REQUEUE_STATUS
            self._status = code
        self._ending = True
        if self._controller.busy:
            self._stop_all()
        self._over_since = time.monotonic()
        self._check_over()

    def _check_over(self) -> None:
        """Leave once no step runs any more."""
        if self._body.running:
            return  # it comes back here
        if self._controller.busy:
            self._over_since = time.monotonic()
        waited = time.monotonic() - self._over_since
        if self._controller.busy or (waited < DRAIN_LIMIT and not self._body.silent):
            self._loop.call_later(0.02, self._check_over)
            return
        self._cancel_timers()
        self._body.finish()
        assert self._status is not None
        self._controller.state = "COMPLETED"
        self._controller.end_job(self._status)
        self._farewell(time.monotonic() + FAREWELL_LIMIT)

    def _farewell(self, until: float) -> None:
        if self._controller.alone or time.monotonic() > until:
            assert self._status is not None
            self._on_over(self._status)
        else:
            self._loop.call_later(0.02, lambda: self._farewell(until))
