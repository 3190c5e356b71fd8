"""Everything that a renderer looks at, decided once: the job, its place, its names.

Pure. `plan_job` looks names up in the profile and notes what it had to assume.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pyxis_py.kubernetes.pod.layout import Layout, lay_out
from pyxis_py.kubernetes.profile.site import Partition, Profile, Qos
from pyxis_py.kubernetes.shapes.profile_shape import DNS_LABEL, LABEL_VALUE
from pyxis_py.kubernetes.spec.jobspec import JobSpec
from pyxis_py.kubernetes.spec.notes import Ledger

Target = Literal["kueue", "kueue-job", "volcano", "slurm-bridge"]
GpuApi = Literal["device-plugin", "dra", "dra-extended"]
Manifest = dict[str, Any]

TARGETS: tuple[Target, ...] = ("kueue", "kueue-job", "volcano", "slurm-bridge")
GPU_APIS: tuple[GpuApi, ...] = ("device-plugin", "dra", "dra-extended")
LONGEST_NAME = 63
"""Of a pod's host name and of a label's value."""


@dataclass(frozen=True, slots=True)
class Submitter:
    """Who submits, from where. Ids are numeric; `directory` and `home` are absolute.

    `umask` is that of the shell, which Slurm gives to the job as well.
    """

    user: str
    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    home: str = "/"
    host: str = "localhost"
    directory: str = "/"
    umask: int = 0o022


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """What the renderer is told beside the script.

    Attributes:
        job_id: a positive number below 2³¹.
        token: the secret by which launcher and agents know each other; goes into the Secret only.
        launcher: the launcher's zipapp; None where the site's ConfigMap has it.
        environ: the submitter's environment, for exported variables.
        capture_env: whether `--export=ALL` may copy all of it.
        bring_python: whether pods get the Python of the profile's image.
        env_secrets: variables from existing Secrets: (name, secret, key).
        submitting: whether this package also creates the objects, and looks after them.
    """

    target: Target
    gpu_api: GpuApi
    job_id: int
    token: str
    submitter: Submitter
    namespace: str = ""
    launcher: bytes | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    capture_env: bool = False
    bring_python: bool = False
    env_secrets: tuple[tuple[str, str, str], ...] = ()
    submitting: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """A job that has found its place."""

    job: JobSpec
    profile: Profile
    options: RenderOptions
    ledger: Ledger
    layout: Layout
    name: str
    namespace: str
    partition_name: str
    partition: Partition
    qos: Qos
    time_limit: int | None

    @property
    def kueue(self) -> bool:
        """Whether Kueue admits the job."""
        return self.options.target in ("kueue", "kueue-job")

    @property
    def array_of_pods(self) -> bool:
        """Whether an array becomes one Indexed Job with a pod for each element."""
        return self.job.array is not None and self.layout.nodes == 1 and self.kueue

    @property
    def topology_aware(self) -> bool:
        """Whether Kueue places the pods by topology."""
        return self.kueue and self.partition.topology is not None

    @property
    def directory(self) -> str:
        """Where Slurm would start the batch script, and relative names of its files begin."""
        submitted = self.options.submitter.directory
        return posixpath.join(submitted, self.job.chdir) if self.job.chdir else submitted

    @property
    def starts_outside(self) -> bool:
        """Whether Slurm would run the script on the node: its steps alone have containers.

        It then starts in its own directory, and the steps in the container's.
        """
        return bool(self.job.image_line) and not self.job.container.workdir

    @property
    def grace(self) -> int:
        """Seconds between a pod's SIGTERM and its SIGKILL."""
        lead = self.job.signal.seconds if self.job.signal else 0
        return max(30, lead, self.qos.grace_seconds)

    @property
    def labels(self) -> dict[str, str]:
        """Labels of everything that belongs to the job."""
        labels = {
            "app.kubernetes.io/managed-by": "pyxis",
            "app.kubernetes.io/name": object_name(self.job.name)[:LONGEST_NAME].strip("-"),
            "pyxis/job-id": str(self.options.job_id),
        }
        user = self.options.submitter.user
        if re.fullmatch(LABEL_VALUE, user):
            labels["pyxis/user"] = user
        if self.job.account:
            labels["pyxis/account"] = self.job.account
        return labels


@dataclass(frozen=True, slots=True)
class Element:
    """One job of an array, or the whole job (`task` None)."""

    name: str
    job_id: int
    task: int | None = None


def elements(context: Context) -> tuple[Element, ...]:
    """Return the jobs to create: one, unless array elements are jobs of their own."""
    array = context.job.array
    if array is None or context.array_of_pods:
        return (Element(context.name, context.options.job_id),)
    return tuple(
        Element(f"{context.name}-a{task}", context.options.job_id + offset, task)
        for offset, task in enumerate(array.indices)
    )


def object_name(text: str) -> str:
    """Return the part of an object's name that comes from a job's: a DNS-1035 label."""
    name = re.sub("[^a-z0-9-]+", "-", text.lower()).strip("-")
    return f"j{name}" if not name or not name[0].isalpha() else name


def plan_job(job: JobSpec, profile: Profile, options: RenderOptions, ledger: Ledger) -> Context:
    """Find a job's partition, QOS, namespace, numbers and names; refusals go to the ledger."""
    partition_name, partition = _partition(job, profile, options, ledger)
    layout = lay_out(job, partition.node, ledger)
    context = Context(
        job, profile, options, ledger, layout,
        name=f"{object_name(job.name)}-{options.job_id}",
        namespace=_namespace(job, profile, options, ledger),
        partition_name=partition_name,
        partition=partition,
        qos=_qos(job, profile, options, ledger),
        time_limit=_time_limit(job, partition, ledger),
    )  # fmt: skip
    _check_names(context)
    if job.comment:
        ledger.render("--comment", "an annotation")
    if job.signal:
        who = "the batch script" if job.signal.batch_only else "all tasks"
        text = f"the launcher sends {job.signal.name} to {who} {job.signal.seconds} s ahead"
        ledger.render("--signal", text)
    return context


def _partition(
    job: JobSpec, profile: Profile, options: RenderOptions, ledger: Ledger
) -> tuple[str, Partition]:
    names = job.partitions or ((profile.default_partition,) if profile.default_partition else ())
    if len(names) > 1:
        if options.target in ("kueue", "kueue-job"):
            ledger.refuse("partition-list", "--partition", f"several: {', '.join(names)}")
        elif options.target == "volcano":
            text = f"the first of several: {names[0]}"
            ledger.approximate("partition-list", "--partition", text)
    name = names[0] if names else ""
    if name in profile.partitions:
        partition = profile.partitions[name]
        ledger.render("--partition", f"queue {partition.queue}")
        return name, partition
    if profile.partitions:
        known = ", ".join(sorted(profile.partitions))
        text = f"no partition {name!r} in the profile; it has {known}" if name else "none given"
        ledger.refuse("partition-unknown", "--partition", text)
    elif name and not re.fullmatch(DNS_LABEL, name):
        ledger.refuse("partition-unknown", "--partition", f"not a queue's name: {name!r}")
    elif name:
        ledger.warn("assumed-queue", "--partition", f"a queue called {name}, for want of a profile")
    else:
        ledger.warn("assumed-queue", "", "a queue called default, for want of --partition")
    return name, Partition(queue=name or "default")


def _qos(job: JobSpec, profile: Profile, options: RenderOptions, ledger: Ledger) -> Qos:
    if not job.qos:
        return Qos()
    if job.qos in profile.qos:
        qos = profile.qos[job.qos]
        ledger.render("--qos", "a priority class")
        if not qos.preemptible and options.target in ("kueue", "kueue-job"):
            text = "whether it can be preempted is decided by the ClusterQueue"
            ledger.warn("kueue-preemption", "--qos", text)
        return qos
    if profile.strict:
        known = ", ".join(sorted(profile.qos)) or "none"
        ledger.refuse("qos-unknown", "--qos", f"no QOS {job.qos!r} in the profile; it has {known}")
        return Qos()
    if not re.fullmatch(DNS_LABEL, job.qos):
        ledger.refuse("qos-unknown", "--qos", f"not a priority class's name: {job.qos!r}")
        return Qos()
    ledger.warn("assumed-priority", "--qos", f"a priority class {job.qos}, for want of a profile")
    return Qos(job.qos, job.qos)


def _namespace(job: JobSpec, profile: Profile, options: RenderOptions, ledger: Ledger) -> str:
    if job.account and not re.fullmatch(LABEL_VALUE, job.account):
        ledger.refuse("label-invalid", "--account", f"not a label's value: {job.account!r}")
    if options.namespace:
        return options.namespace
    if job.account in profile.accounts:
        ledger.render("--account", f"namespace {profile.accounts[job.account]}")
        return profile.accounts[job.account]
    if job.account and profile.accounts:
        known = ", ".join(sorted(profile.accounts))
        text = f"no account {job.account!r} in the profile; it has {known}"
        ledger.refuse("account-unknown", "--account", text)
    elif job.account:
        ledger.approximate("account", "--account", f"a label; the namespace is {profile.namespace}")
    return profile.namespace


def _time_limit(job: JobSpec, partition: Partition, ledger: Ledger) -> int | None:
    most = partition.max_time
    if not job.time_given:
        return most
    if most is not None and (job.time_limit is None or job.time_limit > most):
        ledger.refuse("time-over-partition", "--time", f"the partition's limit is {most} s")
    text = f"{job.time_limit} s, enforced by the launcher and by the cluster"
    ledger.render("--time", text if job.time_limit else "no limit")
    return job.time_limit


def _check_names(context: Context) -> None:
    job, options = context.job, context.options
    suffix = f"-a{job.array.indices[-1]}" if job.array and not context.array_of_pods else ""
    last = max(context.layout.nodes, len(job.array.indices) if context.array_of_pods and job.array
               else 0) - 1  # fmt: skip
    # Pods of Jobs are the host name with a dash and five characters behind it.
    tail = {"kueue": f"-n-0-{last}-abcde", "volcano": f"-n-{last}"}.get(
        options.target, f"-{last}-abcde"
    )
    longest = len(context.name) + len(suffix) + len(tail)
    if longest > LONGEST_NAME:
        text = f"pods would have names of {longest} characters; {LONGEST_NAME} are allowed"
        context.ledger.refuse("name-too-long", "--job-name", text)
    if context.name != f"{job.name}-{options.job_id}":
        text = f"the objects are called {context.name}; SLURM_JOB_NAME keeps the name"
        context.ledger.render("--job-name", text)
    else:
        context.ledger.render("--job-name", f"the objects are called {context.name}")
