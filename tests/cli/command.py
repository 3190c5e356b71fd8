"""Run the real console script in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ENROOT = Path(sys.executable).with_name("enroot")
"""The script that the installer put beside the interpreter."""


class Command:
    """`enroot` with a home, a configuration and a data folder below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environ = {
            "HOME": str(root / "home"),
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "ENROOT_SYSCONF_PATH": str(root / "etc"),
            "ENROOT_CONFIG_PATH": str(root / "config"),
            "ENROOT_CACHE_PATH": str(root / "cache"),
            "ENROOT_DATA_PATH": str(root / "data"),
            "ENROOT_RUNTIME_PATH": str(root / "run"),
            "ENROOT_TEMP_PATH": str(root / "tmp"),
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    @property
    def data(self) -> Path:
        """The folder of containers; nothing makes it but who uses it."""
        return self.root / "data"

    def run(
        self, *words: str, answer: str = "", environ: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run one command line and return its status and streams as text."""
        return subprocess.run(
            [str(ENROOT), *words],
            env={**self.environ, **(environ or {})},
            cwd=self.root,
            input=answer,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=60,
            check=False,
        )

    def start(self, words: Sequence[str], **options: int) -> subprocess.Popen[str]:
        """Start one command line and return its process, which the caller ends."""
        return subprocess.Popen(
            [str(ENROOT), *words], env=self.environ, cwd=self.root, text=True, **options
        )  # type: ignore[call-overload, no-any-return]

    def tree(self) -> list[str]:
        """Every path below the root, to see what a command left behind."""
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*"))
