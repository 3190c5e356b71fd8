"""The cluster as one whose administrator has installed the plugin: the wrappers are not needed."""

from __future__ import annotations

import subprocess
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from pyxis_py.plugin.build import LIBRARY
from tests.slurm.rig import Rig

_NAMES = {"pyxis-srun": "srun", "pyxis-sbatch": "sbatch"}


def plugin_line(rig: Rig, *words: str) -> str:
    """The plugin's line for plugstack.conf."""
    runtime = f"runtime_path={rig.base}/local/pyxis"
    return " ".join(("required", f"{rig.base}/{LIBRARY}", runtime, *words, "\n"))


class PluginRig:
    """A Rig that runs Slurm's own commands where a test names our wrappers.

    Settings that a test gives the wrappers in a variable go where the plugin's are.
    """

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rig, name)

    def run(
        self, *words: str, PYXIS_PLUGIN_OPTIONS: str = "", **more: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as the user."""
        line = plugin_line(self._rig, *PYXIS_PLUGIN_OPTIONS.split())
        with self._rig.plugstack(line) if PYXIS_PLUGIN_OPTIONS else nullcontext():
            return self._rig.run(*map(_translate, words), **more)

    def popen(self, *words: str, **environ: str) -> subprocess.Popen[str]:
        """Start a command as the user."""
        return self._rig.popen(*map(_translate, words), **environ)

    def library(self) -> Path:
        """The plugin."""
        return self._rig.base / LIBRARY


def _translate(word: str) -> str:
    for wrapper, command in _NAMES.items():
        word = word.replace(wrapper, command)
    return word
