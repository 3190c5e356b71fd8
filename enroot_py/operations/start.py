"""Start a container: spec → plan → namespaces → mounts → hooks → root switch → exec.

`start` turns this process into the container and never returns. A program with threads, or one that
wants to go on, uses `spawn` (operations/spawn.py).

Source: enroot 4.1.2 src/runtime.sh, runtime::start() and runtime::_start(), for the order of steps.
"""

from __future__ import annotations

from enroot_py.enter.configuration import gather_mount_files
from enroot_py.enter.namespaces import enter_namespaces
from enroot_py.enter.process import Unfinished, close_on_exec, is_open
from enroot_py.enter.rootfs import RootfsMount, make_workdir, seal_rootfs
from enroot_py.enter.switch_root import switch_root
from enroot_py.hooks.find import find_hooks
from enroot_py.host import observe_host
from enroot_py.linux.capabilities import drop_privileges
from enroot_py.linux.kernel import Kernel
from enroot_py.operations.start_files import (
    find_rootfs,
    prepare_data_images,
    prepare_image,
    read_directives,
    read_rc,
)
from enroot_py.plan.start import plan_start
from enroot_py.settings import load_settings
from enroot_py.store.containers import RootfsLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from enroot_py.plan.spec import StartSpec
    from enroot_py.settings import Settings


def start(
    spec: StartSpec, *, settings: Settings | None = None, kernel: Kernel | None = None
) -> NoReturn:
    """Become the container that `spec` describes.

    The process keeps its id, its standard streams and its terminal; in a new pid namespace its
    child becomes the container and this process waits for it.

    Args:
        spec: what to start.
        settings: the configuration; read, with the directives of `spec.conf`, if None.
        kernel: the way to system calls.

    Raises:
        NotFoundError: if there is no such container or image.
        NamespaceError: if the kernel refuses a namespace; the hint names the switch.
        HookError: if a hook fails.
        CommandError: if the container's command cannot be run (exit code 126 or 127).
        EnrootError: anything else that is wrong with spec, settings, image or machine.
    """
    spec.check()
    with Unfinished():
        _start(spec, settings, kernel or Kernel())


def _start(spec: StartSpec, settings: Settings | None, kernel: Kernel) -> NoReturn:
    settings = settings or load_settings(directives=read_directives(spec.conf))
    plan = plan_start(spec, settings, observe_host(), find_rootfs(spec.target, settings))
    hooks = find_hooks(plan.settings)
    fstabs = gather_mount_files(plan.settings, None)
    rc = read_rc(plan.rc)
    kept = tuple(fd for fd in plan.preserve_fds if is_open(fd))
    make_workdir(plan.workdir, plan.host.euid)
    server, unpack = prepare_image(plan)
    data_images = prepare_data_images(plan, fstabs)
    enter_namespaces(kernel, plan.namespaces)
    rootfs = RootfsMount(kernel, plan, server=server, unpack=unpack)
    rootfs.begin()
    # Loaded here and not at the top: meanwhile the image's server starts.
    from enroot_py.enter.execute import execute
    from enroot_py.operations.set_up import set_up

    mounter = rootfs.finish()
    mounter.data_images = data_images
    with RootfsLock(mounter.rootfs):
        environ, own_rc = set_up(kernel, plan, mounter, hooks, fstabs)
    seal_rootfs(mounter, writable=plan.writable)
    close_on_exec(kernel, kept)
    switch_root(kernel, mounter.root_fd)
    drop_privileges(kernel, plan.namespaces.uid)
    execute(
        kernel,
        plan.command,
        environ,
        login=plan.settings.login_shell,
        rc=own_rc if rc is None else rc,
        uid=plan.namespaces.uid,
        outside_uid=plan.namespaces.outside_uid,
    )


def dry_run(spec: StartSpec, *, settings: Settings | None = None) -> str:
    """Return what `start` would do, as text; does nothing. See operations/dry_run.py."""
    from enroot_py.operations.dry_run import describe_start

    return describe_start(spec, settings=settings)
