"""Build the SPANK plugin out of the C sources that come with this package.

A plugin fits one release of Slurm, hence it is compiled where it is to be used: with the headers of
that Slurm (`spank.h`), for the interpreter that runs this, and for the folder that this package is
installed in. Both are written into the library; `python=` in plugstack.conf overrides the first.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from enroot_py import NotFoundError, StoreError, UnsupportedError, UsageError

LIBRARY = "spank_pyxis.so"
"""The name of the library that is built."""

WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-fPIC", "-fvisibility=default")
_HARDENING = ("-fstack-protector-strong", "-D_FORTIFY_SOURCE=2", "-Wl,-z,relro")

PACKAGES = Path(__file__).resolve().parents[2]
"""The folder that this package is in: what the keeper puts at the front of its path."""


def find_sources() -> Path:
    """Return the folder of the C sources: in the installed package, or in the source tree.

    Raises:
        NotFoundError: if there are none.
    """
    for folder in (PACKAGES / "pyxis_py" / "spank_shim", PACKAGES / "spank_shim"):
        if (folder / "plugin.c").is_file():
            return folder
    raise NotFoundError(
        "The plugin's C sources are missing", hint="install the package again; they come with it"
    )


def compiler_command(
    output: Path, *, python: str, packages: Path, include: str = "", compiler: str = ""
) -> list[str]:
    """Return the command that compiles the plugin.

    Args:
        output: the library to write.
        python: absolute path of the interpreter that runs the keeper.
        packages: absolute path of the folder that holds `pyxis_py`.
        include: folder that holds `slurm/spank.h`; "" for the compiler's own.
        compiler: e.g. "gcc"; "" for CC or the first one there is.

    Raises:
        NotFoundError: without compiler, sources, or headers in `include`.
        UsageError: for a path that cannot stand in a C string.
    """
    if include and not os.path.isfile(os.path.join(include, "slurm/spank.h")):
        # The compiler would go on and take those of another Slurm, if there are any.
        raise NotFoundError(
            f"There is no slurm/spank.h in {include}",
            hint="--include names the folder that `slurm` is in, such as /opt/slurm/include",
        )
    chosen = compiler or os.environ.get("CC", "") or _find_compiler()
    for path in (python, str(packages)):
        if not path.startswith("/") or set(path) & set('"\\\n'):
            raise UsageError(f"Not a path for the plugin: {path!r}")
    sources = sorted(str(path) for path in find_sources().glob("*.c"))
    return [
        *chosen.split(), *FLAGS, *WARNINGS, *_HARDENING,
        *((f"-I{include}",) if include else ()),
        f'-DPYXIS_PYTHON="{python}"', f'-DPYXIS_PACKAGES="{packages}"',
        "-shared", "-o", str(output), *sources, "-pthread",
    ]  # fmt: skip


def build(
    output: Path, *, include: str = "", compiler: str = "", python: str = "", packages: str = ""
) -> Path:
    """Compile the plugin; the file appears whole or not at all.

    Args:
        output: the library to write, or a folder to write it into.
        include, compiler: as for `compiler_command`.
        python: interpreter for the keeper; "" for this one.
        packages: folder of the package; "" for this one.

    Raises:
        UnsupportedError: if the compiler fails, with what it printed.
        NotFoundError: without compiler, sources, Slurm's headers or the output's folder.
        StoreError: if the library cannot be written.
    """
    target = output / LIBRARY if output.is_dir() else output
    if not target.parent.is_dir():
        raise NotFoundError(f"No such folder: {target.parent}")
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".pyxis-build-") as folder:
            library = Path(folder) / LIBRARY
            command = compiler_command(
                library,
                python=python or interpreter(),
                packages=Path(packages) if packages else PACKAGES,
                include=include,
                compiler=compiler,
            )
            _compile(command)
            library.chmod(0o755)
            os.replace(library, target)
    except OSError as error:
        raise StoreError(
            f"Cannot write {target}: {error.strerror}",
            hint="name another place with --output, or run this as its owner",
        ) from error
    return target


def _compile(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NotFoundError(
            f"Cannot execute the C compiler {command[0]}: {error.strerror}",
            hint="install gcc, or name another one with --cc or in CC",
        ) from error
    if done.returncode:
        _explain(done.stderr or f"{command[0]} ended with status {done.returncode}")


def interpreter() -> str:
    """Return the absolute path of the interpreter that runs this."""
    # Not what a link in a virtual environment leads to: the environment's libraries are needed.
    return os.path.abspath(sys.executable)


def _find_compiler() -> str:
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return name
    raise NotFoundError("No C compiler was found", hint="install gcc, or set CC")


def _explain(printed: str) -> None:
    if "slurm/spank.h" in printed or "slurm/slurm" in printed:
        raise NotFoundError(
            "Slurm's headers were not found",
            hint="install them (libslurm-dev, slurm-devel), or name the folder that holds"
            " slurm/spank.h with --include",
        )
    last = "\n".join(printed.strip().splitlines()[-20:])
    raise UnsupportedError("The plugin cannot be compiled", hint=last)
