"""Every exception this package raises on purpose.

EnrootError
├── UsageError                   the caller asked for something malformed
│   ├── InvalidReferenceError    an image reference
│   ├── InvalidNameError         a container name
│   ├── InvalidMountError        a mount entry
│   └── InvalidEnvironmentError  an environment assignment
├── SettingsError                enroot.conf, a drop-in or an ENROOT_* variable
├── NotFoundError                a container, image, process or file is missing
├── ExistsError                  … or is in the way
├── BusyError                    somebody else holds the lock
├── UnsupportedError             valid, but not something this package can do here
├── RegistryError                the registry or the way to it
│   ├── AuthenticationError
│   ├── ManifestError            a manifest, index or config is malformed
│   ├── PlatformError            no image for the platform asked for
│   └── DigestMismatchError      bytes are not those that were asked for
├── LayerError                   a layer's archive is malformed
│   ├── UnsafePathError          an entry tries to leave the rootfs
│   └── LimitError               more entries or bytes than allowed
├── SquashfsError                an image is malformed
├── StoreError                   cache, data or temporary folders
│   └── SpaceError               a file system or a quota is full
├── HookError                    a hook failed
├── DeviceError                  a GPU or fabric, or its driver, cannot serve as asked
│   └── DeviceSpecError          a CDI specification is malformed
├── NamespaceError               the kernel refuses a namespace
├── CommandError                 the container's command cannot be run
└── KernelError                  a system call said no (also an OSError)
"""

from __future__ import annotations

import os


class EnrootError(Exception):
    """Base of all errors. `hint` is a second line telling the user what to try.

    Attributes:
        hint: what to try, or "" where there is nothing to say.
        exit_code: the exit status of a command that ends with this error.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(EnrootError):
    """The caller asked for something malformed."""


class InvalidReferenceError(UsageError):
    """An image reference that cannot be parsed, or that names nothing allowed."""


class InvalidNameError(UsageError):
    """A container name outside the allowed character set."""


class InvalidMountError(UsageError):
    """A mount entry that cannot be parsed."""


class InvalidEnvironmentError(UsageError):
    """An environment assignment that cannot be parsed."""


class SettingsError(EnrootError):
    """A setting has a value that cannot be used."""


class NotFoundError(EnrootError):
    """A container, image, process or file is missing."""


class ExistsError(EnrootError):
    """Something of that name is there already."""


class BusyError(EnrootError):
    """Somebody else is using it."""


class UnsupportedError(EnrootError):
    """Valid, but not something this package can do, or not on this host."""


class RegistryError(EnrootError):
    """The registry, or the way to it, failed."""


class AuthenticationError(RegistryError):
    """The registry refused; the message names host, status and the credentials' source."""


class ManifestError(RegistryError):
    """A manifest, index or image config is malformed."""


class PlatformError(RegistryError):
    """No image for the platform asked for; the message lists those that there are."""


class DigestMismatchError(RegistryError):
    """Bytes do not have the digest or the size that was asked for."""


class LayerError(EnrootError):
    """A layer's archive is malformed."""


class UnsafePathError(LayerError):
    """A layer's entry tries to leave the rootfs."""


class LimitError(LayerError):
    """More entries or bytes than the limits allow."""


class SquashfsError(EnrootError):
    """A squashfs image is malformed or truncated."""


class StoreError(EnrootError):
    """A folder of the store is missing, unsafe or unusable."""


class SpaceError(StoreError):
    """A file system or a quota is full; the message names it and what was needed."""


class HookError(EnrootError):
    """A hook failed. `path` and `status` say which and how."""

    def __init__(self, message: str, *, path: str, status: int = -1, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.path = path
        self.status = status


class DeviceError(EnrootError):
    """A GPU or a fabric device, or its driver, cannot serve as it was asked to."""


class DeviceSpecError(DeviceError):
    """A CDI specification is malformed; the message names the file and the place."""


class NamespaceError(EnrootError):
    """The kernel refuses a namespace; the hint names the switch to change."""


class CommandError(EnrootError):
    """The container's command cannot be run: 127 when it is missing, 126 when it can't be executed.

    Source: POSIX.1-2017, XCU 2.8.2, exit status for commands.
    """

    exit_code = 127


class KernelError(EnrootError, OSError):
    """A system call failed. `errno`, `syscall` and `what` say which and on what."""

    def __init__(self, syscall: str, errno: int, what: str = "", *, hint: str = "") -> None:
        message = f"{syscall}: {os.strerror(errno)}" + (f": {what}" if what else "")
        EnrootError.__init__(self, message, hint=hint)
        self.errno = errno
        self.strerror = os.strerror(errno)
        self.syscall = syscall
        self.what = what

    def __str__(self) -> str:
        return str(self.args[0])
