"""What became of every option: rendered, approximated, ignored or refused, and the way out.

A refusal has a code, so that scripts and `--allow` can name it. All refusals of a script are found
before any is reported. No Kubernetes in here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from enroot_py import UnsupportedError
from pyxis_py.command_lines.slurm_options import GivenOption

Kind = Literal["rendered", "approximated", "ignored", "warning", "refused"]

REFUSALS: dict[str, str] = {
    # code: the way out, where the place that refuses has no better one
    "invalid-value": "see sbatch(1) for what the option takes",
    "unknown-option": "see sbatch(1); options newer than this package are not guessed at",
    "option-unsupported": "leave the option away",
    "image-squashfs": "push the image to a registry and name it as REGISTRY#IMAGE:TAG",
    "image-daemon": "push the image to a registry that every node reaches",
    "image-scheme": "name an image of a registry: [docker://][USER@][REGISTRY#]IMAGE[:TAG]",
    "image-none": "give --container-image on #SBATCH, on srun, or on this command line",
    "image-mixed": "split the job, or use one image for all its steps",
    "container-name": "give --container-image: a pod has no containers of earlier jobs",
    "container-save": "build the image beforehand and push it to a registry",
    "mount-unmapped": "add the path to `mounts` of the site profile",
    "mount-shared-propagation": "use rprivate or rslave",
    "mount-umount": "leave the entry away: nothing of the node is mounted in a pod",
    "mem-zero": "add `partitions.<name>.node.memory` to the site profile, or name an amount",
    "exclusive-shape": "add `partitions.<name>.node` to the site profile",
    "topology-unknown": "add `partitions.<name>.topology` to the site profile",
    "topology-indivisible": "let the segment divide the number of nodes",
    "switches-several": "ask for one switch, or for none",
    "time-over-partition": "ask for less time, or for another partition",
    "partition-unknown": "name a partition of the site profile, or add it there",
    "partition-list": "name one partition; several flavors of one Kueue queue do what a list does",
    "qos-unknown": "name a QOS of the site profile, or add it there",
    "account-unknown": "name an account of the site profile, or add it there",
    "feature-unknown": "add the feature to `features` of the site profile",
    "gres-unknown": "add the resource to `gres` of the site profile",
    "reservation-unknown": "add the reservation to `reservations` of the site profile",
    "gpu-mixed": "ask for GPUs of one type",
    "gpus-indivisible": "let the number of nodes (or of tasks) divide the number of GPUs",
    "gpus-per-socket": "use --gpus-per-node",
    "nodelist-superset": "name as many hosts as there are nodes, or none",
    "constraint-matching-or": "one partition (one Kueue flavor) for each alternative",
    "constraint-count": "one job for each kind of node",
    "constraint-nested": "write the alternatives out: a&b|a&c",
    "dependency-unsupported": "submit the job when the other one has ended",
    "array-throttle": "leave the % limit to the queue's quota",
    "hold-unsupported": "use pyxis kube submit, which can hold it, or submit the job later",
    "begin": "submit with --hold and release it at that time",
    "licenses": "leave the licences to a quota of the queue, or use --target slurm-bridge",
    "bb": "stage the data before and after the job",
    "cluster": "choose the cluster with kubectl's context",
    "hetjob": "submit one job for each component",
    "export-all": "name the variables: --export=A,B; or add --capture-env",
    "export-file": "name the variables: --export=A,B",
    "env-secret": "export the variable where you submit and name it: --export=NAME",
    "nested-sbatch": "submit the jobs from where you submit this one",
    "pty": "use kubectl exec -it",
    "x11": "use kubectl port-forward",
    "salloc": "use kubectl exec -it in a job that sleeps",
    "sattach": "use kubectl logs -f",
    "srun-bcast": "put the file on a mounted filesystem",
    "sacct": "use kubectl get",
    "mpi-server": "start MPI programs with mpirun; other programs need no --mpi",
    "srun-option": "leave the option away",
    "sbcast": "put the file on a mounted filesystem",
    "dra-tas": "use --gpu-api device-plugin, or a queue without topology (kueue#10548, v0.19.2)",
    "dra-config-kueue": "leave the constraint away (Kueue v0.19.2 supports none in a claim)",
    "dra-compute-domain": "use --target kueue or volcano, or a partition without computeDomain",
    "dra-fabric": "use --gpu-api dra for a fabric of kind dra",
    "python-image": "add `cluster.pythonImage` to the site profile",
    "name-too-long": "give a shorter --job-name",
    "configmap-too-large": "move data out of the script; 1 MiB is the limit with the launcher",
    "label-invalid": "letters, digits, `-`, `_` and `.`, and no more than 63 of them",
    "security-root": "submit as an ordinary user, or set `security.allowRoot` in the profile",
    "security-host": "allow it in `security` of the site profile",
}

ALLOWABLE = frozenset({
    "licenses", "begin", "bb", "array-throttle", "nested-sbatch", "pty", "x11", "salloc", "sattach",
    "srun-bcast", "sacct", "sbcast", "mpi-server", "nodelist-superset", "time-over-partition",
    "container-save", "srun-option",
})  # fmt: skip
"""Refusals after which a job without the thing refused still makes sense: `--allow CODE`."""


@dataclass(frozen=True, slots=True)
class Note:
    """What became of one option.

    Attributes:
        kind: what happened to it.
        code: the refusal's or warning's code; "" for what was rendered faithfully.
        option: as the user wrote it, with dashes; "" for what no option asked for.
        line: the script's line, 0 for the command line and for defaults.
        text: one line.
        way_out: what to do instead; "" where nothing has to be done.
    """

    kind: Kind
    code: str
    option: str
    line: int
    text: str
    way_out: str = ""

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        option = f"{self.option}: " if self.option else ""
        code = f" [{self.code}]" if self.code else ""
        return f"{place}{option}{self.text}{code}"


class RefusedError(UnsupportedError):
    """Something in the script has no equal on Kubernetes. `notes` has every refusal."""

    exit_code = 2

    def __init__(self, notes: Sequence[Note]) -> None:
        lines = [f"{note}\n  way out: {note.way_out}" for note in notes]
        super().__init__("Not rendered:\n" + "\n".join(lines))
        self.notes = tuple(notes)

    @property
    def codes(self) -> frozenset[str]:
        """The codes of all refusals."""
        return frozenset(note.code for note in self.notes)


class Ledger:
    """Collects notes; refusals stop the rendering only when `close` is called."""

    def __init__(self, given: Iterable[GivenOption] = (), *, allow: Iterable[str] = ()) -> None:
        self._notes: dict[Note, None] = {}
        self._lines = {option.name: option.line for option in given}
        self._allow = frozenset(allow) & ALLOWABLE

    def allows(self, code: str) -> bool:
        """Whether the user goes on in spite of a refusal."""
        return code in self._allow

    @property
    def notes(self) -> tuple[Note, ...]:
        """In the order in which they were made, each once."""
        return tuple(self._notes)

    def add(
        self, kind: Kind, code: str, option: str, text: str, *, way_out: str = "", line: int = 0
    ) -> None:
        """Note something; `line` is looked up among the options given where it is 0."""
        line = line or self._lines.get(option.lstrip("-"), 0)
        self._notes[Note(kind, code, option, line, text, way_out)] = None

    def render(self, option: str, text: str) -> None:
        """Note that an option is rendered faithfully."""
        self.add("rendered", "", option, text)

    def approximate(self, code: str, option: str, text: str, *, way_out: str = "") -> None:
        """Note that an option is rendered as something similar."""
        self.add("approximated", f"approx-{code}", option, text, way_out=way_out)

    def ignore(self, code: str, option: str, text: str) -> None:
        """Note that an option has no effect."""
        self.add("ignored", f"ignored-{code}", option, text)

    def warn(self, code: str, option: str, text: str, *, way_out: str = "", line: int = 0) -> None:
        """Note something worth knowing."""
        self.add("warning", code, option, text, way_out=way_out, line=line)

    def refuse(
        self, code: str, option: str, text: str, *, way_out: str = "", line: int = 0
    ) -> None:
        """Note a refusal; a warning instead where the user allowed it."""
        kind: Kind = "warning" if code in self._allow else "refused"
        self.add(kind, code, option, text, way_out=way_out or REFUSALS[code], line=line)

    def close(self) -> None:
        """End the collecting.

        Raises:
            RefusedError: if anything was refused.
        """
        refused = [note for note in self._notes if note.kind == "refused"]
        if refused:
            raise RefusedError(refused)
