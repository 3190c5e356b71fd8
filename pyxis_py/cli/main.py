"""The `pyxis` command: short, so that an interrupt while the rest is read shows no traceback."""

from __future__ import annotations

import sys

from pyxis_py.launchers.interpreter import forget_interpreter, restore_interrupt


def main() -> int:
    """Run one command line and return its exit status."""
    forget_interpreter()
    from pyxis_py.cli.application import run

    restore_interrupt()
    return run()


if __name__ == "__main__":
    sys.exit(main())
