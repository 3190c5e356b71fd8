"""Images from other programs: the external importer's protocol, both sides of it.

    IMPORTER get URI       prints the absolute path of a squashfs file, which stays valid …
    IMPORTER release       … until this; may be called more than once

The environment says which step it is for (SLURM_JOB_UID, SLURM_JOB_ID, SLURM_STEP_ID,
PYXIS_RUNTIME_PATH, PYXIS_VERSION). `pyxis importer` is an importer itself, for NVIDIA's plugin.

Source: pyxis 0.24 importer.c, importers/README.md.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

from enroot_py import CommandError, UsageError, load_settings

_LOG_LINES = 30


def get_image(program: str, uri: str, environ: Mapping[str, str]) -> str:
    """Have an external importer fetch an image; return the squashfs file's absolute path.

    Raises:
        CommandError: with the importer's last words, if it fails or prints no path.
    """
    done = _run(program, ("get", uri), environ)
    path = os.fsdecode(done.stdout.partition(b"\n")[0])
    if not path.startswith("/"):
        raise CommandError(
            f"The importer {program} printed no path of an image: {path!r}", hint=_last_lines(done)
        )
    return path


def release_image(program: str, environ: Mapping[str, str]) -> None:
    """Tell an external importer that a step's image is not needed any more.

    Raises:
        CommandError: if it fails.
    """
    _run(program, ("release",), environ)


def _run(
    program: str, words: tuple[str, ...], environ: Mapping[str, str]
) -> subprocess.CompletedProcess[bytes]:
    try:
        done = subprocess.run(
            [program, *words],
            env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, check=False,
        )  # fmt: skip
    except OSError as error:
        raise CommandError(f"Cannot run the importer {program}: {error.strerror}") from error
    if done.returncode:
        how = f"failed with status {done.returncode}"
        if done.returncode < 0:
            how = f"was ended by signal {-done.returncode}"
        raise CommandError(
            f"The importer {how}: {program} {' '.join(words)}",
            hint=_last_lines(done),
        )
    return done


def _last_lines(done: subprocess.CompletedProcess[bytes]) -> str:
    return "\n".join(done.stderr.decode("utf-8", "replace").splitlines()[-_LOG_LINES:])


def serve(words: list[str], environ: Mapping[str, str]) -> int:
    """Be an importer: print the path of a finished image in the cache.

    The path stays valid as long as the cache keeps the image: nothing has to be released.

    Args:
        words: "get" and a URI, or "release".
        environ: the settings come from it.

    Raises:
        UsageError: for any other words.
        EnrootError: if the image cannot be imported.
    """
    if words == ["release"]:
        return 0
    if len(words) != 2 or words[0] != "get":
        raise UsageError("importer: expected `get URI` or `release`")
    from enroot_py import cached_image

    with cached_image(words[1], settings=load_settings(environ)) as path:
        print(path, flush=True)
    return 0
