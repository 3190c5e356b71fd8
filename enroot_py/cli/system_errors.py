"""Say in words what the operating system refused, where no operation said it better.

Operations turn the system errors they expect into errors of their own. What is left is a full disk,
a limit or a permission met somewhere unusual; it still ends in one line that names the file.
"""

from __future__ import annotations

import errno
import os

from enroot_py.errors import EnrootError, SpaceError, StoreError, UnsupportedError

_HINTS = {
    errno.ENOSPC: "`enroot doctor` shows the free space behind every ENROOT_*_PATH",
    errno.EDQUOT: "`quota` shows what is used; ENROOT_*_PATH settings move it elsewhere",
    errno.EACCES: "`enroot doctor` checks the permissions of every ENROOT_*_PATH",
    errno.EPERM: "`enroot doctor` checks what this machine forbids",
    errno.EROFS: "an ENROOT_*_PATH setting can name a folder elsewhere",
    errno.EMFILE: "raise the limit on open files: ulimit -n",
    errno.ENFILE: "the whole machine is out of open files",
    errno.ENOMEM: "a memory limit of the session or the job may be too small",
    errno.EAGAIN: "a limit on processes (ulimit -u) or on a cgroup may be too small",
    errno.ESTALE: "the file server forgot the file; try again",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EFBIG: "a limit on the size of files: ulimit -f, or the file system's own",
}


def system_error(error: Exception) -> OSError | None:
    """Return what the system refused, where Python says it by an error of its own; None if nothing.

    Python has no error of its own for a thread that cannot be started, only words.
    """
    if isinstance(error, OSError):
        return error
    if isinstance(error, MemoryError):
        return OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return OSError(errno.EAGAIN, "Cannot start a thread")
    return None


def explain(error: OSError) -> EnrootError:
    """Return the error to show for a system error that nothing has caught."""
    code = error.errno or 0
    reason = error.strerror or (os.strerror(code) if code else str(error))
    names = [_text(name) for name in (error.filename, error.filename2) if name is not None]
    if code == errno.ENOENT and not names and not _has_folder():
        return UnsupportedError("The current folder was removed", hint="cd to another one")
    message = ": ".join([reason, " -> ".join(names)] if names else [reason])
    kind: type[EnrootError] = StoreError if names else UnsupportedError
    if code in (errno.ENOSPC, errno.EDQUOT):
        kind = SpaceError
    return kind(message, hint=_HINTS.get(code, ""))


def _has_folder() -> bool:
    try:
        return bool(os.getcwd())
    except OSError:
        return False


def _text(name: object) -> str:
    return os.fsdecode(name) if isinstance(name, (str, bytes)) else f"descriptor {name}"
