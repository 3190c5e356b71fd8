"""One pod on this machine: its namespaces, volumes and containers, from start to end."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.kubernetes.emulator.container import Container
from tests.kubernetes.emulator.environment import Place, container_environment
from tests.kubernetes.emulator.network import Network
from tests.kubernetes.emulator.objects import EmulatorError, Manifest, Objects, Pod
from tests.kubernetes.emulator.policies import PodEnd
from tests.kubernetes.emulator.volumes import Storage, Volume, container_mounts, prepare_volumes

_DEFAULT_GRACE = 30
_TERMINATED = 143


@dataclass(frozen=True, slots=True)
class Node:
    """What the kubelets share.

    Attributes:
        images: squashfs files by the reference that manifests name.
        folder: everything of the pods is in here.
        names: the names of all pods, as /etc/hosts has them; kept up to date while pods run.
    """

    network: Network
    objects: Objects
    storage: Storage
    images: Mapping[str, Path]
    folder: Path
    names: Path


@dataclass(slots=True)
class RunningPod:
    """A pod that the kubelet has taken on.

    Attributes:
        pod: the pod.
        place: its address, and the node's name.
        folder: its files: volumes, hosts, logs.
        end: how it ended; None while it runs.
    """

    pod: Pod
    place: Place
    folder: Path
    node: Node
    end: PodEnd | None = None
    _keeper: int = 0
    _volumes: dict[str, Volume] = field(default_factory=dict)
    _waiting: list[Manifest] = field(default_factory=list)
    _init: Container | None = None
    _main: list[Container] = field(default_factory=list)
    _started: float = 0
    _kill_at: float | None = None
    _disrupted: bool = False
    _deleted: bool = False

    @classmethod
    def start(cls, pod: Pod, address: str, number: int, node: Node) -> RunningPod:
        """Set a pod up and start its first container.

        Raises:
            EmulatorError: if the kubelet could not.
        """
        place = Place(address, f"worker-{number}", f"192.0.2.{number % 250 + 1}")
        folder = node.folder / f"{pod.name}.{pod.attempt}"
        folder.mkdir(parents=True)
        self = cls(pod, place, folder, node)
        self._volumes = prepare_volumes(pod, place, node.objects, node.storage, folder / "volumes")
        memory = [(v.folder, v.memory) for v in self._volumes.values() if v.memory is not None]
        self._keeper = node.network.add(address, pod.hostname, memory)
        self._started = time.monotonic()
        self._waiting = list(pod.spec.get("initContainers", ()))
        try:
            self.poll()
        except EmulatorError:
            self.lose(disrupted=False)
            raise
        return self

    def poll(self) -> None:
        """See what has ended, start what comes next, kill what is late."""
        if self.end is not None:
            return
        now = time.monotonic()
        deadline = self.pod.spec.get("activeDeadlineSeconds")
        if deadline is not None and now > self._started + deadline:
            self.terminate()
        if self._kill_at is not None and now > self._kill_at:
            self._signal(signal.SIGKILL)
        if not self._main:
            self._poll_init()
        elif all(container.status() is not None for container in self._main):
            worst = next((c for c in self._main if c.status() != 0), self._main[0])
            self._finish(worst.name, worst.status())

    def _poll_init(self) -> None:
        if self._init is not None:
            status = self._init.status()
            if status is None:
                return
            if status != 0 or self._kill_at is not None:
                self._finish(self._init.name, status or _TERMINATED)
                return
        if self._waiting:
            self._init = self._run(self._waiting.pop(0))
        else:
            self._main = [self._run(container) for container in self.pod.spec["containers"]]

    def _run(self, manifest: Manifest) -> Container:
        image = self.node.images.get(manifest["image"])
        if image is None:
            raise EmulatorError(f"ImagePullBackOff: {manifest['image']}")
        container = Container(
            manifest, self.pod, image,
            container_environment(manifest, self.pod, self.place, self.node.objects),
            container_mounts(manifest, self._volumes),
            self.folder / manifest["name"], self.node.names,
        )  # fmt: skip
        container.start(self.join())
        return container

    def _finish(self, container: str, status: int | None) -> None:
        self.end = PodEnd(container, status, self._disrupted, self._deleted)
        self.node.network.remove(self.place.address)

    def terminate(
        self, *, disrupted: bool = False, deleted: bool = False, grace: float | None = None
    ) -> None:
        """SIGTERM to the first process of each container, SIGKILL when the grace is over.

        Args:
            disrupted: an eviction: the pod gets the condition DisruptionTarget.
            deleted: by somebody other than the job's controller.
            grace: seconds in place of the pod's.
        """
        if self.end is not None or self._kill_at is not None:
            return
        own = self.pod.spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE)
        self._disrupted, self._deleted = disrupted, deleted
        self._kill_at = time.monotonic() + (own if grace is None else grace)
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """The containers are killed on their node, as for want of memory."""
        self._signal(signal.SIGKILL)

    def lose(self, *, disrupted: bool = True) -> None:
        """The node is gone with the pod, between two packets."""
        if self.end is not None:
            return
        self.node.network.cut(self.place.address)
        self._signal(signal.SIGKILL)
        for container in self._containers():
            container.wait()
        self._disrupted = self._deleted = disrupted
        self._finish(self.pod.spec["containers"][0]["name"], None)

    def _containers(self) -> list[Container]:
        return [*self._main, *([self._init] if self._init else [])]

    def _signal(self, number: int) -> None:
        for container in self._containers():
            container.send_signal(number)

    def log(self, container: str = "main") -> str:
        """What a container has printed so far."""
        return (self.folder / container / "log").read_text(errors="replace")

    def join(self) -> list[str]:
        """The words that run a command of this machine in the pod's namespaces."""
        return join_words(self._keeper)


def join_words(keeper: int) -> list[str]:
    """The words that run a command of this machine in the namespaces of a process."""
    return ["nsenter", "--preserve-credentials", "--user", "--net", "--uts", "--ipc", "--mount",
            f"--target={keeper}", "--"]  # fmt: skip
