"""Pull OCI images, flatten them, start unprivileged sandboxes: the public API.

    import enroot_py

    enroot_py.import_image("docker://ubuntu:24.04", "ubuntu.sqsh")
    enroot_py.create("ubuntu.sqsh", "work")
    with enroot_py.spawn(enroot_py.StartSpec("work", ("make", "-j8"), writable=True)) as container:
        status = container.wait()

Names resolve on first use (PEP 562), so `import enroot_py` loads this one module; type checkers see
them through the TYPE_CHECKING block. Every function takes `settings`; without it the configuration
files and the environment are read. Everything raised on purpose is an EnrootError.
"""

from __future__ import annotations

_ERRORS = (
    "AuthenticationError",
    "BusyError",
    "CommandError",
    "DeviceError",
    "DeviceSpecError",
    "DigestMismatchError",
    "EnrootError",
    "ExistsError",
    "HookError",
    "InvalidEnvironmentError",
    "InvalidMountError",
    "InvalidNameError",
    "InvalidReferenceError",
    "KernelError",
    "LayerError",
    "LimitError",
    "ManifestError",
    "NamespaceError",
    "NotFoundError",
    "PlatformError",
    "RegistryError",
    "SettingsError",
    "SpaceError",
    "SquashfsError",
    "StoreError",
    "UnsafePathError",
    "UnsupportedError",
    "UsageError",
)

_EXPORTS = {
    # name: where it is; "module:name" where it has another name there
    **dict.fromkeys(_ERRORS, "enroot_py.errors"),
    "Container": "enroot_py.operations.spawn",
    "ContainerStatus": "enroot_py.operations.containers",
    "Kernel": "enroot_py.linux.kernel",
    "Mount": "enroot_py.plan.fstab",
    "NamedTuple": "enroot_py.record",
    "Progress": "enroot_py.operations.progress",
    "Settings": "enroot_py.settings",
    "StartSpec": "enroot_py.plan.spec",
    "cached_image": "enroot_py.operations.import_image",
    "containers": "enroot_py.operations.containers",
    "create": "enroot_py.operations.create",
    "digest": "enroot_py.operations.digest",
    "doctor": "enroot_py.operations.doctor",
    "dry_run": "enroot_py.operations.dry_run:describe_start",
    "end_with_parent": "enroot_py.enter.process",
    "exec": "enroot_py.operations.exec:exec_",
    "export": "enroot_py.operations.export",
    "filter_program": "enroot_py.linux.seccomp",
    "import_image": "enroot_py.operations.import_image",
    "info": "enroot_py.operations.info",
    "is_mount_option": "enroot_py.plan.mount_options",
    "load": "enroot_py.operations.load",
    "load_settings": "enroot_py.settings",
    "parse_mount": "enroot_py.plan.fstab",
    "read_environ": "enroot_py.linux.processes",
    "remove": "enroot_py.operations.remove",
    "remove_unfinished": "enroot_py.operations.remove",
    "run_joined": "enroot_py.operations.join",
    "set_log_sink": "enroot_py.log:set_sink",
    "spawn": "enroot_py.operations.spawn",
    "start": "enroot_py.operations.start",
}
__all__ = sorted(_EXPORTS)

TYPE_CHECKING = False  # the literal that type checkers know; `typing` itself would cost 4 ms
if TYPE_CHECKING:
    from enroot_py.enter.process import end_with_parent as end_with_parent
    from enroot_py.errors import AuthenticationError as AuthenticationError
    from enroot_py.errors import BusyError as BusyError
    from enroot_py.errors import CommandError as CommandError
    from enroot_py.errors import DeviceError as DeviceError
    from enroot_py.errors import DeviceSpecError as DeviceSpecError
    from enroot_py.errors import DigestMismatchError as DigestMismatchError
    from enroot_py.errors import EnrootError as EnrootError
    from enroot_py.errors import ExistsError as ExistsError
    from enroot_py.errors import HookError as HookError
    from enroot_py.errors import InvalidEnvironmentError as InvalidEnvironmentError
    from enroot_py.errors import InvalidMountError as InvalidMountError
    from enroot_py.errors import InvalidNameError as InvalidNameError
    from enroot_py.errors import InvalidReferenceError as InvalidReferenceError
    from enroot_py.errors import KernelError as KernelError
    from enroot_py.errors import LayerError as LayerError
    from enroot_py.errors import LimitError as LimitError
    from enroot_py.errors import ManifestError as ManifestError
    from enroot_py.errors import NamespaceError as NamespaceError
    from enroot_py.errors import NotFoundError as NotFoundError
    from enroot_py.errors import PlatformError as PlatformError
    from enroot_py.errors import RegistryError as RegistryError
    from enroot_py.errors import SettingsError as SettingsError
    from enroot_py.errors import SpaceError as SpaceError
    from enroot_py.errors import SquashfsError as SquashfsError
    from enroot_py.errors import StoreError as StoreError
    from enroot_py.errors import UnsafePathError as UnsafePathError
    from enroot_py.errors import UnsupportedError as UnsupportedError
    from enroot_py.errors import UsageError as UsageError
    from enroot_py.linux.kernel import Kernel as Kernel
    from enroot_py.linux.processes import read_environ as read_environ
    from enroot_py.linux.seccomp import filter_program as filter_program
    from enroot_py.log import set_sink
    from enroot_py.operations.containers import ContainerStatus as ContainerStatus
    from enroot_py.operations.containers import containers as containers
    from enroot_py.operations.create import create as create
    from enroot_py.operations.digest import digest as digest
    from enroot_py.operations.doctor import doctor as doctor
    from enroot_py.operations.dry_run import describe_start
    from enroot_py.operations.exec import exec_
    from enroot_py.operations.export import export as export
    from enroot_py.operations.import_image import cached_image as cached_image
    from enroot_py.operations.import_image import import_image as import_image
    from enroot_py.operations.info import info as info
    from enroot_py.operations.join import run_joined as run_joined
    from enroot_py.operations.load import load as load
    from enroot_py.operations.progress import Progress as Progress
    from enroot_py.operations.remove import remove as remove
    from enroot_py.operations.remove import remove_unfinished as remove_unfinished
    from enroot_py.operations.spawn import Container as Container
    from enroot_py.operations.spawn import spawn as spawn
    from enroot_py.operations.start import start as start
    from enroot_py.plan.fstab import Mount as Mount
    from enroot_py.plan.fstab import parse_mount as parse_mount
    from enroot_py.plan.mount_options import is_mount_option as is_mount_option
    from enroot_py.plan.spec import StartSpec as StartSpec
    from enroot_py.record import NamedTuple as NamedTuple
    from enroot_py.settings import Settings as Settings
    from enroot_py.settings import load_settings as load_settings

    dry_run = describe_start
    exec = exec_
    set_log_sink = set_sink
else:

    def __getattr__(name: str) -> object:
        # Hidden from type checkers, which would take any name for an object otherwise.
        if name not in _EXPORTS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, _, attribute = _EXPORTS[name].partition(":")
        value = getattr(__import__(module, fromlist=[attribute or name]), attribute or name)
        globals()[name] = value  # the next access skips this function
        return value


def __dir__() -> list[str]:
    return [*globals(), *_EXPORTS]
