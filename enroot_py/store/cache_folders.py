"""The folders below ENROOT_CACHE_PATH: which there are, and whether they can be trusted.

A cache is private (what this package makes by itself) or shared: a folder that an administrator
made writable for a group or, sticky, for everybody. In a shared cache one OCI layout holds what was
pulled without credentials, for all; everything else of a user is below `user.UID/`
(docs/adr/0016-cache.md). Files of NVIDIA's Enroot lie directly in ENROOT_CACHE_PATH
(`recompressed`).
"""

from __future__ import annotations

import os
import stat

from enroot_py.errors import StoreError
from enroot_py.store.file_system import explaining

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple

SETTING = "ENROOT_CACHE_PATH"
_STAGE = "preparing the cache"


class CacheFolders(NamedTuple):
    """The folders of one user's cache. Paths are absolute and exist.

    Attributes:
        path: ENROOT_CACHE_PATH with links resolved.
        is_shared: other users can write to `path`.
        private: what no other user can write to or read; `path` itself if it is not shared.
        layouts: OCI layouts that may hold blobs, the shared one first.
    """

    path: str
    is_shared: bool
    private: str
    layouts: tuple[str, ...]

    @property
    def partial(self) -> str:
        """Blobs on their way, each locked by whoever downloads it."""
        return os.path.join(self.private, "partial")

    @property
    def images(self) -> str:
        """Finished images."""
        return os.path.join(self.private, "images")

    @property
    def extracted(self) -> str:
        """Extractions of images that are started where squashfuse is missing."""
        return os.path.join(self.private, "extracted")

    def layout(self, *, private: bool) -> str:
        """Return the OCI layout that new blobs go to."""
        return self.layouts[-1] if private else self.layouts[0]


def find_cache(cache_path: str) -> CacheFolders:
    """Return where everything in a cache is, or would be; makes nothing, checks nothing."""
    path = os.path.realpath(cache_path)
    shared = os.path.isdir(path) and bool(os.stat(path).st_mode & 0o022)
    private = os.path.join(path, f"user.{os.geteuid()}") if shared else path
    layouts = dict.fromkeys(os.path.join(folder, "oci") for folder in (path, private))
    return CacheFolders(path, shared, private, tuple(layouts))


def open_cache(cache_path: str) -> CacheFolders:
    """Make the folders of a cache as far as they are missing, and check them.

    Raises:
        StoreError: if a folder belongs to another ordinary user, can be written to by everybody
            without being sticky, is not a folder, or cannot be made.
        SpaceError: if there is no room.
    """
    with explaining(cache_path, stage=_STAGE, setting=SETTING):
        make_private_folder(cache_path, SETTING)
        folders = find_cache(cache_path)
        if folders.is_shared:
            _make_folder(folders.private, 0o700)
            check_private(folders.private)
        for layout in folders.layouts:
            mode = 0o700 if layout.startswith(folders.private + "/") else _inherited(folders.path)
            for folder in (layout, layout + "/blobs", layout + "/blobs/sha256"):
                _make_folder(folder, mode)
        for folder in (folders.partial, folders.images, folders.extracted):
            _make_folder(folder, 0o700)
            check_private(folder)
    return folders


def make_private_folder(path: str, setting: str) -> None:
    """Make a folder of ENROOT_* with its parents, for this user alone; check it if it is there.

    Raises:
        StoreError: as `open_cache`; names `setting`.
    """
    with explaining(path, stage="making the folder", setting=setting):
        _make_parents(path)
    status = os.stat(path)
    if status.st_uid not in (0, os.geteuid()):
        raise StoreError(
            f"{path} belongs to another user (uid {status.st_uid})",
            hint=f"set {setting} to a folder of your own",
        )
    if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
        raise StoreError(
            f"{path} can be written to by everybody, who could exchange what is in it",
            hint=f"chmod o-w {path}, or set {setting} to a folder below it",
        )


def _make_parents(path: str) -> None:
    missing = []
    while not os.path.isdir(path):
        # Another process may have made it since.
        if os.path.lexists(path) and not os.path.isdir(path):
            raise StoreError(f"{path} is not a folder")
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        _make_folder(folder, 0o700)


def _make_folder(path: str, mode: int) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise StoreError(f"{path} is not a folder") from None
        return
    if mode != 0o700:
        os.chmod(path, mode)  # beyond the umask: the shared folder says who may write


def _inherited(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def check_private(path: str) -> None:
    """Check that nobody else could have put something into a folder.

    Raises:
        StoreError: if it belongs to another user, or others can write to it.
    """
    status = os.lstat(path)
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise StoreError(
            f"{path} is not yours alone", hint=f"remove it, or set {SETTING} to another folder"
        )


def is_trusted_folder(path: str) -> bool:
    """Say whether the names in a folder are as this user (or root) left them."""
    status = os.stat(path)
    if status.st_uid not in (0, os.geteuid()):
        return False
    return not status.st_mode & 0o022 or bool(status.st_mode & stat.S_ISVTX)
