"""SLURM_HOSTFILE: hosts of tasks, one for each, for `--distribution=arbitrary`."""

from __future__ import annotations

from pyxis_py.kubernetes.launcher.job.command_line import CommandLineError
from pyxis_py.kubernetes.launcher.job.hostlist import HostListError, expand_hosts


def read_hostfile(path: str) -> tuple[str, ...]:
    """Return the hosts of a file; none without one.

    Raises:
        CommandLineError: if it cannot be read or is malformed.
    """
    if not path:
        return ()
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.partition("#")[0].strip() for line in file]
        return tuple(host for line in lines for host in expand_hosts(line))
    except (OSError, UnicodeDecodeError, HostListError) as error:
        raise CommandLineError(f"SLURM_HOSTFILE: {error}") from error
