"""`pyxis kube status`, `logs`, `cancel`, `hold`, `release`: squeue, scancel and scontrol there."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from enroot_py import UsageError
from pyxis_py.cli.kube_cluster import (
    Cluster,
    check_owner,
    cluster_options,
    for_each,
    pause,
    user_name,
    write_error,
)

if TYPE_CHECKING:
    from pyxis_py.kubernetes.cluster.jobs import Job, JobReference

_OWNER = click.option("-u", "--user", default="", metavar="NAME", help="jobs of NAME are meant")


@click.command("status")
@click.argument("jobs", nargs=-1, metavar="[JOB]...")
@click.option("-u", "--user", default="", metavar="NAME", help="jobs of NAME, not yours")
@click.option("-a", "--all-users", is_flag=True, help="jobs of everybody")
@click.option("-t", "--states", default="", metavar="LIST", help="only these, such as PD,R")
@click.option("-l", "--long", is_flag=True, help="what the cluster says about each, too")
@click.option("--noheader", is_flag=True, help="no line of titles")
@click.option("--json", "as_json", is_flag=True, help="for programs")
@cluster_options
def status_command(
    jobs: tuple[str, ...], user: str, all_users: bool, states: str, long: bool, noheader: bool,
    as_json: bool, **options: Any,
) -> int:  # fmt: skip
    """List jobs by number (412803917, 412803917_4) or name; without any, all of yours."""
    from pyxis_py.kubernetes.cluster import queue_table
    from pyxis_py.kubernetes.cluster.jobs import parse_reference
    from pyxis_py.kubernetes.cluster.listing import find_jobs, read_states

    wanted = _parse_states(states)
    references = [parse_reference(text) for text in jobs]
    with Cluster(options) as cluster:
        if references:
            found = [job for reference in references for job in cluster.jobs(reference)]
        else:
            owner = "" if all_users else user or user_name()
            found = find_jobs(cluster.client, cluster.namespaces, user=owner)
        records = read_states(cluster.client, list({job.uid: job for job in found}.values()))
    records = [record for record in records if not wanted or record.state.state in wanted]
    now = time.time()
    if as_json:
        click.echo(queue_table.format_json(records, now), nl=False)
        return 0
    click.echo(queue_table.format_table(records, now, header=not noheader), nl=False)
    if long:
        click.echo(queue_table.format_messages(records), nl=False)
    return 0


def _parse_states(text: str) -> set[str]:
    from pyxis_py.kubernetes.cluster.queue_table import STATES

    names = {long: short for short, long in STATES.items()} | {short: short for short in STATES}
    wanted = [word.strip().upper() for word in text.split(",") if word.strip()]
    for word in wanted:
        if word not in names:
            raise UsageError(f"--states: {word!r} is none of {', '.join(STATES)}")
    return {names[word] for word in wanted}


@click.command("logs")
@click.argument("job")
@click.option("--node", type=click.IntRange(0), default=None, metavar="N", help="of node N, not 0")
@click.option("--all", "everywhere", is_flag=True, help="of all nodes, with their numbers")
@click.option("-f", "--follow", is_flag=True, help="wait for the job, and for more")
@click.option("--tail", type=click.IntRange(0), default=None, metavar="N", help="the last N lines")
@cluster_options
def logs_command(
    job: str, node: int | None, everywhere: bool, follow: bool, tail: int | None, **options: Any
) -> int:
    """Print what a job writes: its batch script's output, or that of one node or of all."""
    from pyxis_py.kubernetes.cluster import logs
    from pyxis_py.kubernetes.cluster.jobs import parse_reference

    if everywhere and node is not None:
        raise UsageError("--all and --node exclude each other")
    reference = parse_reference(job)
    with Cluster(options) as cluster:
        found = _only(cluster.jobs(reference), reference)
        numbers = None if everywhere else [_number(cluster, found, reference, node)]
        if follow:
            pods = logs.wait_for_pods(cluster.client, found, numbers, sleep=pause)
        else:
            pods = logs.select_pods(cluster.client, found, numbers)
        try:
            logs.copy_logs(
                cluster.client, pods, sys.stdout.buffer, follow=follow, tail=tail,
                labels=everywhere,
            )  # fmt: skip
        except BrokenPipeError:
            # Whoever read is gone, as behind `| head`; the interpreter would complain once more.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 141
    return 0


def _only(jobs: list[Job], reference: JobReference) -> Job:
    if len(jobs) > 1:
        titles = ", ".join(job.title for job in jobs[:8]) + (", …" if len(jobs) > 8 else "")
        raise UsageError(f"{reference.text} means several jobs: {titles}", hint="name one of them")
    return jobs[0]


def _number(cluster: Cluster, job: Job, reference: JobReference, node: int | None) -> int:
    """The pod's number: of the node, or of the array's element."""
    from pyxis_py.kubernetes.cluster.listing import array_indices

    if not job.is_array:
        if node is not None and node >= job.nodes:
            last = job.nodes - 1
            hint = f"its nodes are 0 to {last}" if last else "its only one is 0"
            raise UsageError(f"--node: job {job.title} has no node {node}", hint=hint)
        return node or 0
    indices = array_indices(cluster.client, job)
    if reference.task is None:
        raise UsageError(f"Job {job.job_id} is an array of {len(indices)} elements",
                         hint=f"name one: {job.job_id}_{indices[0]}; or --all")  # fmt: skip
    if reference.task not in indices:
        raise UsageError(f"Array {job.job_id} has no element {reference.task}")
    return indices.index(reference.task)


@click.command("cancel")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@click.option("--wait", is_flag=True, help="return when its pods are gone")
@click.option("-s", "--signal", "name", default="", metavar="NAME", help="send a signal instead")
@click.option("-b", "--batch", is_flag=True, help="with --signal: to the batch script alone")
@click.option("-f", "--full", is_flag=True, help="with --signal: to batch script and steps")
@_OWNER
@cluster_options
def cancel_command(
    jobs: tuple[str, ...], wait: bool, name: str, batch: bool, full: bool, user: str,
    **options: Any,
) -> int:  # fmt: skip
    """End jobs and remove them with all that belongs to them, or signal what they run."""
    from enroot_py import NotFoundError
    from pyxis_py.kubernetes.cluster import cancel
    from pyxis_py.kubernetes.cluster.listing import array_indices
    from pyxis_py.kubernetes.cluster.signals import parse_signal_name, send_signal

    if (batch or full) and not name:
        raise UsageError("--batch and --full belong to --signal")
    name = parse_signal_name(name) if name else ""

    with Cluster(options) as cluster:

        def act(reference: JobReference) -> None:
            try:
                found = cluster.jobs(reference)
            except NotFoundError:
                if name:
                    raise
                swept = cancel.sweep(cluster.client, cluster.namespaces, reference)
                if not swept:
                    raise
                write_error(f"job {reference.text} was gone; removed {', '.join(swept)}")
                return
            for job in found:
                check_owner(job, user)
            for job in found:
                element = reference.task if job.is_array else None
                if name:
                    numbers = None if element is None else [_number(cluster, job, reference, None)]
                    send_signal(cluster.client, job, name, batch=batch, full=full, numbers=numbers)
                elif element is not None:
                    indices = array_indices(cluster.client, job)
                    cancel.cancel_element(cluster.client, job, indices, element)
                else:
                    cancel.cancel(cluster.client, job, sleep=pause, wait=wait)
            if not name and reference.task is None:
                for job in {(job.namespace, job.job_id): job for job in found}.values():
                    cancel.remove_unowned(cluster.client, job)

        return for_each(jobs, act)


@click.command("hold")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@_OWNER
@cluster_options
def hold_command(jobs: tuple[str, ...], user: str, **options: Any) -> int:
    """Keep jobs that wait from starting."""
    from pyxis_py.kubernetes.cluster.hold import hold

    with Cluster(options) as cluster:

        def act(reference: JobReference) -> None:
            for job in cluster.jobs(reference):
                check_owner(job, user)
                if not hold(cluster.client, job):
                    write_error(f"job {job.title} is held already")

        return for_each(jobs, act)


@click.command("release")
@click.argument("jobs", nargs=-1, metavar="[JOB]...")
@click.option(
    "--dependencies",
    is_flag=True,
    help="admit jobs whose --dependency is met, and elements of arrays as others end",
)
@click.option("--watch", is_flag=True, help="with --dependencies: until no job waits for others")
@_OWNER
@cluster_options
def release_command(
    jobs: tuple[str, ...], dependencies: bool, watch: bool, user: str, **options: Any
) -> int:
    """Let jobs go that are held, or, with --dependencies, those that waited for others."""
    from pyxis_py.kubernetes.cluster.hold import release

    if watch and not dependencies:
        raise UsageError("--watch belongs to --dependencies")
    if not jobs and not dependencies:
        raise UsageError("which job?", hint="pyxis kube release JOB, or --dependencies")
    with Cluster(options) as cluster:
        if dependencies:
            return _release_dependencies(cluster, jobs, user, watch=watch)

        def act(reference: JobReference) -> None:
            for job in cluster.jobs(reference):
                check_owner(job, user)
                if not release(cluster.client, job):
                    write_error(f"nobody holds job {job.title}")

        return for_each(jobs, act)


def _release_dependencies(
    cluster: Cluster, texts: tuple[str, ...], user: str, *, watch: bool
) -> int:
    from pyxis_py.kubernetes.cluster.dependencies import release_met
    from pyxis_py.kubernetes.cluster.jobs import parse_reference
    from pyxis_py.kubernetes.cluster.listing import find_jobs

    references = [parse_reference(text) for text in texts]
    while True:
        mine = find_jobs(cluster.client, cluster.namespaces, user=user or user_name())
        chosen = [job for job in mine if not references or any(r.means(job) for r in references)]
        outcomes = release_met(cluster.client, chosen, now=time.time(), sleep=pause)
        for outcome in outcomes:
            if outcome.verdict == "met":
                click.echo(f"Released job {outcome.job.title}")
            elif outcome.kill:
                click.echo(f"Cancelled job {outcome.job.title}: never {outcome.text}")
            elif outcome.verdict == "never" and not watch:
                write_error(f"job {outcome.job.title} can never start: {outcome.text}")
        if not watch or not any(outcome.verdict == "waits" for outcome in outcomes):
            return 0
        pause(15.0)


JOB_COMMANDS = (status_command, logs_command, cancel_command, hold_command, release_command)
