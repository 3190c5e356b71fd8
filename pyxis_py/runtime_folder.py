"""Where a user's steps keep what they need on a node: one folder a user, his alone.

The site's runtime_path, where the plugin has made it; else what the system or the user has. And the
folder that a launcher is in.
"""

from __future__ import annotations

import os
import stat

from enroot_py import StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyxis_py.job import JobFacts


def make_base(path: str) -> None:
    """Make the site's runtime folder, as root; its parent exists.

    Source: pyxis 0.24 pyxis_slurmd.c, pyxis_slurmd_init().
    """
    try:
        os.mkdir(path, 0o755)
        os.chmod(path, 0o755)
    except FileExistsError:
        pass


def make_user_folder(base: str, uid: int, gid: int) -> None:
    """Make a user's folder in the site's runtime folder, as root.

    Source: pyxis 0.24 pyxis_slurmstepd.c, enroot_create_user_runtime_dir().
    """
    path = os.path.join(base, str(uid))
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    os.chown(path, uid, gid, follow_symlinks=False)


def find_folder(base: str, environ: Mapping[str, str]) -> str:
    """Return this user's folder, making one where the site has not.

    Args:
        base: the site's runtime_path.
        environ: XDG_RUNTIME_DIR.

    Raises:
        StoreError: if somebody else has put something in its place.
    """
    uid = os.geteuid()
    site = os.path.join(base, str(uid))
    if _is_own(site):
        return site
    system = environ.get("XDG_RUNTIME_DIR", "")
    if system.startswith("/") and _is_own(system):
        path = os.path.join(system, "pyxis")
    else:
        path = f"/tmp/pyxis-{uid}"
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise StoreError(f"Cannot make the runtime folder {path}: {error.strerror}") from error
    if not _is_own(path):
        raise StoreError(
            f"The runtime folder {path} belongs to somebody else, or others can write to it",
            hint="remove it, or set XDG_RUNTIME_DIR to a folder of your own",
        )
    return path


def scratch_folder(folder: str, job: JobFacts) -> str:
    """Return where a step imports to if the site wants no cache.

    Args:
        folder: what `find_folder` returned.
        job: the step.
    """
    return f"{folder}/{job.job}.{job.step}.cache"


def folders_without_site(uid: int) -> list[str]:
    """Return what `find_folder` may have chosen for this user where the site has made nothing.

    Args:
        uid: the user, who is this process's.
    """
    # XDG_RUNTIME_DIR is the first one's parent. Source: pam_systemd(8).
    return [path for path in (f"/run/user/{uid}/pyxis", f"/tmp/pyxis-{uid}") if _is_own(path)]


def _is_own(path: str) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    own = status.st_uid == os.geteuid() and not status.st_mode & 0o022
    return stat.S_ISDIR(status.st_mode) and own


def runtime_path(words: Sequence[str]) -> str:
    """Return the site's runtime folder, from settings as in plugstack.conf."""
    for word in words:
        if word.startswith("runtime_path="):
            return word.partition("=")[2]
    return "/run/pyxis"


def working_folder() -> str:
    """Return this process's working directory as JobFacts has it: "" for one that was removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""
