"""A cluster in miniature: controllers, kubelets and names, for the manifests of one job.

Nothing happens by itself: `tick` lets the controllers look once, and everything that waits ticks.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from tests.kubernetes.emulator.controllers import (
    Workload,
    create_pod,
    create_pods,
    names_at_once,
    read_workload,
)
from tests.kubernetes.emulator.kubelet import Node, RunningPod, join_words
from tests.kubernetes.emulator.network import Network
from tests.kubernetes.emulator.objects import EmulatorError, Manifest, Objects, Pod
from tests.kubernetes.emulator.policies import (
    Verdict,
    judge_indexed,
    judge_jobset,
    judge_volcano,
)
from tests.kubernetes.emulator.volumes import Storage

_LOOK = 0.02


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job.

    Attributes:
        complete: whether it is complete; it has failed otherwise.
        reason: of the condition or phase: BackoffLimitExceeded, DeadlineExceeded, Terminated …
        restarts: how often the controllers have run it again.
    """

    complete: bool
    reason: str
    restarts: int


@dataclass(slots=True)
class _Run:
    """One run of the job, from the creation of its pods until they are gone."""

    pods: dict[int, RunningPod] = field(default_factory=dict)
    judged: set[str] = field(default_factory=set)
    started: float = 0
    verdict: Verdict | None = None


class Cluster:
    """Runs one job. A context manager, which leaves no process and no file behind."""

    def __init__(
        self,
        manifests: Sequence[Manifest],
        *,
        images: Mapping[str, Path],
        storage: Storage | None = None,
        names_lag: float = 0,
    ) -> None:
        """Apply manifests; nothing runs before the first `tick`.

        Args:
            images: squashfs files by the reference that manifests name.
            names_lag: seconds before the DNS server knows the pods of a run.

        Raises:
            EmulatorError: if the manifests cannot be carried out here.
        """
        self.objects = Objects(manifests)
        jobs = self.objects.of_kind("JobSet", "Job")
        if len(jobs) != 1:
            raise EmulatorError(f"{len(jobs)} jobs: one is emulated")
        self.workload: Workload = read_workload(jobs[0])
        self.folder = Path(tempfile.mkdtemp(prefix="pods-"))
        self.folder.chmod(0o755)
        names = self.folder / "hosts"
        names.write_text("127.0.0.1 localhost\n")
        try:
            self._network = Network()
        except BaseException:
            shutil.rmtree(self.folder)
            raise
        self._node = Node(
            self._network, self.objects, storage or Storage(), images, self.folder / "pods", names
        )
        self._lag = names_lag
        self._named_at: float | None = None
        self.restarts = self._counted = self._serial = 0
        self._suspended = False
        self._run: _Run | None = None
        self.history: list[RunningPod] = []
        self.outcome: Outcome | None = None

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for pod in self.history:
            pod.lose(disrupted=False)
        self._network.close()
        shutil.rmtree(self.folder, onerror=_open_and_retry)

    # What happens to a cluster.

    def pod(self, index: int) -> RunningPod:
        """The newest pod of an index."""
        return [pod for pod in self.history if pod.pod.index == index][-1]

    def lose_node(self, index: int) -> None:
        """A pod's node dies, and the control plane finds out at once."""
        self.pod(index).lose()

    def evict(self, *indexes: int, grace: float | None = None) -> None:
        """Evict pods through the API, as for a drained node or a pod of higher priority."""
        for pod in self._current():
            if not indexes or pod.pod.index in indexes:
                pod.terminate(disrupted=True, deleted=True, grace=grace)

    def suspend(self) -> None:
        """Kueue takes the admission back: the pods are deleted, and the job counts nothing."""
        self._suspended = True
        for pod in self._current():
            pod.terminate()

    def resume(self) -> None:
        """Kueue admits the job again, once the pods are gone."""
        self._suspended = False

    def stranger(self) -> list[str]:
        """The words that run a command of this machine in somebody else's pod, on this network."""
        address = self._network.new_address()
        keeper = self._network.add(address, "stranger", ())
        return join_words(keeper)

    def wait(self, condition: Callable[[], bool], timeout: float = 150) -> None:
        """Tick until something is so.

        Raises:
            TimeoutError: with the pods' logs; at once when the job is over.
        """
        deadline = time.monotonic() + timeout
        while not condition():
            if self.outcome is not None or time.monotonic() > deadline:
                raise TimeoutError(f"waited up to {timeout:g} s\n{self.outcome}\n{self.logs()}")
            self.tick()
            time.sleep(_LOOK)

    def finish(self, timeout: float = 150) -> Outcome:
        """Run the job to its end."""
        self.wait(lambda: self.outcome is not None, timeout)
        assert self.outcome is not None
        return self.outcome

    def logs(self) -> str:
        """What all pods have printed, for a failure's message."""
        parts = []
        for pod in self.history:
            for path in sorted(pod.folder.glob("*/log")):
                parts.append(
                    f"--- {pod.pod.name} {path.parent.name}: {pod.end}\n{path.read_text()}"
                )
        return "\n".join(parts)

    # Controllers.

    def tick(self) -> None:
        """Let kubelets and controllers look once."""
        if self.outcome is not None:
            return
        if self._run is None:
            if not self._suspended:
                self._begin()
            return
        for pod in self._current():
            pod.poll()
        if self._named_at is not None and time.monotonic() >= self._named_at:
            self._publish()
        if self._suspended:
            if all(pod.end is not None for pod in self._current()):
                self._run = None
            return
        self._check_deadline()
        for pod in self._current():
            if pod.end is not None and pod.pod.uid not in self._run.judged:
                self._run.judged.add(pod.pod.uid)
                self._judge(pod)
        self._refill()
        if all(pod.end is not None for pod in self._current()):
            self._close(self._run.verdict or self._judge_all())

    def _current(self) -> list[RunningPod]:
        return list(self._run.pods.values()) if self._run else []

    def _begin(self) -> None:
        self._run = _Run(started=time.monotonic())
        for pod in create_pods(self.workload, self.objects, self.restarts):
            self._start(pod)

    def _start(self, pod: Pod) -> None:
        assert self._run is not None
        self._serial += 1
        running = RunningPod.start(pod, self._network.new_address(), self._serial, self._node)
        self.history.append(running)
        self._run.pods[pod.index] = running
        if self._lag:
            self._named_at = time.monotonic() + self._lag
        else:
            self._publish()

    def _publish(self) -> None:
        """The names as pods see them: a bare one where the search path completes it."""
        self._named_at = None
        lines = ["127.0.0.1 localhost"]
        for running in self._current():
            pod = running.pod
            if not pod.subdomain or names_at_once(self.workload, self.objects, pod) is not True:
                continue
            zone = f"{pod.subdomain}.{pod.namespace}.svc"
            names = [f"{pod.hostname}.{zone}.cluster.local", f"{pod.hostname}.{zone}",
                     f"{pod.hostname}.{pod.subdomain}"]  # fmt: skip
            if f"{zone}.cluster.local" in pod.spec.get("dnsConfig", {}).get("searches", ()):
                names.append(pod.hostname)
            lines.append(" ".join([running.place.address, *names]))
        # In place: containers have this very file.
        with self._node.names.open("r+") as file:
            file.write("\n".join(lines) + "\n")
            file.truncate()

    def _check_deadline(self) -> None:
        assert self._run is not None
        limit = None if self.workload.volcano else self.workload.job.get("activeDeadlineSeconds")
        if limit is not None and time.monotonic() > self._run.started + limit:
            self._decide(Verdict("fail", "DeadlineExceeded"))

    def _judge(self, running: RunningPod) -> None:
        assert self._run is not None and running.end is not None
        if self._run.verdict is not None:
            return
        if self.workload.volcano:
            policies = self.workload.manifest["spec"].get("policies", ())
            ends = [pod.end for pod in self._current()]
            self._decide(judge_volcano(policies, running.end, ends))
            return
        verdict = judge_indexed(self.workload.job, running.end, running.pod.index)
        if verdict.action == "replace":
            self._start(create_pod(self.workload, self.objects, 0, running.pod.index))
            return
        self._decide(verdict)

    def _refill(self) -> None:
        """Start the next indexes of an array where others have ended."""
        assert self._run is not None
        if self.workload.volcano or self._run.verdict is not None:
            return
        job, begun = self.workload.job, len(self._run.pods)
        running = sum(pod.end is None for pod in self._current())
        if begun < job["completions"] and running < job["parallelism"]:
            self._start(create_pod(self.workload, self.objects, self.restarts, begun))

    def _judge_all(self) -> Verdict:
        """All pods have ended, and no rule said anything about one of them."""
        succeeded = sum(pod.end is not None and pod.end.succeeded for pod in self._current())
        spec = self.workload.manifest["spec"]
        least = spec["minAvailable"] if self.workload.volcano else len(self._current())
        done = succeeded >= least
        if not done and "backoffLimitPerIndex" in self.workload.job:
            return Verdict("fail", "FailedIndexes")
        return Verdict("complete" if done else "fail", "Completed" if done else "Failed")

    def _decide(self, verdict: Verdict) -> None:
        """Take a decision about the run; all its pods have to go."""
        assert self._run is not None
        if verdict.action == "nothing" or self._run.verdict is not None:
            return
        self._run.verdict = verdict
        for pod in self._current():
            pod.terminate()

    def _close(self, verdict: Verdict) -> None:
        """The pods of the run are gone: the job is over, or begins again."""
        if verdict.action == "fail" and self.workload.jobset:
            policy = self.workload.manifest["spec"].get("failurePolicy")
            verdict = judge_jobset(policy, verdict.reason, self._counted)
            self._counted += verdict.reason == "counted"
        most = self.workload.manifest["spec"].get("maxRetry", 3) if self.workload.volcano else 0
        if verdict.action == "restart" and self.workload.volcano and self.restarts >= most:
            verdict = Verdict("fail", "Failed")
        if verdict.action == "restart":
            self.restarts += 1
            self._run = None
        else:
            self.outcome = Outcome(verdict.action == "complete", verdict.reason, self.restarts)


def _open_and_retry(function: Callable[[str], object], path: str, error: object) -> None:
    """Overlay work folders come without permissions."""
    Path(path).parent.chmod(0o700)
    Path(path).chmod(0o700)
    function(path)
