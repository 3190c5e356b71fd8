"""The commands that only look: list, info, doctor, version, help, and texts made from the table."""

from __future__ import annotations

import sys

from enroot_py.cli.output import write_json, write_line, write_table, write_text
from enroot_py.log import warn
from enroot_py.settings import VERSION, format_size, load_settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from enroot_py.cli.parse import Arguments
    from enroot_py.operations.containers import ContainerStatus
    from enroot_py.operations.info import PathInfo

_COLUMNS = ("NAME", "PID", "COMM", "STATE", "STARTED", "TIME", "MNTNS", "USERNS", "COMMAND")


def list_containers(arguments: Arguments) -> int:
    """`enroot list`: names, or with --fancy a table of names and processes."""
    _ignore_operands(arguments, "list")
    settings = load_settings()
    if not arguments.flag("fancy") and not arguments.flag("json"):
        from enroot_py.store.containers import list_names

        for name in list_names(settings):
            write_line(name)
        return 0
    from enroot_py.operations.containers import containers

    found = containers(settings=settings)
    if arguments.flag("json"):
        write_json([_describe(container) for container in found])
    else:
        write_table([_COLUMNS, *(row for container in found for row in _rows(container))])
    return 0


def _rows(container: ContainerStatus) -> list[tuple[str, ...]]:
    """The table rows of a container; its name stands in the first one only."""
    import time

    from enroot_py.linux.processes import format_age, format_started

    now = time.time()
    names = [container.name] + [""] * len(container.processes)
    rows: list[tuple[str, ...]] = [
        (
            name,
            str(process.pid),
            process.comm,
            process.state,
            format_started(process.age, now),
            format_age(process.age),
            str(process.mnt_namespace or "-"),
            str(process.user_namespace or "-"),
            " ".join(process.command),
        )
        for name, process in zip(names, container.processes)  # noqa: B905
    ]
    return rows or [(container.name,)]


def _describe(container: ContainerStatus) -> dict[str, object]:
    from enroot_py.linux.processes import slurm_step

    processes = []
    for process in container.processes:
        job, step = slurm_step(process.pid)
        facts = {**process._asdict(), "command": list(process.command)}
        processes.append({**facts, "slurm_job": job, "slurm_step": step})
    return {"name": container.name, "path": container.path, "processes": processes}


def version(arguments: Arguments) -> int:
    """`enroot version`: the version of Enroot that this one equals."""
    _ignore_operands(arguments, "version")
    write_line(VERSION)
    return 0


def info(arguments: Arguments) -> int:
    """`enroot info`: the configuration in force, or what an image or container is made of."""
    if arguments.operands:
        return _show_image(arguments)
    from enroot_py.operations.info import info as gather

    found = gather()
    if arguments.flag("json"):
        from dataclasses import asdict

        write_json(asdict(found))
        return 0
    write_line(f"Enroot version: {found.version}")
    write_line(f"Package version: {found.package_version}")
    write_line(f"Config file: {found.config_files[0][0]}")
    write_line("")
    write_line("Configuration files:")
    for path, there in found.config_files:
        write_line(f"  {path}{'' if there else ' (none)'}")
    write_line("")
    write_line("Paths:")
    write_table([_path_row(path) for path in found.paths], indent="  ")
    write_line("")
    write_line("Environment variables:")
    for key, value in found.environment.items():
        write_line(f"  {key}={value}")
    return 0


def _show_image(arguments: Arguments) -> int:
    from enroot_py.operations.info import describe

    found = describe(arguments.operands[0])
    if arguments.flag("json"):
        from dataclasses import asdict

        write_json({**asdict(found), "labels": dict(found.labels)})
        return 0
    rows = [("Path", found.path), ("Imported from", found.provenance or "unknown")]
    if found.kind == "image":
        rows.append(("Size", f"{format_size(found.size)}, {found.entries} entries"))
        rows.append(("Compression", found.compression))
    write_table(rows)
    if found.labels:
        write_line("")
        write_line("Labels:")
        for key, value in found.labels:
            write_line(f"  {key}={value}")
    return 0


def _path_row(path: PathInfo) -> tuple[str, ...]:
    where = path.path + ("" if path.exists else " (none yet)")
    if path.file_system is None:
        return path.variable, where
    return path.variable, where, path.file_system.kind, f"{format_size(path.file_system.free)} free"


def doctor(arguments: Arguments) -> int:
    """`enroot doctor`: what is in order, what is not, and how to mend it."""
    from enroot_py.operations.doctor import Status
    from enroot_py.operations.doctor import doctor as examine

    findings = examine(registries=arguments.operands, offline=arguments.flag("offline"))
    failed = any(finding.status == Status.FAULT for finding in findings)
    if arguments.flag("json"):
        write_json({"ok": not failed, "findings": [finding.as_dict() for finding in findings]})
        return 1 if failed else 0
    for finding in findings:
        write_line(f"{finding.status.value:5}  {finding.subject}: {finding.text}")
        for line in finding.remedy:
            write_line(f"         {line}")
    return 1 if failed else 0


def help_command(arguments: Arguments) -> int:
    """`enroot help`: the commands, or the usage of one."""
    from enroot_py.cli.application import read_command_line

    read_command_line([*arguments.operands, "--help"])
    return 0


def completion(arguments: Arguments) -> int:
    """`enroot completion`: the completion script of a shell."""
    from enroot_py.cli.texts.completion import completion_script

    write_text(completion_script(arguments.operands[0]))
    return 0


def man(arguments: Arguments) -> int:
    """`enroot man`: manual pages, one shown or, elsewhere than on a terminal, as roff text."""
    from enroot_py.cli.texts.manual import manual_page, write_manual

    folder = arguments.text("output")
    if folder:
        for path in write_manual(folder):
            write_line(path)
        return 0
    page = manual_page(" ".join(arguments.operands))
    if not (sys.stdout and sys.stdout.isatty() and _show(page)):
        write_text(page)
    return 0


def _show(page: str) -> bool:
    """Show a page with the system's own program, if there is one; say whether there was."""
    import subprocess

    try:
        return subprocess.run(["man", "-l", "-"], input=page.encode(), check=False).returncode == 0
    except FileNotFoundError:
        return False


def _ignore_operands(arguments: Arguments, command: str) -> None:
    # Parity: enroot lets any words follow these commands and does nothing with them.
    if arguments.operands:
        warn(f"{command} takes no arguments; not used: {' '.join(arguments.operands)}")
