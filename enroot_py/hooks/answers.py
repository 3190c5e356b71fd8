"""The two files by which executed hooks answer: ENROOT_ENVIRON and ENROOT_MOUNTS.

They are written before an executed hook runs, with what built-in hooks asked for so far, and read
afterwards if it changed them. A start without executed hooks never makes them.
"""

from __future__ import annotations

import os
import stat

from enroot_py.errors import EnrootError, HookError
from enroot_py.plan.environ import format_environ, parse_environ
from enroot_py.plan.fstab import Mount, parse_fstab

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NamedTuple

    from enroot_py.hooks.context import Edits, HookContext
else:
    from enroot_py.record import NamedTuple

_LARGEST_ANSWER = 16 << 20
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Answers:
    """What hooks have asked for so far, in memory and, as far as needed, in the two files.

    Attributes:
        environ: the container's environment.
        mounts: mounts to perform once all hooks have run.
    """

    def __init__(self, context: HookContext) -> None:
        self.environ = dict(context.environ)
        self.mounts: tuple[Mount, ...] = ()
        self._current = False  # the files hold all this
        self._environ_file = _AnswerFile(context.environ_file)
        self._mounts_file = _AnswerFile(context.mounts_file)

    def add(self, edits: Edits) -> None:
        """Take over what a built-in hook answered."""
        self.environ.update(edits.environ)
        self.mounts += edits.mounts
        self._current = False

    def write(self) -> None:
        """Bring the files up to date, for a hook that is about to run."""
        if not self._current:
            self._environ_file.write(format_environ(self.environ.items()))
            self._mounts_file.write(format_fstab(self.mounts))
            self._current = True

    def read(self, hook: str) -> None:
        """Take over what the hook `hook` (a path, for messages) wrote.

        Raises:
            HookError: if it left something else than a file of reasonable size, or a bad mount.
        """
        answer = self._environ_file.read(hook)
        if answer is not None:
            if not answer.appended:
                self.environ.clear()
            self.environ.update(parse_environ(answer.text, None))
        answer = self._mounts_file.read(hook)
        if answer is not None:
            mounts = self.mounts if answer.appended else ()
            self.mounts = (*mounts, *_parse_mounts(answer.text, hook))


def _parse_mounts(text: str, hook: str) -> Iterable[Mount]:
    try:
        # Variables are not substituted in what hooks write: they have a shell for that.
        mounts = parse_fstab(text.replace("${", "\\044{"), {}, hook)
    except EnrootError as error:
        raise HookError(str(error), path=hook, hint=error.hint) from error
    # Parity: entries of another pass than the one after the hooks are never mounted.
    return (mount for mount in mounts if mount.passno == 0)


class _Answer(NamedTuple):
    """What a hook wrote.

    Attributes:
        text: the new lines if it appended them, else all of them.
        appended: what was there before is still there.
    """

    text: str
    appended: bool


class _AnswerFile:
    def __init__(self, path: str) -> None:
        self.path = path
        self.text: str | None = None
        self.state: tuple[int, ...] = ()

    def write(self, text: str) -> None:
        if text == self.text:
            return
        with open(os.open(self.path, _WRITE, 0o600), "wb") as file:
            file.write(os.fsencode(text))
            file.flush()
            self.state = _state(os.fstat(file.fileno()))
        self.text = text

    def read(self, hook: str) -> _Answer | None:
        """Return what changed since the file was written or read; None if nothing did."""
        try:
            fd = os.open(self.path, _READ)
        except OSError as error:
            raise HookError(
                f"The hook {hook} left no readable {self.path}: {error.strerror}", path=hook
            ) from error
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_ANSWER:
                raise HookError(
                    f"The hook {hook} left {self.path} as no file, or too large a one", path=hook
                )
            if _state(status) == self.state:
                return None
            with open(fd, "rb", closefd=False) as file:
                text = os.fsdecode(file.read())
        finally:
            os.close(fd)
        old = self.text or ""
        self.text, self.state = text, _state(status)
        if text.startswith(old) and (not old or old.endswith("\n")):
            return _Answer(text[len(old) :], appended=True)
        return _Answer(text, appended=False)


def _state(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def format_fstab(mounts: Iterable[Mount]) -> str:
    """Return fstab text that parses to the same mounts. Source: fstab(5), the escapes."""
    return "".join(map(_format_mount, mounts))


def _format_mount(mount: Mount) -> str:
    options = ",".join(mount.options) or "defaults"
    fields = (mount.source, mount.target, mount.fstype, options)
    return " ".join(map(_escape, fields)) + f" 0 {mount.passno}\n"


def _escape(field: str) -> str:
    if field.isalnum():
        return field
    return "".join(f"\\{ord(letter):03o}" if letter in " \t\n\r\\#" else letter for letter in field)
