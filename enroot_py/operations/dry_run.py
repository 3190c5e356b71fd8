"""Show what a start would do without doing it; the image's files are read, nothing is entered."""

from __future__ import annotations

import os

from enroot_py.enter.configuration import (
    ENVIRON,
    FSTAB,
    gather_environ_files,
    gather_mount_files,
    read_own_file,
)
from enroot_py.errors import NotFoundError
from enroot_py.hooks.find import find_hooks
from enroot_py.host import observe_host
from enroot_py.operations.start_files import find_rootfs, read_directives
from enroot_py.plan.environ import parse_environ
from enroot_py.plan.printing import print_plan
from enroot_py.plan.spec import StartSpec
from enroot_py.plan.start import RootfsSource, host_variables, plan_mounts, plan_start
from enroot_py.settings import Settings, load_settings


def describe_start(spec: StartSpec, *, settings: Settings | None = None) -> str:
    """Return the plan of a start as text, one fact a line.

    Raises:
        EnrootError: whatever `start` raises before it enters namespaces.
    """
    spec.check()
    settings = settings or load_settings(directives=read_directives(spec.conf))
    plan = plan_start(spec, settings, observe_host(), find_rootfs(spec.target, settings))
    variables = host_variables(plan, plan.mounted_rootfs, pid=plan.host.pid)
    own = _read_own_files(plan.rootfs)
    environ: dict[str, str] = {}
    for _, text in gather_environ_files(plan.settings, own[ENVIRON]):
        environ.update(parse_environ(text, variables))
    environ.update(plan.environ)
    return print_plan(
        plan,
        mounts=plan_mounts(gather_mount_files(plan.settings, own[FSTAB]), plan, variables),
        hooks=[hook.path or f"{hook.name} (built in)" for hook in find_hooks(plan.settings)],
        environ=environ.items(),
    )


def _read_own_files(rootfs: RootfsSource) -> dict[str, bytes | None]:
    if rootfs.is_image:
        return _read_image_files(rootfs.path)
    fd = os.open(rootfs.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return {path: read_own_file(fd, path) for path in (ENVIRON, FSTAB)}
    finally:
        os.close(fd)


def _read_image_files(path: str) -> dict[str, bytes | None]:
    from enroot_py.squashfs.reader import SquashfsImage

    files: dict[str, bytes | None] = {}
    with SquashfsImage(path) as image:
        for name in (ENVIRON, FSTAB):
            try:
                files[name] = image.read(name)
            except NotFoundError:
                files[name] = None
    return files
