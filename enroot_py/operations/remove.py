"""Remove containers.

Source: enroot 4.1.2 runtime.sh, runtime::remove().
"""

from __future__ import annotations

import os

from enroot_py.errors import NotFoundError
from enroot_py.settings import Settings, load_settings
from enroot_py.store import removal
from enroot_py.store.containers import find_container

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def find_removable(name: str, *, settings: Settings) -> str:
    """Return the path of the container that `remove` would remove: an absolute host path.

    Unlike `find_container`, a link in the data folder is not followed: it is what goes.

    Raises:
        InvalidNameError: if no container can have this name.
        NotFoundError: if there is no such container; the hint lists similar names.
    """
    path = os.path.join(os.path.realpath(settings.data_path), name)
    try:
        find_container(settings, name)
    except NotFoundError:
        if not os.path.islink(path):  # one that leads nowhere can be removed all the same
            raise
    return path


def remove(name: str, *, settings: Settings | None = None) -> None:
    """Remove a container without asking; its name is free at once.

    Raises:
        InvalidNameError: if no container can have this name.
        NotFoundError: if there is no such container.
        BusyError: if processes run in it, or one is being started.
        StoreError: if something in it cannot be removed.
    """
    settings = settings or load_settings()
    path = find_removable(name, settings=settings)
    removal.remove_container(path, as_mapped=_as_mapped_root)


def remove_unfinished(*, settings: Settings | None = None) -> None:
    """Remove what killed processes left unfinished among containers and in the cache.

    Nothing that is still in the making, and nothing of the user's subordinate ids. Whoever makes a
    container or an extraction does this first; the end of a job does, because nobody may come next.
    """
    settings = settings or load_settings()
    from enroot_py.store.cache_folders import find_cache
    from enroot_py.store.trimming import remove_unfinished_of

    removal.remove_unfinished(settings.data_path)
    remove_unfinished_of(find_cache(settings.cache_path))


def _as_mapped_root(action: Callable[[], None]) -> None:
    # Only for files of the user's subordinate ids; what it needs would slow every other removal.
    from enroot_py.linux.subordinate import run_as_mapped_root

    run_as_mapped_root(action)
