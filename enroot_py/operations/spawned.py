"""The child's side of `spawn`: read a request, say what goes wrong, become the container.

Run by `python -I -S`, without site-packages; see operations/spawn.py.
"""

from __future__ import annotations

import marshal
import os

from enroot_py.errors import EnrootError, UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_REQUEST_FD, _FAULT_FD = 3, 4
_PLAIN = (str, int, float, bool)


def main() -> NoReturn:
    """Carry out the request on descriptor 3; faults go to descriptor 4."""
    os.set_inheritable(_FAULT_FD, False)
    with open(_REQUEST_FD, "rb") as file:
        request = marshal.loads(file.read())
    try:
        _carry_out(request)
    except EnrootError as error:
        _report(error)
    except OSError as error:
        what = f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")
        _report(UnsupportedError(what))


def _carry_out(request: tuple[object, ...]) -> NoReturn:
    kind, *arguments = request
    if kind == "exec":
        from enroot_py.operations.exec import exec_

        pid, command, environ = arguments
        assert isinstance(pid, int) and isinstance(command, tuple) and isinstance(environ, tuple)
        exec_(pid, command, environ=environ)
    from enroot_py.operations.start import start
    from enroot_py.plan.fstab import Mount
    from enroot_py.plan.spec import StartSpec
    from enroot_py.settings import Settings

    spec = StartSpec(*arguments[0])  # type: ignore[misc]
    mounts = tuple(mount if isinstance(mount, str) else Mount(*mount) for mount in spec.mounts)
    start(spec._replace(mounts=mounts), settings=Settings(*arguments[1]))  # type: ignore[misc]


def _report(error: EnrootError) -> NoReturn:
    attributes = {key: value for key, value in vars(error).items() if type(value) in _PLAIN}
    fault = marshal.dumps((type(error).__name__, str(error), attributes))
    while fault:
        fault = fault[os.write(_FAULT_FD, fault) :]
    os._exit(error.exit_code)
