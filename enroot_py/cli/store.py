"""The commands that fetch, make and delete: import, load, create, export, digest, bundle, remove,
and those of the cache."""

from __future__ import annotations

from enroot_py.cli.output import confirm, report, write_line
from enroot_py.errors import EnrootError
from enroot_py.settings import load_settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from enroot_py.cli.parse import Arguments


def import_image(arguments: Arguments) -> int:
    """`enroot import`: fetch an image and write it to a file."""
    from enroot_py.operations.import_image import import_image as run
    from enroot_py.operations.progress import open_progress

    run(
        arguments.operands[0],
        arguments.text("output"),
        arch=arguments.text("arch"),
        force=arguments.flag("force"),
        progress=open_progress(),
    )
    return 0


def load(arguments: Arguments) -> int:
    """`enroot load`: fetch an image and make a container out of it."""
    from enroot_py.operations.load import load as run
    from enroot_py.operations.progress import open_progress

    run(
        arguments.operands[0],
        arguments.text("name"),
        arch=arguments.text("arch"),
        force=arguments.flag("force"),
        progress=open_progress(),
    )
    return 0


def create(arguments: Arguments) -> int:
    """`enroot create`: make a container out of an image."""
    from enroot_py.operations.create import create as run

    run(arguments.operands[0], arguments.text("name"), force=arguments.flag("force"))
    return 0


def export(arguments: Arguments) -> int:
    """`enroot export`: make an image out of a container."""
    from enroot_py.operations.export import export as run

    run(arguments.operands[0], arguments.text("output"), force=arguments.flag("force"))
    return 0


def digest(arguments: Arguments) -> int:
    """`enroot digest`: print an image's digest."""
    from enroot_py.operations.digest import digest as run

    write_line(run(arguments.operands[0], arch=arguments.text("arch")))
    return 0


def bundle(arguments: Arguments) -> int:
    """`enroot bundle`: make a program out of an image."""
    from enroot_py.operations.bundle import bundle as run

    run(
        arguments.operands[0],
        arguments.text("output"),
        target=arguments.text("target"),
        description=arguments.text("desc"),
        include_user_configuration=arguments.flag("all"),
        checksum=arguments.flag("checksum"),
        force=arguments.flag("force"),
    )
    return 0


def remove(arguments: Arguments) -> int:
    """`enroot remove`: delete containers, after asking; goes on behind one that fails."""
    from enroot_py.operations.remove import find_removable
    from enroot_py.operations.remove import remove as run

    settings = load_settings()
    force = arguments.flag("force") or settings.force_override
    status = 0
    for name in arguments.operands:
        try:
            path = find_removable(name, settings=settings)
            if force or confirm(f"Do you really want to delete {path}?"):
                run(name, settings=settings)
        except EnrootError as error:
            report(error)
            status = error.exit_code
    return status
