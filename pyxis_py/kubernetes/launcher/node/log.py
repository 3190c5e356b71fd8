"""What a pod says in its log, between the lines of the script."""

from __future__ import annotations

import sys


def log(text: str) -> None:
    """Say something in the pod's log."""
    print(f"pyxis: {text}", file=sys.stderr, flush=True)
