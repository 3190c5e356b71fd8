"""Images for the tests of steps: small, with known contents."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

_PROGRAMS = (
    "sh", "cat", "id", "ls", "env", "grep", "readlink", "echo", "true", "false", "sleep", "touch",
    "stat", "mount", "tee", "pwd", "hostname", "dd", "wc", "head", "kill", "sort", "uname", "seq",
    "test", "printf", "cut", "tr", "basename", "dirname", "mkdir", "rm", "ps", "ip", "ipcs", "sync",
    "which", "timeout",
)  # fmt: skip
_ENVIRONMENT = "PATH=/usr/local/bin:/usr/bin:/bin\nIN_IMAGE=yes\nWHOSE=image\nLANG=C\n"
_RC = """\
mkdir -p "/srv" 2> /dev/null
cd "/srv" && unset OLDPWD || exit 1

if [ -s /etc/rc.local ]; then
    . /etc/rc.local
fi

if [ $# -gt 0 ]; then
    exec "/entry" "$@"
else
    exec "/entry" "sh"
fi
"""
_ENTRY = '#!/bin/sh\necho "entrypoint speaks"\nexport FROM_ENTRYPOINT=1\ncd /opt\nexec "$@"\n'


def make_image(path: Path, *, mark: str = "image", more: Mapping[str, bytes] | None = None) -> Path:
    """Make a squashfs image with busybox, an entrypoint, `mark` in /etc/mark, and more files."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        root = Path(folder) / "root"
        for name in ("bin", "etc", "tmp", "proc", "dev", "sys", "root", "srv", "opt", "mnt", "run"):
            (root / name).mkdir(parents=True)
        root.chmod(0o755)
        shutil.copy("/bin/busybox", root / "bin/busybox")
        for name in _PROGRAMS:
            (root / "bin" / name).symlink_to("busybox")
        (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        (root / "etc/group").write_text("root:x:0:\n")
        (root / "etc/mark").write_text(f"{mark}\n")
        (root / "etc/environment").write_text(_ENVIRONMENT)
        (root / "etc/rc").write_text(_RC)
        (root / "etc/rc.local").write_text("")
        (root / "entry").write_text(_ENTRY)
        (root / "entry").chmod(0o755)
        for name, data in (more or {}).items():
            (root / name).write_bytes(data)
        command = ["mksquashfs", str(root), str(path), "-all-root", "-quiet", "-no-progress"]
        subprocess.run([*command, "-noappend"], check=True, stdout=subprocess.DEVNULL)
    path.chmod(0o644)
    return path
