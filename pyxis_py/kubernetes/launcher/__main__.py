"""`python3 launcher.pyz node`."""

from __future__ import annotations

import sys

from pyxis_py.kubernetes.launcher.node.node import main

if __name__ == "__main__":
    sys.exit(main(sys.argv))
