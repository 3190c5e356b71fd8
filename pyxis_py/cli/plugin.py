"""`pyxis plugin`: build, install, uninstall and look at the SPANK plugin."""

from __future__ import annotations

from pathlib import Path

import click

from enroot_py import StoreError
from pyxis_py.plugin.build import LIBRARY, build
from pyxis_py.plugin.install import find_plugstack, install, status, uninstall

_FOLDER = Path("/usr/local/lib/slurm")

_plugstack = click.option(
    "--plugstack", type=click.Path(path_type=Path), help="the file (default: what Slurm reads)"
)
_include = click.option(
    "-I", "--include", default="", metavar="FOLDER", help="the folder that holds slurm/spank.h"
)
_compiler = click.option("--cc", default="", metavar="COMMAND", help="the C compiler")


@click.group("plugin")
def plugin_group() -> None:
    """Slurm's plugin: srun, sbatch and salloc take the --container flags themselves."""


@plugin_group.command("build")
@click.option(
    "-o", "--output", default=Path(LIBRARY), type=click.Path(path_type=Path), show_default=True,
    help="the library to write, or a folder",
)  # fmt: skip
@_include
@_compiler
def build_command(output: Path, include: str, cc: str) -> int:
    """Compile the plugin for the Slurm whose headers are installed here."""
    print(build(output.absolute(), include=include, compiler=cc))
    return 0


@plugin_group.command("install")
@_plugstack
@click.option(
    "--library", type=click.Path(path_type=Path, dir_okay=False),
    help=f"an existing library (default: one is built into {_FOLDER})",
)  # fmt: skip
@click.option("--optional", is_flag=True, help="steps run even where the plugin cannot be loaded")
@_include
@_compiler
@click.argument("words", nargs=-1, metavar="[SETTING=VALUE]...")
def install_command(
    plugstack: Path | None,
    library: Path | None,
    optional: bool,
    include: str,
    cc: str,
    words: tuple[str, ...],
) -> int:
    """Build the plugin if need be, and write its line into plugstack.conf."""
    if library is None:
        library = build(_make_folder() / LIBRARY, include=include, compiler=cc)
    file = plugstack or find_plugstack()
    print(f"{file}: {install(library.absolute(), words, file, required=not optional)}")
    return _report(file)


def _make_folder() -> Path:
    try:
        _FOLDER.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"Cannot make {_FOLDER}: {error.strerror}",
            hint="run this as the administrator of Slurm, or name a library with --library",
        ) from error
    return _FOLDER


@plugin_group.command("uninstall")
@_plugstack
def uninstall_command(plugstack: Path | None) -> int:
    """Take the plugin's line out of plugstack.conf; the library stays for steps that run."""
    file = plugstack or find_plugstack()
    print(f"{file}: " + ("taken out" if uninstall(file) else "there was no line of ours"))
    return 0


@plugin_group.command("status")
@_plugstack
def status_command(plugstack: Path | None) -> int:
    """Tell what Slurm loads here; the exit status is 1 if steps cannot have containers."""
    return _report(plugstack or find_plugstack())


def _report(file: Path) -> int:
    found = status(file)
    for name, value in (
        ("plugstack.conf", str(found.plugstack)),
        ("line", found.line or "none"),
        ("built for Slurm", found.built_for or "unknown"),
        ("this Slurm", found.slurm or "none"),
        ("srun shows the flags", "yes" if found.flags_shown else "no"),
    ):
        print(f"{name:<22}{value}")
    for fault in found.faults:
        print(f"fault: {fault}")
    for note in found.notes:
        print(f"note: {note}")
    return 1 if found.faults else 0
