"""Pull OCI images, flatten them, start unprivileged sandboxes: the public API.

Names resolve on first use (PEP 562), so `import enroot_py` loads this one module; type checkers see
them through the TYPE_CHECKING block.
"""

from __future__ import annotations

_EXPORTS = {
    "EnrootError": "enroot_py.errors",
    "NamedTuple": "enroot_py.record",
    "SettingsError": "enroot_py.errors",
    "Settings": "enroot_py.settings",
    "UsageError": "enroot_py.errors",
    "load_settings": "enroot_py.settings",
}
__all__ = sorted(_EXPORTS)

TYPE_CHECKING = False  # the literal that type checkers know; `typing` itself would cost 4 ms
if TYPE_CHECKING:
    from enroot_py.errors import EnrootError as EnrootError
    from enroot_py.errors import SettingsError as SettingsError
    from enroot_py.errors import UsageError as UsageError
    from enroot_py.record import NamedTuple as NamedTuple
    from enroot_py.settings import Settings as Settings
    from enroot_py.settings import load_settings as load_settings


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_EXPORTS[name]), name)
    globals()[name] = value  # the next access skips this function
    return value
