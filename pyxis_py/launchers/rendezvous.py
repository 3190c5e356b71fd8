"""Tasks of one step on one node that have nothing above them: the first starts, the last cleans up.

They meet in a folder of the user's runtime folder, JOB.STEP.HASH, in which are

    lock     held (flock) while the container is started and while counts are changed
    alive    held shared by every task as long as it needs the folder; nobody left: a stale folder
    answer   what the keeper answered; its absence beside a `started` count is a start that died
    counts   "started joined ended"
    line     a fifo to the keeper: a byte for every task that has joined

With the plugin all this is shared memory in slurmstepd.
"""

from __future__ import annotations

import fcntl
import os
import time

from enroot_py import EnrootError, StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NamedTuple, TypeVar

    Result = TypeVar("Result")
else:
    from enroot_py import NamedTuple

_STALE_AFTER = 60.0  # seconds
_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_FILES = ("answer", "counts", "line", "alive", "lock")


class Counts(NamedTuple):
    """How many tasks have come, have got through, and have ended."""

    started: int = 0
    joined: int = 0
    ended: int = 0


class Rendezvous:
    """The folder in which the tasks of one step on this node meet.

    Attributes:
        path: absolute path of the folder.
        tasks: how many tasks will come.
    """

    def __init__(self, base: str, name: str, *, tasks: int) -> None:
        """Enter the folder, making it first if need be.

        Args:
            base: the user's runtime folder.
            name: of the step, e.g. "12.0.5f3a9c01".
            tasks: how many tasks the step has on this node.
        """
        self.path = os.path.join(base, name)
        self.tasks = tasks
        while True:
            try:
                os.mkdir(self.path, 0o700)
            except FileExistsError:
                pass
            try:
                self._alive_fd = os.open(f"{self.path}/alive", _OPEN, 0o600)
                self._lock_fd = os.open(f"{self.path}/lock", _OPEN, 0o600)
            except FileNotFoundError:
                continue  # somebody has just removed a stale one
            fcntl.flock(self._alive_fd, fcntl.LOCK_SH)
            if os.path.exists(f"{self.path}/alive"):
                return

    def come(self, start: Callable[[str], bytes]) -> bytes:
        """Take part: the first task calls `start`, the others wait for it.

        Args:
            start: starts the container; gets the path of the line, returns the keeper's answer.

        Returns:
            The answer, the same for all.

        Raises:
            EnrootError: if the first task was killed while it was at it.
            StoreError: if the folder's file system is full.
        """
        fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
        try:
            counts = self._read_counts()
            self._write_counts(counts._replace(started=counts.started + 1))
            if counts.started == 0:
                self._write_answer(start(self._make_line()))
            return self._read_answer()
        except StoreError:
            self.remove()
            raise
        finally:
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)

    @property
    def is_first(self) -> bool:
        """Whether no task has come before."""
        return self._read_counts().started == 0

    def report_joined(self, *, stay: bool) -> None:
        """Tell the keeper that this task is through (or has given up).

        Args:
            stay: tasks will say when they end; else the folder goes with the last one that joins.
        """
        last, missing = self._locked(lambda: self._join(stay=stay))
        try:
            line_fd = os.open(f"{self.path}/line", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.write(line_fd, b"\0" * (1 + missing))
            os.close(line_fd)
        except OSError:
            pass  # the keeper is gone: there is nobody to tell
        if last:
            self.remove()

    def _join(self, *, stay: bool) -> tuple[bool, int]:
        """Return whether this task is the last, and how many were killed before they joined."""
        counts = self._add_one("joined")
        if not stay and self._leave(counts):
            return True, max(self.tasks - counts.joined, 0)
        return not stay and counts.joined >= self.tasks, 0

    def end(self) -> bool:
        """Say that this task has ended; True for the last one, which then has to clean up.

        Tasks whose process was killed never say so: whoever is left alone is the last.
        """
        return self._locked(self._end)

    def _end(self) -> bool:
        counts = self._add_one("ended")
        return self._leave(counts) or counts.ended >= self.tasks

    def give_up(self) -> None:
        """Leave without having joined; the last task that does so removes the folder."""
        if self._locked(lambda: self._leave(self._read_counts())):
            self.remove()

    def abandon(self) -> bool:
        """Leave a step that is being ended, without a word to the others; the last one removes it.

        Tasks that have not come yet are being ended as well, and the lock may be held for long.

        Returns:
            Whether this was the last one: what there is of a container is its to remove as well.
        """
        fcntl.flock(self._alive_fd, fcntl.LOCK_UN)  # first: of two at once one has to be the last
        try:
            fcntl.flock(self._alive_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self.remove()
        return True

    def _leave(self, counts: Counts) -> bool:
        """Count as living no more; True if all tasks have come, and none of the others is alive."""
        if counts.started >= self.tasks:
            try:
                fcntl.flock(self._alive_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                pass
        fcntl.flock(self._alive_fd, fcntl.LOCK_UN)
        return False

    def counts(self) -> Counts:
        """Return how far the step is."""
        return self._read_counts()

    def remove(self) -> None:
        """Remove the folder."""
        remove_folder(self.path)

    def _locked(self, action: Callable[[], Result]) -> Result:
        fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
        try:
            return action()
        finally:
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)

    def _add_one(self, what: str) -> Counts:
        counts = self._read_counts()
        counts = counts._replace(**{what: getattr(counts, what) + 1})
        self._write_counts(counts)
        return counts

    def _make_line(self) -> str:
        path = f"{self.path}/line"
        os.mkfifo(path, 0o600)
        return path

    def _read_counts(self) -> Counts:
        try:
            with open(f"{self.path}/counts", encoding="ascii") as file:
                return Counts(*map(int, file.read().split()))
        except FileNotFoundError:
            return Counts()

    def _write_counts(self, counts: Counts) -> None:
        _write(f"{self.path}/counts", " ".join(map(str, counts)).encode("ascii"))

    def _write_answer(self, data: bytes) -> None:
        temporary = f"{self.path}/answer.new"
        _write(temporary, data)
        os.rename(temporary, f"{self.path}/answer")

    def _read_answer(self) -> bytes:
        try:
            with open(f"{self.path}/answer", "rb") as file:
                return file.read()
        except FileNotFoundError:
            raise EnrootError(
                "A task of this step ended unexpectedly while it started the container"
            ) from None


def _write(path: str, data: bytes) -> None:
    try:
        with open(path, "wb") as file:
            file.write(data)
    except OSError as error:
        raise StoreError(
            f"Cannot write {path}: {error.strerror}",
            hint="free some space there, or set XDG_RUNTIME_DIR to a folder elsewhere",
        ) from error


def remove_folder(path: str) -> None:
    """Remove a meeting place and the files in it; it may be gone already."""
    for name in (*_FILES, "answer.new", "script"):
        try:
            os.unlink(os.path.join(path, name))
        except FileNotFoundError:
            pass
    try:
        os.rmdir(path)
    except OSError:
        pass  # gone, or somebody has just come in


def remove_stale(base: str, job: str) -> None:
    """Remove the folders of other jobs that no task is in any more: those of killed steps."""
    for name in os.listdir(base):
        path = os.path.join(base, name)
        parts = name.split(".")
        if len(parts) != 3 or not parts[0].isdecimal() or parts[0] == job:
            continue
        try:
            fd = os.open(f"{path}/alive", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if time.time() - os.fstat(fd).st_mtime > _STALE_AFTER:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_folder(path)
        except BlockingIOError:
            pass
        finally:
            os.close(fd)
