"""A job as its object in the cluster describes it, and how users name jobs.

Pure. What is read here was written by render/: labels, annotations and the variables of the pods.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from enroot_py import UsageError
from pyxis_py.kubernetes.access.resources import VOLCANO_JOB, Object, Resource, resource_of
from pyxis_py.kubernetes.pod.devices import CHANNEL_CLAIM
from pyxis_py.kubernetes.render.indexed_job import DEADLINE_SLACK
from pyxis_py.kubernetes.render.queueing import GATES, HELD
from pyxis_py.kubernetes.render.validate import pod_templates

OURS = "app.kubernetes.io/managed-by=pyxis"
"""The selector of everything that this package rendered."""
_REFERENCE = re.compile(r"(\d{1,10})(?:_(\d{1,7}))?\Z", re.ASCII)
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?\Z")


@dataclass(frozen=True, slots=True)
class Job:
    """One job object: a batch job, or one element of an array.

    Attributes:
        made: the object.
        task: the element's number; None for a whole job, an array of pods included.
    """

    made: Object
    resource: Resource
    job_id: int
    task: int | None
    user: str
    variables: Mapping[str, str]

    @property
    def name(self) -> str:
        """The object's name."""
        return str(self.made["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """The object's namespace."""
        return str(self.made["metadata"]["namespace"])

    @property
    def uid(self) -> str:
        """The object's uid."""
        return str(self.made["metadata"]["uid"])

    @property
    def annotations(self) -> Mapping[str, str]:
        """The object's annotations."""
        return self.made["metadata"].get("annotations") or {}

    @property
    def job_name(self) -> str:
        """The name that the user gave."""
        return self.annotations.get("pyxis/job-name", self.name)

    @property
    def title(self) -> str:
        """`123`, `123_4` for an element of an array, `123_[1-7:2]` for an array of pods."""
        if self.task is not None:
            return f"{self.job_id}_{self.task}"
        if self.is_array:
            first, last, step = (
                self.variables.get(f"SLURM_ARRAY_TASK_{part}", "1") for part in _PARTS
            )
            return f"{self.job_id}_[{first}-{last}{f':{step}' if step != '1' else ''}]"
        return str(self.job_id)

    @property
    def is_array(self) -> bool:
        """Whether its pods are the elements of an array."""
        return self.task is None and "SLURM_ARRAY_JOB_ID" in self.variables

    @property
    def partition(self) -> str:
        """The partition, or the queue where none was named."""
        return self.variables.get("SLURM_JOB_PARTITION", "")

    @property
    def nodes(self) -> int:
        """The number of pods that the job asked for."""
        spec = self.made["spec"]
        if self.resource is VOLCANO_JOB:
            return sum(task.get("replicas", 1) for task in spec.get("tasks", ()))
        if "replicatedJobs" in spec:
            return sum(
                row["template"]["spec"].get("completions", 1) for row in spec["replicatedJobs"]
            )
        return int(spec.get("completions") or 1)

    @property
    def time_limit(self) -> int | None:
        """Seconds, None for none."""
        spec = self.made["spec"]
        if "runningEstimate" in spec:
            match = _DURATION.match(spec["runningEstimate"])
            hours, minutes, seconds = (int(part or 0) for part in match.groups()) if match else _NO
            return hours * 3600 + minutes * 60 + seconds or None
        inner = spec["replicatedJobs"][0]["template"]["spec"] if "replicatedJobs" in spec else spec
        limit = inner.get("activeDeadlineSeconds")
        if limit is None and self.is_array:
            limit = inner["template"]["spec"].get("activeDeadlineSeconds")
        return limit - DEADLINE_SLACK if limit else None

    @property
    def template(self) -> Mapping[str, Any]:
        """The template of its pods."""
        return pod_templates(self.made)[0][1]

    @property
    def gates(self) -> tuple[str, ...]:
        """What Kueue waits for before it admits the job."""
        return tuple(filter(None, self.annotations.get(GATES, "").split(",")))

    @property
    def held(self) -> bool:
        """Whether somebody holds it after its submission."""
        return HELD in self.annotations

    @property
    def in_kueue(self) -> bool:
        """Whether Kueue decides when it starts."""
        return "kueue.x-k8s.io/queue-name" in self.made["metadata"].get("labels", {})

    @property
    def ending(self) -> bool:
        """Whether it is being deleted."""
        return "deletionTimestamp" in self.made["metadata"]

    @property
    def compute_domain(self) -> bool:
        """Whether its pods share memory over the NVLinks of several nodes."""
        claims = self.template["spec"].get("resourceClaims", ())
        return any(row.get("name") == CHANNEL_CLAIM for row in claims)


_PARTS = ("MIN", "MAX", "STEP")
_NO = (0, 0, 0)


def read_job_object(made: Object) -> Job | None:
    """Return the job of an object, None for one that this package did not render."""
    labels = made["metadata"].get("labels") or {}
    number, element = labels.get("pyxis/job-id", ""), labels.get("pyxis/element", "")
    if not number.isdecimal() or not element or element != made["metadata"]["name"]:
        return None
    env = pod_templates(made)[0][1]["spec"]["containers"][0].get("env", ())
    # Undo what keeps the kubelet from expanding $(NAME).
    values = {row["name"]: row["value"].replace("$$", "$") for row in env if "value" in row}
    task = values.get("SLURM_ARRAY_TASK_ID", "")
    user = labels.get("pyxis/user") or values.get("SLURM_JOB_USER", "")
    return Job(made, resource_of(made), int(number), int(task) if task else None, user, values)


@dataclass(frozen=True, slots=True)
class JobReference:
    """How a user names jobs: `123`, `123_4`, or a name."""

    text: str
    job_id: int | None = None
    task: int | None = None

    @property
    def selector(self) -> str:
        """A label selector that finds at least these jobs."""
        return OURS if self.job_id is None else f"{OURS},pyxis/job-id={self.job_id}"

    def means(self, job: Job) -> bool:
        """Whether a job is meant."""
        if self.job_id is None:
            return self.text in (job.name, job.job_name)
        if self.task is not None and not job.is_array:
            return (job.job_id, job.task) == (self.job_id, self.task)
        return job.job_id == self.job_id


def parse_reference(text: str) -> JobReference:
    """Return what a word of the command line means.

    Raises:
        UsageError: if it cannot be a job's number or name.
    """
    match = _REFERENCE.match(text)
    if match:
        return JobReference(text, int(match[1]), int(match[2]) if match[2] else None)
    if not text or text[0] == "-" or not text.isprintable():
        raise UsageError(f"neither a job's number nor its name: {text!r}",
                         hint="for example 412803917, 412803917_4 or llama-pretrain")  # fmt: skip
    return JobReference(text)


def sort_jobs(jobs: Iterable[Job]) -> list[Job]:
    """Return jobs by number and element."""
    return sorted(
        jobs, key=lambda job: (job.job_id, -1 if job.task is None else job.task, job.name)
    )
