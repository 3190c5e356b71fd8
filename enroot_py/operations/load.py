"""Load an image straight into a container: what `import` and `create` give, without the file.

Source: enroot 4.1.2 src/docker.sh, docker::load().
"""

from __future__ import annotations

import os

from enroot_py.image.platform import parse_platform
from enroot_py.operations.create import new_container
from enroot_py.operations.flatten import write_rootfs
from enroot_py.operations.import_image import image_key, trim_cache
from enroot_py.operations.progress import Progress
from enroot_py.operations.sources.image_source import ImageSource, open_source
from enroot_py.settings import Settings, load_settings
from enroot_py.squashfs.reader import SquashfsImage
from enroot_py.store.cache_folders import open_cache
from enroot_py.store.containers import container_path
from enroot_py.store.images import ImageStore


def load(
    uri: str,
    name: str = "",
    *,
    settings: Settings | None = None,
    arch: str = "",
    force: bool = False,
    progress: Progress | None = None,
) -> str:
    """Fetch an image and make a container of it; returns the container's path.

    The tree is the one that `import_image` and `create` would make. An image that the cache holds
    finished is unpacked; otherwise layers go straight into the container while they arrive.

    Args:
        uri, arch, progress: as for `import_image`.
        name: of the container; the image's name if empty.
        settings: in force; read from the configuration if None.
        force: replace a container of that name, as ENROOT_FORCE_OVERRIDE does.

    Raises:
        ExistsError: if there is a container of that name already.
        InvalidNameError: if a container cannot have this name.
        EnrootError: for everything else; nothing is left then.
    """
    settings = settings or load_settings()
    with open_source(uri, settings, parse_platform(arch or os.uname().machine)) as source:
        name = name or source.default_name
        with (
            new_container(name, settings=settings, force=force) as folder,
            progress or Progress() as shown,
        ):
            _fill(source, folder, shown)
        trim_cache(settings)
        return container_path(settings, name)


def _fill(source: ImageSource, folder: str, progress: Progress) -> None:
    image = source.describe()
    key = image_key(source, image)
    store = ImageStore(open_cache(source.settings.cache_path)) if key is not None else None
    if store is not None and key is not None:
        finished = store.open(key)
    else:
        finished = source.open_finished(progress)
    if finished is None:
        write_rootfs(source, image, folder, progress)
        return
    with finished:
        progress.stage("Unpacking the finished image")
        path = f"/proc/self/fd/{finished.fileno()}"
        with SquashfsImage(path, max_entries=source.settings.max_image_entries) as reader:
            reader.extract(folder, processors=source.settings.max_processors)
