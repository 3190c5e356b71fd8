"""`pyxis kube`: the batch script that runs under Slurm, as manifests and jobs of Kubernetes."""

from __future__ import annotations

from collections.abc import Sequence

import click

from enroot_py import ExistsError, NotFoundError
from pyxis_py.cli.kube_jobs import JOB_COMMANDS
from pyxis_py.cli.kube_launcher import launcher_command
from pyxis_py.cli.kube_script import (
    RENDER_SWITCHES,
    RENDER_WITH_VALUE,
    UncutCommand,
    asks_for_help,
    print_notes,
    read_command,
)
from pyxis_py.cli.kube_submit import submit_command

RENDER_HELP = """\
Usage: pyxis kube render [OPTIONS] SCRIPT [SBATCH OPTIONS] [-- ARGUMENTS]

  Print the manifests of a batch script, without any access to a cluster. Exit status 2: something
  in the script has no equal there.

Options (all others are sbatch's):
  --target TARGET      kueue, kueue-job, volcano or slurm-bridge
  --gpu-api API        device-plugin, dra or dra-extended
  --profile FILE       the site profile (pyxis kube profile init writes one); without it the one
                       that PYXIS_KUBE_PROFILE names
  --explain            print what became of every option instead of the manifests
  --namespace NAME     instead of the account's
  --job-id N           instead of a new one: the same command line prints the same manifests,
                       but for the token
  --launcher FILE      put this launcher.pyz into the job's ConfigMap; without it pods mount the
                       ConfigMap that the profile names
  --bring-python       for images without Python: an init container brings the one of the profile
  --capture-env        let --export=ALL copy your environment
  --env-secret NAME=SECRET/KEY   take a variable from a Secret of the namespace
  --allow CODE         go on in spite of a refusal, where that makes sense
  -h, --help           print this

  Without SCRIPT, or with -, the script comes from standard input.
"""


@click.group("kube", context_settings={"help_option_names": ["-h", "--help"]})
def kube() -> None:
    """Batch scripts on Kubernetes: Kueue, Volcano, and Slurm as its scheduler."""


@kube.command("render", cls=UncutCommand)
def render_command(words: tuple[str, ...]) -> int:
    """Print the manifests of a batch script."""
    if asks_for_help(words, RENDER_WITH_VALUE, RENDER_SWITCHES, "pyxis kube render"):
        click.echo(RENDER_HELP, nl=False)
        return 0
    return _render(words)


@kube.group("profile")
def profile_group() -> None:
    """The site profile: what Slurm has in slurm.conf."""


@profile_group.command("init")
@click.argument("path", default="-")
def init_command(path: str) -> int:
    """Write a commented profile to PATH, or to standard output."""
    from pyxis_py.kubernetes.profile.template import TEMPLATE

    if path == "-":
        click.echo(TEMPLATE, nl=False)
        return 0
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(TEMPLATE)
    except FileExistsError as error:
        raise ExistsError(f"{path} is there already") from error
    except OSError as error:
        raise NotFoundError(f"Cannot write {path}: {error.strerror}") from error
    return 0


@profile_group.command("check")
@click.argument("path")
def check_command(path: str) -> int:
    """Read a profile and say what is wrong with it."""
    from pyxis_py.kubernetes.profile.reader import read_profile

    profile = read_profile(path)
    click.echo(f"{path}: {len(profile.partitions)} partitions, {len(profile.mounts)} mounts")
    return 0


def _render(words: Sequence[str]) -> int:
    from pyxis_py.kubernetes.render.manifest_text import dump_manifests, explain
    from pyxis_py.kubernetes.render.render import render_job
    from pyxis_py.kubernetes.spec.notes import RefusedError

    command = read_command(words, RENDER_WITH_VALUE, RENDER_SWITCHES, "pyxis kube render")
    job, ledger = command.read()
    explaining = "explain" in command.own
    try:
        rendering = render_job(job, command.profile, command.options(), ledger)
    except RefusedError:
        if not explaining:
            raise
        click.echo(explain(ledger.notes), nl=False)
        return RefusedError.exit_code
    if explaining:
        click.echo(explain(rendering.notes, rendering.manifests), nl=False)
        return 0
    print_notes(rendering.notes)
    click.echo(dump_manifests(rendering.manifests), nl=False)
    return 0


kube.add_command(submit_command)
kube.add_command(launcher_command)
for _command in JOB_COMMANDS:
    kube.add_command(_command)
