"""Blobs: layers, configs and manifests by digest, in an OCI image layout.

Each is verified while it arrives and appears by rename under the name of its digest. Whoever finds
one there that this user did not write verifies it again. Not for finished images (`images`).

Source: OCI image-spec 1.1, image-layout.md.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

from enroot_py.errors import BusyError, DigestMismatchError, NotFoundError
from enroot_py.image.digest import Digest
from enroot_py.image.manifest import Descriptor
from enroot_py.log import printable
from enroot_py.store.cache_folders import SETTING, CacheFolders, is_trusted_folder, open_cache
from enroot_py.store.file_system import explaining
from enroot_py.store.locks import is_current, wait_for_lock

_CHUNK = 1 << 20
_PATIENCE = 10.0
_ATTEMPTS = 5
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class BlobWriter:
    """Takes a blob's bytes as they arrive, counts and hashes them.

    Attributes:
        offset: bytes taken so far, those of an earlier, interrupted download included.
        hashed: `check` checks the digest, and nobody else needs to.
    """

    hashed = True

    def __init__(self, file: BinaryIO, descriptor: Descriptor) -> None:
        """Start with what the file has already, and continue after it.

        Args:
            file: open for reading and writing, unbuffered.
            descriptor: what is expected.
        """
        self._file = file
        self._descriptor = descriptor
        self._hash = descriptor.digest.new_hash()
        self.offset = 0
        if os.fstat(file.fileno()).st_size > descriptor.size:
            self.restart()
        while chunk := file.read(_CHUNK):
            self._take(chunk)

    def write(self, data: bytes, /) -> None:
        """Take the bytes that come next.

        Raises:
            DigestMismatchError: if there are more than the descriptor says.
        """
        self._take(data)
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]

    def _take(self, data: bytes) -> None:
        self.offset += len(data)
        if self.offset > self._descriptor.size:
            raise DigestMismatchError(
                f"Blob {self._descriptor.digest} is longer than the {self._descriptor.size} bytes"
                " that its manifest says"
            )
        self._hash.update(data)

    def restart(self) -> None:
        """Forget every byte."""
        self._file.seek(0)
        self._file.truncate()
        self._hash = self._descriptor.digest.new_hash()
        self.offset = 0

    def check(self) -> None:
        """Check that all bytes are there and are the right ones.

        Raises:
            DigestMismatchError: if not.
        """
        if self.offset != self._descriptor.size:
            raise DigestMismatchError(
                f"Blob {self._descriptor.digest} ended after {self.offset} of"
                f" {self._descriptor.size} bytes"
            )
        if self._hash.hexdigest() != self._descriptor.digest.hex:
            raise DigestMismatchError(
                f"Blob {self._descriptor.digest} has other contents: they hash to"
                f" {self._hash.hexdigest()}"
            )


class BlobStore:
    """The blobs of one cache. Methods may be called by several threads, for different blobs."""

    def __init__(self, cache_path: str) -> None:
        """Make the cache's folders if need be; raises StoreError if they cannot be used."""
        self.folders: CacheFolders = open_cache(cache_path)

    def has(self, descriptor: Descriptor) -> bool:
        """Say whether a blob is there and passes for what it should be."""
        try:
            self.open(descriptor).close()
        except NotFoundError:
            return False
        return True

    def open(self, descriptor: Descriptor) -> BinaryIO:
        """Open a blob, verified, and keep it from being trimmed while it is open.

        Blobs that this user wrote, to a folder where nobody else can rename anything, count as
        verified. What somebody else could change meanwhile is copied first.

        Raises:
            NotFoundError: if it is not there, or not what its name says; then it is removed too.
        """
        for layout in self.folders.layouts:
            path = blob_path(layout, descriptor.digest)
            file = self._open_verified(path, descriptor)
            if file is not None:
                return file
        raise NotFoundError(f"Blob {descriptor.digest} is not in {self.folders.path}")

    def _open_verified(self, path: str, descriptor: Descriptor) -> BinaryIO | None:
        try:
            file = open(os.open(path, _READ), "rb", buffering=0)
        except FileNotFoundError:
            return None
        except OSError:
            _discard(path)  # a link, a socket, or a file that its owner keeps to himself
            return None
        verified: BinaryIO | None = None
        try:
            with explaining(path, stage="reading the cache", setting=SETTING):
                # Who has just delivered it still holds its lock, and so does who is trimming it.
                deadline = time.monotonic() + _PATIENCE
                wait_for_lock(file.fileno(), path, deadline=deadline, exclusive=False)
                if not is_current(file.fileno(), path):
                    return None
                verified = self._verify(file, path, descriptor)
        finally:
            if verified is not file:
                file.close()
        if verified is None:
            _discard(path)
        return verified

    def _verify(self, file: BinaryIO, path: str, descriptor: Descriptor) -> BinaryIO | None:
        """Return the file, a verified copy, or None if it is no good."""
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size != descriptor.size:
            return None
        mine = status.st_uid == os.geteuid()
        if not mine and status.st_mode & 0o022:
            return None
        if status.st_uid not in (0, os.geteuid()):
            return self._copy_verified(file, descriptor)
        if not (mine and not status.st_mode & 0o022 and is_trusted_folder(os.path.dirname(path))):
            reader = BlobWriter(file, descriptor)  # hashes what is there
            try:
                reader.check()
            except DigestMismatchError:
                return None
            file.seek(0)
        note_use(file, status)
        return file

    def _copy_verified(self, file: BinaryIO, descriptor: Descriptor) -> BinaryIO | None:
        # Its owner may write to it at any time, so what is used is a copy that has no name.
        fd = os.open(self.folders.partial, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        copy: BinaryIO = open(fd, "w+b", buffering=0)
        try:
            writer = BlobWriter(copy, descriptor)
            while chunk := file.read(_CHUNK):
                writer.write(chunk)
            writer.check()
        except DigestMismatchError:
            copy.close()
            return None
        except BaseException:
            copy.close()
            raise
        copy.seek(0)
        return copy

    def obtain(
        self,
        descriptor: Descriptor,
        download: Callable[[BlobWriter], None],
        *,
        private: bool,
        cancelled: Callable[[], bool] | None = None,
    ) -> BinaryIO:
        """Open a blob, downloading it first if it is missing.

        Args:
            download: writes the blob's bytes, or what is missing of them.
            private, cancelled: as for `create`.

        Raises:
            As `create`, and whatever `download` raises.
        """
        for _ in range(_ATTEMPTS):
            try:
                return self.open(descriptor)
            except NotFoundError:
                with self.create(descriptor, private=private, cancelled=cancelled) as writer:
                    if writer is not None:
                        download(writer)
            # Between its delivery and its use another process may trim the cache.
        return self.open(descriptor)

    @contextmanager
    def create(
        self,
        descriptor: Descriptor,
        *,
        private: bool,
        cancelled: Callable[[], bool] | None = None,
    ) -> Iterator[BlobWriter | None]:
        """Take in a blob that is missing; of several processes that want to, one does.

        The blob appears when the `with` block ends without an exception and its size and digest
        are right. After an interruption what had arrived is kept, for the next one to continue.

        Args:
            private: it was obtained with credentials, and is not for other users.
            cancelled: asked while another process downloads it; True ends the waiting.

        Yields:
            A writer, or None if another process has delivered it meanwhile.

        Raises:
            BusyError: if waiting was called off.
            DigestMismatchError: if the bytes are not those of the descriptor.
            SpaceError: if the cache's file system is full.
        """
        partial = os.path.join(self.folders.partial, str(descriptor.digest).replace(":", "-"))
        with (
            explaining(partial, stage="storing a layer in the cache", setting=SETTING),
            _lock_partial(partial, cancelled) as file,
        ):
            if self.has(descriptor):
                os.unlink(partial)
                yield None
                return
            try:
                writer = BlobWriter(file, descriptor)
                yield writer
                writer.check()
            except BaseException as error:
                # Neither what fills the disk nor what is wrong is worth keeping.
                useless = isinstance(error, (OSError, DigestMismatchError))
                if useless or not os.fstat(file.fileno()).st_size:
                    os.unlink(partial)
                raise
            self._deliver(file, partial, descriptor, private=private)

    def _deliver(
        self, file: BinaryIO, partial: str, descriptor: Descriptor, *, private: bool
    ) -> None:
        os.fchmod(file.fileno(), 0o600 if private or not self.folders.is_shared else 0o644)
        path = blob_path(self.folders.layout(private=private), descriptor.digest)
        try:
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            os.rename(partial, path)
        except PermissionError:
            # In a sticky folder somebody else has put a file there that was found to be no good.
            path = blob_path(self.folders.layout(private=True), descriptor.digest)
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            os.rename(partial, path)

    def put(self, descriptor: Descriptor, data: bytes, *, private: bool) -> None:
        """Store a small blob (a manifest, a config) whose bytes are at hand."""
        if not self.has(descriptor):
            with self.create(descriptor, private=private) as writer:
                if writer is not None:
                    writer.restart()
                    writer.write(data)

    def read(self, descriptor: Descriptor) -> bytes:
        """Return a small blob's bytes; raises NotFoundError if it is not there."""
        with self.open(descriptor) as file:
            return file.read()


def blob_path(layout: str, digest: Digest) -> str:
    """Return the path of a blob in an OCI layout."""
    return os.path.join(layout, "blobs", digest.algorithm, digest.hex)


def _discard(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # another user's in a sticky folder, or gone; it is not used in any case


def note_use(file: BinaryIO, status: os.stat_result) -> None:
    """Note that a blob was used just now, for trimming; its access time tells."""
    now = time.time()
    if now - status.st_atime > 60:
        try:
            os.utime(file.fileno(), (now, status.st_mtime))
        except OSError:
            pass  # root's, in a shared cache


@contextmanager
def _lock_partial(path: str, cancelled: Callable[[], bool] | None) -> Iterator[BinaryIO]:
    while True:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(path, flags, 0o600), "r+b", buffering=0) as file:
            if _wait_for_partial(file.fileno(), path, cancelled):
                yield file
                return


def _wait_for_partial(fd: int, path: str, cancelled: Callable[[], bool] | None) -> bool:
    """Wait for the lock of a blob on its way; False if the file has been renamed or removed.

    Whoever renames it may keep its inode locked as a reader for as long as he likes, so that it
    must not be waited for any more then.
    """

    def pointless() -> bool:
        return not is_current(fd, path) or (cancelled is not None and cancelled())

    locked = wait_for_lock(fd, path, deadline=float("inf"), cancelled=pointless)
    if not is_current(fd, path):
        return False
    if not locked:
        raise BusyError(f"{printable(path)} is being downloaded by another process")
    return True
