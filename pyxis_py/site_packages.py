"""Let an interpreter that was started without site-packages (-S) find them once it needs one.

Starting with them costs as much as a start's other imports together, and few starts need any: an
image is unpacked, with libraries for its compressor, only where nothing serves it.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class SiteOnDemand:
    """Finder of modules that nobody else finds; see importlib.abc.MetaPathFinder."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Add the site's folders to sys.path, once, and look again."""
        if path is not None or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        import site
        from importlib.machinery import PathFinder

        site.main()
        return PathFinder.find_spec(name)


def add_site_on_demand() -> None:
    """Let imports from now on find site-packages, if this interpreter does not know them yet."""
    if sys.flags.no_site:
        sys.meta_path.append(SiteOnDemand())


def add_libraries() -> None:
    """Let an interpreter that was started without site-packages (-S) find them."""
    if sys.flags.no_site:
        import site

        site.main()
