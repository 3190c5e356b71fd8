"""A copy of a file that is made while the file is still being written.

Two files of gigabytes are otherwise written one after the other, and nothing else happens during
the second (docs/adr/0017-overlapped-import.md).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import BinaryIO

from enroot_py.store.images import copy_file, copy_range, share_blocks

HEAD = 4096
"""So many bytes at the start of a file may be written again at its end."""

_STEP = 16 << 20
_PAUSE = 0.05


class GrowingCopy:
    """Makes `target` the same as `source`, which somebody is still writing.

    Use as a context manager: it owns a thread from `follow()` on. Where the file system can share
    blocks there is nothing to do before the end.
    """

    def __init__(self, source: BinaryIO, target: BinaryIO, *, reserve: int) -> None:
        """Note the files; nothing is copied yet.

        Args:
            source: a regular file.
            target: an empty one, open for writing.
            reserve: so many bytes of the target's file system others may still need: until the
                source is complete, they are not touched.
        """
        self._reserve = reserve
        self._source = source
        self._target = target
        self._copied = 0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None

    def __enter__(self) -> GrowingCopy:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def follow(self, settled: Callable[[], int]) -> None:
        """Begin to copy.

        Args:
            settled: says up to where the source will not change any more, in bytes, its first
                HEAD bytes apart. Called from another thread.
        """
        if share_blocks(self._source, self._target):
            return
        self._thread = threading.Thread(target=self._run, args=(settled,), daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Copy what is left, now that the source is complete.

        Raises:
            OSError: if anything could not be copied, also earlier.
        """
        self._stop()
        if self._error is not None:
            raise self._error
        if not self._copied:
            copy_file(self._source, self._target)
            return
        copy_range(self._source, self._target, 0, HEAD)
        copy_range(self._source, self._target, self._copied, None)

    def _stop(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _free(self) -> int:
        space = os.fstatvfs(self._target.fileno())
        # Some file systems (ramfs) do not say how large they are.
        return space.f_bavail * space.f_frsize if space.f_blocks else sys.maxsize

    def _run(self, settled: Callable[[], int]) -> None:
        while not self._over.wait(_PAUSE):
            end = settled()
            while end - self._copied >= _STEP and not self._over.is_set():
                try:
                    if self._free() < self._reserve + _STEP:
                        break
                    copy_range(self._source, self._target, self._copied, self._copied + _STEP)
                except OSError as error:
                    self._error = error
                    return
                self._copied += _STEP
