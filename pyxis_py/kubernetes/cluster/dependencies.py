"""`--dependency`: holding a job's conditions against the jobs that it waits for.

No scheduler here knows conditions between jobs: a dependent job waits behind admission gates until
`pyxis kube release --dependencies` finds its conditions met.

Elements of an array that its limit holds back wait in the same way, for others to end.

A job that is gone ended in one way or another: that is enough for `afterany`, not for `afterok`.

Source: sbatch(1), --dependency and --kill-on-invalid-dep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from enroot_py import NotFoundError
from pyxis_py.kubernetes.access.client import ClusterClient
from pyxis_py.kubernetes.cluster.cancel import cancel
from pyxis_py.kubernetes.cluster.hold import remove_gates
from pyxis_py.kubernetes.cluster.jobs import Job, parse_reference
from pyxis_py.kubernetes.cluster.listing import JobRecord, find_jobs, read_states
from pyxis_py.kubernetes.cluster.states import parse_stamp
from pyxis_py.kubernetes.render.queueing import (
    ARRAY_GATE,
    ARRAY_LIMIT,
    DEPENDENCY,
    DEPENDENCY_GATE,
    KILL_ON_INVALID,
)
from pyxis_py.kubernetes.spec.slurm_lists import Dependencies, Dependency, parse_dependency

Verdict = Literal["met", "waits", "never"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one job's conditions; `text` names those that keep it waiting."""

    job: Job
    verdict: Verdict
    text: str = ""

    @property
    def kill(self) -> bool:
        """Whether the job asked to be cancelled in this case."""
        wanted = self.job.annotations.get(KILL_ON_INVALID, "") == "yes"
        return self.verdict == "never" and wanted


def waits_for_others(job: Job) -> bool:
    """Whether gates of conditions keep a job waiting."""
    return any(gate.startswith(DEPENDENCY_GATE) for gate in job.gates)


def resolve(client: ClusterClient, jobs: Iterable[Job], *, now: float) -> list[Outcome]:
    """Return what became of the conditions of jobs that wait for others."""
    outcomes = []
    for job in jobs:
        if not waits_for_others(job):
            continue
        dependency = parse_dependency(job.annotations.get(DEPENDENCY, ""))
        others = _others(client, job, dependency)
        verdicts = [
            (_judge(job, condition, number, others, now), f"{condition.type}:{number}")
            for condition in dependency.conditions
            for number in condition.jobs or ("",)
        ]
        outcomes.append(_combine(job, verdicts, any_of=dependency.any))
    return outcomes


def release_met(
    client: ClusterClient, jobs: Iterable[Job], *, now: float, sleep: Callable[[float], None]
) -> list[Outcome]:
    """Admit jobs whose conditions are met, and as many elements of arrays as may run.

    Those that asked for it are cancelled if their conditions can never be met.
    """
    jobs = list(jobs)
    outcomes = {outcome.job.uid: outcome for outcome in resolve(client, jobs, now=now)}
    for outcome in outcomes.values():
        if outcome.verdict == "met":
            remove_gates(client, outcome.job, lambda gate: gate.startswith(DEPENDENCY_GATE))
        elif outcome.kill:
            cancel(client, outcome.job, sleep=sleep)
    unmet = {uid for uid, outcome in outcomes.items() if outcome.verdict != "met"}
    held_back = [job for job in jobs if ARRAY_GATE in job.gates and job.uid not in unmet]
    outcomes.update((outcome.job.uid, outcome) for outcome in _fill_slots(client, held_back))
    return list(outcomes.values())


def _fill_slots(client: ClusterClient, held_back: Sequence[Job]) -> Iterator[Outcome]:
    """Let elements of arrays go, in their order, until as many run or wait as may."""
    arrays = dict.fromkeys((job.namespace, job.job_id) for job in held_back)
    for namespace, number in arrays:
        reference = parse_reference(str(number))
        records = read_states(client, find_jobs(client, [namespace], reference=reference))
        busy = sum(
            ARRAY_GATE not in record.job.gates and not record.state.finished for record in records
        )
        for job in held_back:
            if (job.namespace, job.job_id) != (namespace, number):
                continue
            if busy < int(job.annotations.get(ARRAY_LIMIT, "1")):
                remove_gates(client, job, lambda gate: gate == ARRAY_GATE)
                busy += 1
                yield Outcome(job, "met")
            else:
                yield Outcome(job, "waits", f"{busy} elements of its array")


def _combine(job: Job, verdicts: Sequence[tuple[Verdict, str]], *, any_of: bool) -> Outcome:
    found = {verdict for verdict, _ in verdicts}
    unmet = ",".join(text.rstrip(":") for verdict, text in verdicts if verdict != "met")
    if any_of:
        best: Verdict = "met" if "met" in found else "waits" if "waits" in found else "never"
        return Outcome(job, best, "" if best == "met" else unmet)
    worst: Verdict = "never" if "never" in found else "waits" if "waits" in found else "met"
    never = ",".join(text.rstrip(":") for verdict, text in verdicts if verdict == "never")
    return Outcome(job, worst, never or unmet)


def _others(
    client: ClusterClient, job: Job, dependency: Dependencies
) -> dict[str, list[JobRecord]]:
    """The jobs that conditions name, by the number that names them; "" for singleton's."""
    found: dict[str, list[JobRecord]] = {}
    for condition in dependency.conditions:
        for text in condition.jobs:
            reference = parse_reference(text.partition("+")[0])
            others = find_jobs(client, [job.namespace], reference=reference)
            found[text] = read_states(client, others)
        if condition.type == "singleton":
            mine = find_jobs(client, [job.namespace], user=job.user)
            same = [other for other in mine if _is_earlier_namesake(other, job)]
            found[""] = read_states(client, same)
    return found


def _is_earlier_namesake(other: Job, job: Job) -> bool:
    if other.uid == job.uid or other.job_name != job.job_name or other.job_id == job.job_id:
        return False
    return _submitted(other) < _submitted(job)


def _submitted(job: Job) -> tuple[float, int]:
    return parse_stamp(job.made["metadata"].get("creationTimestamp")) or 0.0, job.job_id


def _judge(
    job: Job, condition: Dependency, text: str, others: dict[str, list[JobRecord]], now: float
) -> Verdict:
    records = others.get(text, [])
    if condition.type == "aftercorr":
        records = [record for record in records
                   if record.job.task == job.task or record.job.task is None]  # fmt: skip
    states = [record.state for record in records]
    if condition.type == "after":
        delay = int(text.partition("+")[2] or 0) * 60
        begun = all(
            state.finished or (state.started is not None and now - state.started >= delay)
            for state in states
        )
        return "met" if begun else "waits"
    if condition.type in ("afterany", "singleton"):
        return "met" if all(state.finished for state in states) else "waits"
    if not states:
        return "never"
    if not all(state.finished for state in states):
        failed = any(state.finished and state.state != "CD" for state in states)
        return "never" if failed and condition.type != "afternotok" else "waits"
    good = all(state.state == "CD" for state in states)
    return "met" if good == (condition.type != "afternotok") else "never"


def check_dependency(client: ClusterClient, namespace: str, dependency: Dependencies) -> None:
    """See whether the jobs that conditions name are there when a job is submitted.

    Raises:
        NotFoundError: naming the first that is not, as sbatch's "Job dependency problem".
    """
    for condition in dependency.conditions:
        for text in condition.jobs:
            reference = parse_reference(text.partition("+")[0])
            if not find_jobs(client, [namespace], reference=reference):
                raise NotFoundError(
                    f"--dependency: there is no job {reference.text} in namespace {namespace}",
                    hint="jobs wait for others of their own namespace alone",
                )
