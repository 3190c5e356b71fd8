"""The commands of `pyxis`: run without Slurm, import for other plugins, build and install ours."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import click

from enroot_py import EnrootError
from pyxis_py.args import RawValue
from pyxis_py.cli.kube import kube
from pyxis_py.cli.plugin import plugin_group
from pyxis_py.job import PYXIS_VERSION
from pyxis_py.launchers.local import run_local
from pyxis_py.launchers.srun import report
from pyxis_py.options import OPTIONS
from pyxis_py.plugin_config import WORDS_VARIABLE


def _show_version(context: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(PYXIS_VERSION)
        context.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-V", "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version,
    help="print the version of NVIDIA's Pyxis that this equals",
)  # fmt: skip
def application() -> None:
    """Containers as Slurm steps, and without Slurm."""


def _container_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command every flag of the table."""
    for option in reversed(OPTIONS):
        name, text = (
            f"--{option.name}",
            option.usage + (" (not in NVIDIA's)" if option.ours else ""),
        )
        field = option.name.replace("-", "_")
        if option.takes_argument:
            decorator = click.option(name, field, multiple=True, metavar=option.arginfo, help=text)
        else:
            decorator = click.option(name, field, is_flag=True, help=text)
        command = decorator(command)
    return command


def _given(values: dict[str, Any]) -> list[RawValue]:
    given = []
    for option in OPTIONS:
        value = values[option.name.replace("-", "_")]
        if option.takes_argument:
            given += [RawValue(option, text) for text in value]
        elif value:
            given.append(RawValue(option, ""))
    return given


@application.command(
    "run", context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False}
)
@click.option("-n", "--ntasks", default=1, type=click.IntRange(1, 4096), help="number of tasks")
@click.option("-l", "--label", is_flag=True, help="put the task's number before its lines")
@_container_flags
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run_command(ntasks: int, label: bool, command: tuple[str, ...], **values: Any) -> int:
    """Run COMMAND in a container on this machine, without Slurm, with srun's flags."""
    words = os.environ.get(WORDS_VARIABLE, "").split()
    return run_local(command, _given(values), tasks=ntasks, words=words, label=label)


@application.command("importer")
@click.argument("words", nargs=-1, required=True, metavar="get URI | release")
def importer_command(words: tuple[str, ...]) -> int:
    """Be the program of importer= in plugstack.conf, for this plugin or NVIDIA's.

    `get URI` prints the path of a squashfs image, which it imports if need be. `release` ends its
    use: the image stays in the cache.
    """
    from pyxis_py.importer import serve

    return serve(list(words), dict(os.environ))


application.add_command(plugin_group)
application.add_command(kube)


def run() -> int:
    """Run one command line and return its exit status."""
    try:
        status = application.main(prog_name="pyxis", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except EnrootError as error:
        return report(error, "pyxis")
