"""Names of signals, as Slurm's options take them.

Pure. Source: scancel(1), sbatch(1), --signal.
"""

from __future__ import annotations

import signal

from pyxis_py.kubernetes.launcher.job.command_line import CommandLineError


def signal_number(name: str) -> int:
    """Return the number of `USR1`, `SIGUSR1` or `10`.

    Raises:
        CommandLineError: if there is no such signal.
    """
    if name.isdecimal() and name.isascii() and 0 < int(name) < 65:
        return int(name)
    word = name.upper()
    if word.startswith("SIG"):
        word = word[3:]
    number = getattr(signal, f"SIG{word}", None)
    if not word.isalnum() or not isinstance(number, signal.Signals):
        raise CommandLineError(f"not a signal: {name!r}")
    return int(number)
