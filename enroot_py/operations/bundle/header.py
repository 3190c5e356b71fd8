"""The first block of a bundle: a shell script that finds a Python and hands the rest to it.

A bundle is one file: this block, the runner's source, a manifest in JSON, and the container's files
as a gzip-compressed tar archive. Pure.
"""

from __future__ import annotations

SIZE = 4096
"""Bytes of the block. The offsets behind it are written into it."""

NO_CHECKSUM = "0" * 64

# Runs before anything else of the file is trusted: it compares the checksum of the whole file, with
# the checksum's own place zeroed, and only then executes the runner. No apostrophes: it stands
# between two of them in the shell script.
_LOADER = """\
import sys
path, expected = sys.argv[1], "{checksum}"
with open(path, "rb") as file:
    if expected.strip("0"):
        import hashlib
        head = file.read({size}).replace(expected.encode(), b"0" * 64)
        digest = hashlib.sha256(head)
        for chunk in iter(lambda: file.read(1 << 20), b""):
            digest.update(chunk)
        if digest.hexdigest() != expected:
            sys.exit("[ERROR] Checksum mismatch: " + path + " was changed or is incomplete")
    file.seek({size})
    source = file.read({runner_size})
    manifest = file.read({manifest_size})
try:
    runner = compile(source, "<bundle>", "exec")
except (SyntaxError, ValueError):
    sys.exit("[ERROR] Damaged bundle: " + path)
scope = dict(__name__="bundle")
exec(runner, scope)
sys.exit(scope["main"](path, manifest, {payload}, sys.argv[2:]))
"""

_SCRIPT = """\
#!/bin/sh
# A container and what starts it, in one file: --help tells how to use it, --info what is in it.
for python in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 python3.8; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2> /dev/null || continue
    exec "$python" -I -S -c '{loader}' "$0" "$@"
done
echo "[ERROR] $0 needs Python 3.8 or newer, and finds none as python3 in PATH" >&2
exit 1
"""


def make_header(*, runner_size: int, manifest_size: int, checksum: str = NO_CHECKSUM) -> bytes:
    """Return the block, of SIZE bytes.

    Args:
        runner_size, manifest_size: bytes of what follows the block.
        checksum: SHA-256 of the whole file, in hexadecimal, as it is with NO_CHECKSUM here.
    """
    loader = _LOADER.format(
        checksum=checksum,
        size=SIZE,
        runner_size=runner_size,
        manifest_size=manifest_size,
        payload=SIZE + runner_size + manifest_size,
    )
    script = _SCRIPT.format(loader=loader).encode("ascii")
    assert len(script) < SIZE, "the header outgrew its block"
    # The shell never gets here: the script has ended before.
    return script + b"#" * (SIZE - len(script) - 1) + b"\n"
