"""Slurm's commands inside a job: each is a few lines in the folder that comes first in PATH."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from pyxis_py.kubernetes.launcher.commands.client import CommandError, complain, error_code
from pyxis_py.kubernetes.launcher.commands.table import ABSENT
from pyxis_py.kubernetes.launcher.job.command_line import CommandLineError, UnreadableError
from pyxis_py.kubernetes.launcher.wire.loop import leave

USAGE = "use: srun [options] program [arguments]; see srun(1) for the options"
VERSION = "slurm 22.05 (pyxis launcher)"

OPTION_STATUS = 255
"""What srun exits with for options that it cannot read."""


def run_command(name: str, argv: list[str]) -> NoReturn:
    """Run one of the commands and end the process with its status."""
    if name in ABSENT:
        complain(name, f"not inside a pod: {ABSENT[name]}")
        leave(1)
    if name != "pyxis-rsh" and argv in (["-V"], ["--version"]):
        print(VERSION)
        leave(0)
    try:
        code = _find(name)(argv)
    except (CommandError, CommandLineError) as error:
        complain(name, str(error))
        code = error_code()
    except BrokenPipeError:
        code = 128 + signal.SIGPIPE
    leave(code)


def _find(name: str) -> Callable[[list[str]], int]:
    if name == "srun":
        return _srun
    if name == "pyxis-rsh":
        return _rsh
    if name == "scontrol":
        from pyxis_py.kubernetes.launcher.commands.scontrol import scontrol

        return scontrol
    if name == "squeue":
        from pyxis_py.kubernetes.launcher.commands.squeue import squeue

        return squeue
    from pyxis_py.kubernetes.launcher.commands.scancel import scancel

    return scancel


def _srun(argv: list[str]) -> int:
    from pyxis_py.kubernetes.launcher.job.limits import raise_file_limit
    from pyxis_py.kubernetes.launcher.srun.hostfile import read_hostfile
    from pyxis_py.kubernetes.launcher.srun.options import parse_srun
    from pyxis_py.kubernetes.launcher.srun.step_client import find_step_client
    from pyxis_py.kubernetes.launcher.wire.loop import Loop

    try:
        srun = parse_srun(argv, os.environ)
    except UnreadableError as error:
        complain("srun", str(error))
        return OPTION_STATUS
    if srun.has("help") or srun.has("usage"):
        print(USAGE)
        return 0
    if srun.has("version"):
        print(VERSION)
        return 0
    if srun.text("mpi").lower() == "list":
        print("MPI plugin types are...\n\tnone\n\tpmi2")
        return 0
    if not srun.command:
        raise CommandLineError("no program to run")
    raise_file_limit()
    loop = Loop()
    hostfile = read_hostfile(os.environ.get("SLURM_HOSTFILE", ""))
    client = find_step_client(loop, srun, hostfile)
    for warning in client.warnings:
        print(f"srun: warning: {warning}", file=sys.stderr)
    client.begin()
    loop.run()
    return client.code


def _rsh(argv: list[str]) -> int:
    """Start a command on one node, as rsh and ssh do: the remote starter of MPI libraries."""
    words = argv[:]
    while words and words[0].startswith("-"):
        # Options of ssh that take a value, in the forms that MPI libraries use.
        words = words[2:] if words[0] in ("-l", "-p", "-o", "-i", "-F") else words[1:]
    if len(words) < 2:
        raise CommandLineError("use: pyxis-rsh HOST COMMAND")
    host = words[0].rpartition("@")[2]
    return _srun(
        ["--overlap", "--nodes=1", "--ntasks=1", "--cpus-per-task=1", f"--nodelist={host}",
         "--quiet", "--", "/bin/sh", "-c", " ".join(words[1:])]
    )  # fmt: skip
