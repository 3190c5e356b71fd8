"""What all commands that talk to a cluster share: their options, and where to look for jobs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from enroot_py import EnrootError, UnsupportedError
from pyxis_py.cli.kube_script import PROFILE_VARIABLE, submitter

if TYPE_CHECKING:
    from pyxis_py.kubernetes.access.client import ClusterClient
    from pyxis_py.kubernetes.cluster.jobs import Job, JobReference


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that choose a cluster and namespaces."""
    for decorator in reversed((
        click.option("-n", "--namespace", default="", metavar="NAME", help="look there alone"),
        click.option("-A", "--all-namespaces", is_flag=True, help="look everywhere"),
        click.option("--profile", default="", metavar="FILE",
                     help="look in the namespaces of this site profile"),
        click.option("--client", default="", metavar="kubectl|python",
                     help="what talks to the cluster; default: kubectl where it is installed"),
        click.option("--kubeconfig", default="", metavar="FILE", help="as kubectl takes it"),
        click.option("--context", default="", metavar="NAME", help="as kubectl takes it"),
    )):  # fmt: skip
        command = decorator(command)
    return command


class Cluster:
    """An open client, and the namespaces that a command line means."""

    def __init__(self, options: dict[str, Any]) -> None:
        from pyxis_py.kubernetes.access.open_cluster import open_cluster

        self._options = options
        self.client: ClusterClient = open_cluster(
            options["client"], kubeconfig=options["kubeconfig"], context=options["context"]
        )

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *arguments: object) -> None:
        self.client.close()

    @property
    def namespaces(self) -> list[str]:
        """Where to look; [""] stands for everywhere."""
        from pyxis_py.kubernetes.profile.reader import read_profile

        if self._options["all_namespaces"]:
            return [""]
        if self._options["namespace"]:
            return [self._options["namespace"]]
        path = self._options["profile"] or os.environ.get(PROFILE_VARIABLE, "")
        if path:
            profile = read_profile(path)
            return list(dict.fromkeys((profile.namespace, *profile.accounts.values())))
        return [self.client.namespace]

    def jobs(self, reference: JobReference) -> list[Job]:
        """Return the jobs that a word of the command line means."""
        from pyxis_py.kubernetes.cluster.listing import require_jobs

        return require_jobs(self.client, self.namespaces, reference)


def user_name() -> str:
    """Return the name under which jobs of whoever runs this are submitted."""
    return submitter().user


def check_owner(job: Job, user: str) -> None:
    """Refuse to touch somebody else's job by accident.

    Raises:
        UnsupportedError: if the job is not this user's.
    """
    owner = user or user_name()
    if job.user != owner:
        raise UnsupportedError(
            f"Job {job.title} is {job.user or 'somebody else'}'s, not {owner}'s",
            hint=f"--user {job.user} if that is meant" if job.user else "use kubectl",
        )


def for_each(texts: Sequence[str], act: Callable[[JobReference], None]) -> int:
    """Do something for each job of a command line; a failure does not keep the others from it."""
    from pyxis_py.kubernetes.cluster.jobs import parse_reference
    from pyxis_py.launchers.srun import report

    references = [parse_reference(text) for text in texts]
    status = 0
    for reference in references:
        try:
            act(reference)
        except EnrootError as error:
            status = report(error, "pyxis")
    return status


def write_error(text: str) -> None:
    """Print one line on standard error."""
    click.echo(f"pyxis: {text}", err=True)
    sys.stderr.flush()


def pause(seconds: float) -> None:
    """Wait; tests of commands replace nothing, they change the cluster meanwhile."""
    time.sleep(seconds)
