"""The `pyxis` command before it does anything."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from pyxis_py.job import PYXIS_VERSION

INTERRUPTED = """
import os, signal, sys, types

class Application(types.ModuleType):
    def __getattr__(self, name):
        os.kill(os.getpid(), signal.SIGINT)

sys.modules["pyxis_py.cli.application"] = Application("application")
from pyxis_py.cli.main import main
sys.exit(main())
"""


def call(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_the_version_is_the_one_it_equals(option: str) -> None:
    done = call("-m", "pyxis_py.cli.main", option)
    assert (done.returncode, done.stdout) == (0, f"{PYXIS_VERSION}\n"), done.stderr


def test_an_interrupt_while_modules_are_read_shows_no_traceback() -> None:
    done = call("-c", INTERRUPTED)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_the_importers_words_are_explained() -> None:
    done = call("-m", "pyxis_py.cli.main", "importer", "--help")
    assert "pyxis importer [OPTIONS] get URI | release" in done.stdout
