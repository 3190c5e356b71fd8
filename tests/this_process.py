"""What this process holds: its open files and its children, for tests that it keeps none."""

from __future__ import annotations

import gc
import os
from pathlib import Path


def open_files() -> dict[int, str]:
    """Return what this process's descriptors stand for.

    Files that only garbage holds are closed first: they would be some time later.
    """
    gc.collect()
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the descriptor of the listing itself
    return found


def children() -> set[int]:
    """Return the numbers of this process's children, those that nobody has waited for included."""
    texts = (path.read_text() for path in Path("/proc/self/task").glob("*/children"))
    return {int(word) for text in texts for word in text.split()}
