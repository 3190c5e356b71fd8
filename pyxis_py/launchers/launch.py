"""`pyxis_py.launch`: run a command in containers from a program, with Slurm or without it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence

from enroot_py import UsageError
from pyxis_py.launchers.step_hooks import read_flags
from pyxis_py.options import find_option

_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_WRAPPER = (
    # In place of the working directory, whose files are the job's and no modules of ours.
    f"import sys; sys.path[0] = {_FOLDER!r};"
    " from pyxis_py.launchers.srun import main; sys.exit(main())"
)


def container_flags(
    *,
    image: str = "",
    mounts: Iterable[str] = (),
    workdir: str = "",
    name: str = "",
    save: str = "",
    env: Iterable[str] = (),
    environment: str = "",
    **others: bool | float | str | Iterable[str] | None,
) -> list[str]:
    """Return container flags as words.

    Args:
        image, workdir, name, save, environment: as the flags of these names take them.
        mounts: as the items of --container-mounts.
        env: names of variables of the job that win over those of the image.
        others: mount_home, remap_root, entrypoint, writable, entrypoint_log: True and False as the
            flag and its opposite; gpus, device, unshare, digest, import_timeout: as the flags take
            them, or a list of items. None leaves what the site has set.

    Raises:
        UsageError: for a name or a value that there is not.
    """
    words = []
    for flag, value in (
        ("container-image", image), ("container-workdir", workdir), ("container-name", name),
        ("container-save", save), ("environment", environment),
        ("container-mounts", _items("mounts", mounts)), ("container-env", _items("env", env)),
    ):  # fmt: skip
        if value:
            words.append(f"--{flag}={value}")
    for other, wanted in others.items():
        if wanted is not None:
            words.append(_flag(other, wanted))
    return words


def _items(name: str, items: Iterable[str]) -> str:
    return ",".join(check_words(name, items))


def check_words(name: str, words: Iterable[str]) -> list[str]:
    """Return words as a list.

    Raises:
        UsageError: for a text, whose letters would be taken for words, and for what is no text.
    """
    if isinstance(words, str | bytes):
        raise UsageError(f"{name}: expected a list of texts, got {type(words).__name__}")
    listed = [os.fspath(word) if isinstance(word, os.PathLike) else word for word in words]
    for word in listed:
        if not isinstance(word, str):
            raise UsageError(f"{name}: expected texts, got {type(word).__name__} in it")
    return listed


def _flag(name: str, wanted: bool | float | str | Iterable[str]) -> str:
    positive = f"container-{name.replace('_', '-')}"
    if isinstance(wanted, bool):
        negative = {"container-writable": "container-readonly"}.get(positive, f"no-{positive}")
        flag = positive if wanted else negative
        option = find_option(flag)
        if option is not None and not option.takes_argument:
            return f"--{flag}"
    else:
        option = find_option(positive)
        if option is not None and option.takes_argument:
            text = str(wanted) if isinstance(wanted, str | int | float) else _items(name, wanted)
            return f"--{positive}={text}"
    raise UsageError(f"There is no flag of containers {name}={wanted!r}")


def launch_command(
    command: Sequence[str],
    *,
    nodes: int = 1,
    tasks_per_node: int = 1,
    srun_options: Iterable[str] = (),
    **container: object,
) -> list[str]:
    """Return the words that run a command through srun: for job scripts and other schedulers.

    Args:
        command: the program and its arguments.
        nodes, tasks_per_node: the size of the step.
        srun_options: further options of srun.
        container: as for `container_flags`.

    Raises:
        UsageError: for arguments that cannot be.
    """
    command, srun_options = check_command(command), check_words("srun_options", srun_options)
    flags = container_flags(**container)  # type: ignore[arg-type]
    size = [f"--nodes={nodes}", f"--ntasks-per-node={tasks_per_node}"]
    size.append(f"--ntasks={nodes * tasks_per_node}")
    return [sys.executable, "-c", _WRAPPER, *size, *srun_options, *flags, *command]


def check_command(command: Sequence[str]) -> list[str]:
    """Return a command's words; raises UsageError if it has none, or is a text."""
    words = check_words("command", command)
    if not words:
        raise UsageError("command: nothing to run")
    return words


def launch(
    command: Sequence[str],
    *,
    nodes: int = 1,
    tasks_per_node: int = 1,
    launcher: str = "auto",
    srun_options: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
    **container: object,
) -> int:
    """Run a command in a container on every task of a step; return the exit status.

    Args:
        command: the program and its arguments.
        nodes, tasks_per_node: the size of the step.
        launcher: "srun", "local", or "auto": srun where there is one.
        srun_options: further options of srun.
        environ: the job's environment; this process's if None.
        container: image, mounts, workdir, name, save, env, environment and further flags; see
            `container_flags`.

    Raises:
        UsageError: for arguments that cannot be, such as several nodes without Slurm.
        EnrootError: if a local container cannot be started.
    """
    if launcher not in ("auto", "srun", "local"):
        raise UsageError(f"There is no launcher {launcher!r}", hint="expected auto, srun or local")
    command = check_command(command)
    if launcher == "auto":
        launcher = "srun" if shutil.which("srun") else "local"
    if launcher == "srun":
        words = launch_command(
            command,
            nodes=nodes,
            tasks_per_node=tasks_per_node,
            srun_options=srun_options,
            **container,
        )
        given = None if environ is None else dict(environ)
        status = subprocess.run(words, env=given, check=False).returncode
        return status if status >= 0 else 128 - status
    if nodes != 1:
        raise UsageError(f"{nodes} nodes need Slurm", hint="without it there is this machine alone")
    from pyxis_py.launchers.local import run_local

    flags = read_flags(container_flags(**container))  # type: ignore[arg-type]
    return run_local(command, flags, tasks=tasks_per_node, environ=environ)
