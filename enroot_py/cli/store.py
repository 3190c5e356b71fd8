"""The commands that fetch, make and delete: import, load, create, export, digest, bundle, remove,
and those of the cache."""

from __future__ import annotations

from enroot_py.cli.output import confirm, report, write_json, write_line, write_table
from enroot_py.errors import EnrootError, UsageError
from enroot_py.log import info
from enroot_py.settings import format_size, load_settings, parse_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from enroot_py.cli.parse import Arguments
    from enroot_py.operations.cache import CacheEntry


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
    from enroot_py.operations.bundle.write import bundle as run

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


def cache_list(arguments: Arguments) -> int:
    """`enroot cache list`: what the cache holds, the least recently used first."""
    from enroot_py.operations.cache import list_cache

    entries = list_cache()
    if arguments.flag("json"):
        from dataclasses import asdict

        write_json([asdict(entry) for entry in entries])
        return 0
    rows = [
        (
            _format_day(entry.used),
            format_size(entry.size),
            entry.kind,
            entry.name,
            ", ".join(entry.references),
        )
        for entry in entries
    ]
    write_table([("USED", "SIZE", "KIND", "NAME", "IMAGES"), *rows])
    write_line(f"{len(entries)} entries, {format_size(sum(entry.size for entry in entries))}")
    return 0


def cache_prune(arguments: Arguments) -> int:
    """`enroot cache prune`: delete what nothing uses."""
    from enroot_py.operations.cache import prune_cache

    return _say_what_went(prune_cache(nvidia=arguments.flag("nvidia")))


def cache_limit(arguments: Arguments) -> int:
    """`enroot cache limit`: shrink the cache."""
    from enroot_py.operations.cache import limit_cache

    if not arguments.operands:
        settings = load_settings()
        if not settings.cache_limit:
            raise UsageError("No limit is set", hint="give a SIZE, or set ENROOT_CACHE_LIMIT")
        return _say_what_went(limit_cache(settings=settings))
    try:
        size = parse_size(arguments.operands[0])
    except ValueError:
        raise UsageError(
            f"Invalid size: {arguments.operands[0]}", hint="bytes, or a number like 50G"
        ) from None
    return _say_what_went(limit_cache(size))


def _say_what_went(removed: Sequence[CacheEntry]) -> int:
    for entry in removed:
        info(f"Removed {entry.kind} {entry.name} ({format_size(entry.size)})")
    write_line(f"{len(removed)} entries, {format_size(sum(entry.size for entry in removed))} freed")
    return 0


def _format_day(seconds: float) -> str:
    import time

    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
