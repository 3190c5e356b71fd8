"""The plugin's C without Slurm: a program that plays Slurm's part, and keepers that go wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "spank_shim"
PACKAGES = SOURCES.parent
PATIENCE = 40
"""Seconds that a keeper has: more than any needs, however busy the machine is."""
WARNINGS = ("-std=c11", "-D_GNU_SOURCE", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror")


@dataclass(frozen=True)
class Played:
    """How a play ended."""

    status: int
    out: str
    err: str


class Harness:
    """The compiled program."""

    def __init__(
        self,
        folder: Path,
        *flags: str,
        wrapper: tuple[str, ...] = (),
        packages: Path = PACKAGES,
    ) -> None:
        """Compile it.

        Args:
            folder: where it is written, beside keepers and the runtime folder.
            flags: further words for the compiler.
            wrapper: a command that runs it.
            packages: the folder that the real keeper's packages are in.
        """
        self.folder = folder
        self.packages = packages
        self._flags = flags
        self._wrapper = wrapper
        self._compile(PATIENCE)

    def _compile(self, patience: int) -> Path:
        """Compile a program that gives keepers so many seconds, if there is none yet."""
        program = self.folder / f"play-{patience}"
        if program.exists():
            return program
        sources = [str(path) for path in (*SOURCES.glob("*.c"), SOURCES / "tests/play.c")]
        limits = [f"-D{name}_SECONDS={patience}" for name in ("SUBMIT", "FINISH", "EPILOG")]
        command = [
            "gcc", *WARNINGS, *self._flags, *limits, f'-DPYXIS_PACKAGES="{self.packages}"',
            "-o", str(program), *sources, "-pthread",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return program

    def keeper(self, body: str) -> str:
        """Write a keeper in Python: `say` writes the answer, `ready` tells that it is there."""
        path = self.folder / "keeper"
        path.write_text(
            f"#!{sys.executable} -IS\n"
            "import os, signal, sys, time\n"
            "verb = sys.argv[-1]\n"
            "request = os.read(3, 1 << 24).split(b'\\0')\n"
            "def say(*records):\n"
            "    os.write(4, b''.join(r.encode() + b'\\0' for r in records))\n"
            "def ready():\n"
            "    os.write(5, b'\\0')\n"
            f"{body}\n"
        )
        path.chmod(0o755)
        return f"python={path}"

    def play(
        self, context: str, *words: str, tasks: int = 1, patience: int = PATIENCE, **environ: str
    ) -> Played:
        """Play a context with flags (`--0=image`) and words of plugstack.conf.

        Args:
            context: what play.c calls it.
            words: the flags and words.
            tasks: how many the step has.
            patience: seconds that a keeper has.
            environ: further variables.
        """
        program = self._compile(patience)
        done = subprocess.run(
            [*self._wrapper, str(program), context, str(tasks), *words,
             f"runtime_path={self.folder}/run"],
            env={"PATH": os.environ["PATH"], "PWD": "/tmp", **environ},
            capture_output=True, text=True, errors="replace", timeout=120, check=False, cwd="/tmp",
        )  # fmt: skip
        return Played(done.returncode, done.stdout, done.stderr)
