"""The launcher as one file: `launcher.pyz`, the same bytes for the same modules.

Not part of the file itself.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

LARGEST_SIZE = 700_000
"""Bytes: with a script it has to fit into a ConfigMap of 1 MiB, in base64."""

_PACKAGE = "pyxis_py/kubernetes/launcher"
_DATE = (1980, 1, 1, 0, 0, 0)
_MAIN = b"""import sys

if sys.version_info < (3, 8):
    sys.exit("pyxis: the image has Python %d.%d; the launcher needs 3.8" % sys.version_info[:2])
from pyxis_py.kubernetes.launcher.node.node import main

sys.exit(main(sys.argv))
"""


def build_launcher() -> bytes:
    """Return the zipapp that pods run with `python3 launcher.pyz node`."""
    files = {
        "__main__.py": _MAIN,
        "pyxis_py/__init__.py": b"",
        "pyxis_py/kubernetes/__init__.py": b"",
    }
    folder = Path(__file__).parent
    for path in sorted(folder.rglob("*.py")):
        if path not in (folder / "__main__.py", Path(__file__)):
            files[f"{_PACKAGE}/{path.relative_to(folder)}"] = path.read_bytes()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, _DATE)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o100644 << 16
            archive.writestr(info, files[name], compresslevel=9)
    return buffer.getvalue()
