"""`pyxis kube submit`: sbatch for a cluster of Kubernetes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from enroot_py import EnrootError, ExistsError
from pyxis_py.cli.kube_cluster import pause, write_error
from pyxis_py.cli.kube_script import (
    SUBMIT_SWITCHES,
    SUBMIT_WITH_VALUE,
    ScriptCommand,
    UncutCommand,
    asks_for_help,
    print_notes,
    read_command,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyxis_py.kubernetes.access.client import ClusterClient
    from pyxis_py.kubernetes.cluster.jobs import Job
    from pyxis_py.kubernetes.render.render import Rendering
    from pyxis_py.kubernetes.spec.jobspec import JobSpec

_ATTEMPTS = 3
"""Job ids to try, where none was asked for: two people may draw the same within one second."""
_DONE_HERE = tuple(
    f"ignored-{name}"
    for name in ("kill-on-invalid-dep", "parsable", "quiet", "test-only", "verbose", "wait")
)

SUBMIT_HELP = """\
Usage: pyxis kube submit [OPTIONS] SCRIPT [SBATCH OPTIONS] [-- ARGUMENTS]

  Render a batch script and create its objects, as sbatch submits it: prints "Submitted batch job
  ID". Exit status 2: something in the script has no equal on Kubernetes. With --wait it is that of
  the job.

Options (all others are sbatch's; --wait, --test-only, --parsable, --quiet and --hold work):
  --target TARGET      kueue, kueue-job, volcano or slurm-bridge
  --gpu-api API        device-plugin, dra or dra-extended
  --profile FILE       the site profile; without it the one that PYXIS_KUBE_PROFILE names
  --namespace NAME     instead of the account's
  --job-id N           instead of a new one
  --launcher FILE      this launcher.pyz instead of the package's or the site's
  --bring-python       for images without Python: an init container brings the one of the profile
  --capture-env        let --export=ALL copy your environment
  --env-secret NAME=SECRET/KEY   take a variable from a Secret of the namespace
  --allow CODE         go on in spite of a refusal, where that makes sense
  --client CLIENT      kubectl or python; default: kubectl where it is installed
  --kubeconfig FILE, --context NAME   as kubectl takes them
  -h, --help           print this

  Without SCRIPT, or with -, the script comes from standard input.
"""


@click.command("submit", cls=UncutCommand)
def submit_command(words: tuple[str, ...]) -> int:
    """Create the objects of a batch script on a cluster."""
    if asks_for_help(words, SUBMIT_WITH_VALUE, SUBMIT_SWITCHES, "pyxis kube submit"):
        click.echo(SUBMIT_HELP, nl=False)
        return 0
    command = read_command(words, SUBMIT_WITH_VALUE, SUBMIT_SWITCHES, "pyxis kube submit")
    return _submit(command)


def _submit(command: ScriptCommand) -> int:
    from pyxis_py.kubernetes.access.open_cluster import open_cluster
    from pyxis_py.kubernetes.cluster.launcher_file import job_launcher

    launcher = None
    if "launcher" not in command.own:
        launcher = job_launcher(command.profile)
    own = command.own
    client = open_cluster(own.get("client", ""), kubeconfig=own.get("kubeconfig", ""),
                          context=own.get("context", ""))  # fmt: skip
    try:
        if not command.profile.strict and "namespace" not in own:
            # Without a profile jobs go where kubectl would create them.
            own["namespace"] = client.namespace
        # What has no equal is refused before anything is asked of the cluster.
        job, rendering = _render(command, launcher)
        asked = {option.name for option in job.given}
        if "quiet" not in asked:
            print_notes(rendering.notes, but=_DONE_HERE)
        warnings = _check(client, command, job, rendering)
        for warning in warnings if "quiet" not in asked else ():
            write_error(warning)
        if "test-only" in asked:
            return _test(client, job, rendering)
        jobs = _create(client, command, launcher, rendering)
        number = jobs[0].job_id
        text = str(number) if "parsable" in asked else f"Submitted batch job {number}"
        if "parsable" in asked or "quiet" not in asked:
            click.echo(text)
        return _wait(client, jobs) if "wait" in asked else 0
    finally:
        client.close()


def _render(command: ScriptCommand, launcher: bytes | None) -> tuple[JobSpec, Rendering]:
    from pyxis_py.kubernetes.render.render import render_job

    job, ledger = command.read()
    options = command.options(launcher=launcher, submitting=True)
    return job, render_job(job, command.profile, options, ledger)


def _check(
    client: ClusterClient, command: ScriptCommand, job: JobSpec, rendering: Rendering
) -> Sequence[str]:
    """Look whether the site and the jobs waited for are there; return what will keep it waiting."""
    from pyxis_py.kubernetes.cluster.dependencies import check_dependency
    from pyxis_py.kubernetes.cluster.submit import check_site

    binary = "binaryData" in rendering.manifests[0]
    launcher = "" if binary else command.profile.launcher_config_map
    warnings = check_site(client, rendering.manifests, launcher)
    if job.dependency:
        namespace = rendering.manifests[0]["metadata"]["namespace"]
        check_dependency(client, namespace, job.dependency)
    return warnings


def _test(client: ClusterClient, job: JobSpec, rendering: Rendering) -> int:
    from pyxis_py.kubernetes.cluster.submit import dry_run

    dry_run(client, rendering.manifests)
    namespace = rendering.manifests[0]["metadata"]["namespace"]
    write_error(f"the cluster would take job {job.name} in namespace {namespace}")
    return 0


def _create(
    client: ClusterClient, command: ScriptCommand, launcher: bytes | None, rendering: Rendering
) -> tuple[Job, ...]:
    from pyxis_py.kubernetes.cluster.submit import submit

    for attempt in range(_ATTEMPTS):
        try:
            submission = submit(client, rendering.manifests)
            break
        except ExistsError:
            if "job-id" in command.own or attempt == _ATTEMPTS - 1:
                raise
            _, rendering = _render(command, launcher)
    for warning in submission.warnings:
        write_error(warning)
    return submission.jobs


def _wait(client: ClusterClient, jobs: Sequence[Job]) -> int:
    from pyxis_py.kubernetes.cluster.listing import wait_for

    try:
        records = wait_for(client, jobs, sleep=pause)
    except EnrootError as error:
        write_error(f"the job goes on, but waiting for it failed: {error}")
        return error.exit_code
    statuses = [record.state.exit_code or int(record.state.state != "CD") for record in records]
    return max(statuses)
