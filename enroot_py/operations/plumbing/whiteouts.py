"""Turn a layer's whiteout files into those of overlayfs: the `enroot-aufs2ovlfs` command.

Docker's and OCI's layers mark what they delete by files named `.wh.NAME`, as aufs did; overlayfs
wants a character device 0:0 of that name, and an attribute on opaque directories. The tree may be
hostile: it is walked by descriptors, links are not followed, other file systems are not entered.

Source: enroot 4.1.2 bin/enroot-aufs2ovlfs.c; OCI image spec, layer.md, whiteouts; kernel
Documentation/filesystems/overlayfs.rst.
"""

from __future__ import annotations

import errno
import os
import stat

from enroot_py.errors import LayerError, NotFoundError, StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = ".wh."
_OPAQUE = ".wh..wh..opq"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def convert_whiteouts(path: str, *, user_xattrs: bool = False) -> None:
    """Convert every whiteout below `path`, in place.

    Args:
        path: an extracted layer.
        user_xattrs: set the attribute that overlays of user namespaces read, too. Where the
            other, trusted one is not permitted, this one alone is set in any case.

    Raises:
        NotFoundError: if there is no such folder.
        LayerError: naming a whiteout that is none.
        StoreError: naming what cannot be changed.
    """
    try:
        root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise NotFoundError(f"Cannot open the folder {path}: {error.strerror}") from error
    try:
        for folder, names, shown in _walk(root, path):
            for name in names:
                _convert(folder, name, f"{shown}/{name}", user_xattrs=user_xattrs)
    except OSError as error:
        raise StoreError(
            f"Cannot convert the whiteouts in {path}: {error.strerror}",
            hint="devices and trusted attributes need root, or a kernel from 5.8 on",
        ) from error


def _walk(root: int, path: str) -> Iterator[tuple[int, list[str], str]]:
    """Yield (descriptor, names of whiteouts, path) of each directory, the deepest first.

    Takes ownership of `root`. Descriptors are valid until the next step.
    """
    device = os.fstat(root).st_dev
    stack = [(root, path, *_entries(root, device))]
    try:
        while stack:
            folder, shown, whiteouts, folders = stack[-1]
            if folders:
                name = folders.pop()
                fd = os.open(name, _DIRECTORY, dir_fd=folder)
                stack.append((fd, f"{shown}/{name}", *_entries(fd, device)))
                continue
            yield folder, whiteouts, shown
            os.close(stack.pop()[0])
    finally:
        for entry in stack:
            os.close(entry[0])


def _entries(folder: int, device: int) -> tuple[list[str], list[str]]:
    """Return the names of whiteouts and of folders to enter."""
    whiteouts, folders = [], []
    for name in os.listdir(folder):
        if name.startswith(_PREFIX):
            whiteouts.append(name)
        status = os.lstat(name, dir_fd=folder)
        if stat.S_ISDIR(status.st_mode) and status.st_dev == device:
            folders.append(name)
    return whiteouts, folders


def _convert(folder: int, name: str, shown: str, *, user_xattrs: bool) -> None:
    if name == _OPAQUE:
        _remove(folder, name)
        _set_opaque(folder, user_xattrs=user_xattrs)
        return
    hidden = name[len(_PREFIX) :]
    if hidden in ("", ".", "..") or hidden.startswith(_PREFIX):
        raise LayerError(f"Unsupported whiteout: {shown}")
    _remove(folder, name)
    try:
        os.mknod(hidden, stat.S_IFCHR | 0o600, os.makedev(0, 0), dir_fd=folder)
    except FileExistsError:
        # The layer has a file of that name, too: it hides the lower one by itself, and a
        # directory does when it is opaque.
        if stat.S_ISDIR(os.lstat(hidden, dir_fd=folder).st_mode):
            fd = os.open(hidden, _DIRECTORY, dir_fd=folder)
            try:
                _set_opaque(fd, user_xattrs=user_xattrs)
            finally:
                os.close(fd)


def _remove(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except IsADirectoryError:
        os.rmdir(name, dir_fd=folder)


def _set_opaque(folder: int, *, user_xattrs: bool) -> None:
    try:
        os.setxattr(folder, "trusted.overlay.opaque", b"y")
    except OSError as error:
        if error.errno != errno.EPERM:
            raise
        user_xattrs = True
    if user_xattrs:
        os.setxattr(folder, "user.overlay.opaque", b"y")
