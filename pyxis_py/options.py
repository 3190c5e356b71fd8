"""The one table of the `--container-*` flags.

Everything that knows a flag comes from here: the SPANK plugin's C table (`make options` writes
spank_shim/options_table.h), the wrappers' and `pyxis run`'s command lines, the sbatch parser, the
documentation and the tests. A value travels as the raw string; its meaning is in `args.py`.

Pure. Source of names and meanings: pyxis 0.24 args.c; the flags that it lacks are marked `ours`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from enroot_py import NamedTuple


class FlagOption(NamedTuple):
    """One command-line flag.

    Attributes:
        name: without the leading dashes.
        arginfo: what its argument is called in usage texts; "" for a flag without argument.
        usage: one or two sentences, without the `[pyxis]` mark.
        field: the field of `args.RawArguments` that it fills.
        value: what a flag without argument stands for: "1" or "0".
        env: the variable that supplies the value where the flag is not given; "" for none.
        ours: whether NVIDIA's plugin lacks it.
        plain: the form of values that are right beyond doubt: srun starts no interpreter to check
            them (spank_shim/plain.c); "" where there is none.
    """

    name: str
    arginfo: str
    usage: str
    field: str
    value: str = ""
    env: str = ""
    ours: bool = False
    plain: str = ""

    @property
    def takes_argument(self) -> bool:
        return bool(self.arginfo)


_IMAGE = "[USER@][REGISTRY#]IMAGE[:TAG]|PATH"

OPTIONS: tuple[FlagOption, ...] = (
    FlagOption(
        "container-image", _IMAGE,
        "run in this image: a reference as enroot takes it, or the path of a squashfs image on the "
        "compute node",
        "image", env="PYXIS_CONTAINER_IMAGE", plain="path",
    ),
    FlagOption(
        "container-mounts", "SRC:DST[:FLAGS][,SRC:DST...]",
        'bind mounts inside the container; flags are joined with "+", as in "ro+rprivate"',
        "mounts", env="PYXIS_CONTAINER_MOUNTS", plain="mounts",
    ),
    FlagOption(
        "container-workdir", "PATH",
        "start in this directory of the container",
        "workdir", env="PYXIS_CONTAINER_WORKDIR", plain="path",
    ),
    FlagOption(
        "container-name", "NAME[:auto|create|exec|no_exec]",
        "keep the container under this name, and use the one that has it already; containers "
        "without a name are gone when the step ends",
        "name", env="PYXIS_CONTAINER_NAME", plain="name",
    ),
    FlagOption(
        "container-save", "PATH",
        "write the container's state to this squashfs image on the compute node when the step ends",
        "save", env="PYXIS_CONTAINER_SAVE", plain="path",
    ),
    FlagOption(
        "container-mount-home", "",
        "mount the user's home directory (the site's settings may do so already)",
        "mount_home", "1", env="PYXIS_CONTAINER_MOUNT_HOME", plain="switch",
    ),
    FlagOption(
        "no-container-mount-home", "",
        "do not mount the user's home directory",
        "mount_home", "0", plain="switch",
    ),
    FlagOption(
        "container-remap-root", "",
        "be root inside the container; outside it nothing changes",
        "remap_root", "1", env="PYXIS_CONTAINER_REMAP_ROOT", plain="switch",
    ),
    FlagOption(
        "no-container-remap-root", "",
        "be the same user inside the container",
        "remap_root", "0", plain="switch",
    ),
    FlagOption(
        "container-entrypoint", "",
        "run the image's entrypoint first",
        "entrypoint", "1", env="PYXIS_CONTAINER_ENTRYPOINT", plain="switch",
    ),
    FlagOption(
        "no-container-entrypoint", "",
        "do not run the image's entrypoint",
        "entrypoint", "0", plain="switch",
    ),
    FlagOption(
        "container-entrypoint-log", "",
        "print what the entrypoint prints",
        "entrypoint_log", "1", env="PYXIS_CONTAINER_ENTRYPOINT_LOG", plain="switch",
    ),
    FlagOption(
        "container-writable", "",
        "make the container's root filesystem writable",
        "writable", "1", env="PYXIS_CONTAINER_WRITABLE", plain="switch",
    ),
    FlagOption(
        "container-readonly", "",
        "make the container's root filesystem read-only",
        "writable", "0", env="PYXIS_CONTAINER_READONLY", plain="switch",
    ),
    FlagOption(
        "container-env", "NAME[,NAME...]",
        "variables of the job that win over those of the image, and that the entrypoint sees; all "
        "others of the job are passed on unless the image sets them",
        "env", env="PYXIS_CONTAINER_ENV", plain="variables",
    ),
    FlagOption(
        "container-unshare", "NS[,NS...]",
        "new namespaces for the container: net, ipc, uts",
        "unshare", env="PYXIS_CONTAINER_UNSHARE",
    ),
    FlagOption(
        "container-import-timeout", "SECONDS",
        "give up importing the image after so many seconds",
        "import_timeout", env="PYXIS_CONTAINER_IMPORT_TIMEOUT", ours=True,
    ),
    FlagOption(
        "container-digest", "print|sha256:HEX",
        "print the image's digest when the step starts, or run no image but the one that has it",
        "digest", env="PYXIS_CONTAINER_DIGEST", ours=True,
    ),
    FlagOption(
        "container-gpus", "all|none|void|GPU[,GPU...]",
        "GPUs to inject, by index or UUID (by default those of the allocation); none brings the "
        "driver's files alone, void nothing",
        "gpus", env="PYXIS_CONTAINER_GPUS", ours=True,
    ),
    FlagOption(
        "container-device", "VENDOR/CLASS=NAME[,...]",
        "CDI devices to inject",
        "devices", env="PYXIS_CONTAINER_DEVICE", ours=True,
    ),
    FlagOption(
        "environment", "FILE.toml|NAME",
        "an environment definition file: image, mounts, variables and more in one place",
        "environment", env="PYXIS_ENVIRONMENT", ours=True,
    ),
)  # fmt: skip
"""In the order of the SPANK plugin's option ids: rows are added at the end only."""

READONLY_ENV = "PYXIS_CONTAINER_READONLY"
"""The one variable that means the opposite of its field's value."""


def find_option(name: str) -> FlagOption | None:
    """Return the row of a flag given without dashes, or None."""
    for option in OPTIONS:
        if option.name == name:
            return option
    return None


def emit_c() -> str:
    """Return spank_shim/options_table.h: one `X(…)` row a flag, in table order."""
    lines = ["/* Generated from pyxis_py/options.py by `make options`. Do not edit. */"]
    for number, option in enumerate(OPTIONS):
        arginfo = _c_string(option.arginfo) if option.arginfo else "NULL"
        usage = _c_string(f"[pyxis] {option.usage}")
        has_argument = int(option.takes_argument)
        environ = _c_string(option.env) if option.env else "NULL"
        plain = f"PLAIN_{(option.plain or 'none').upper()}"
        lines.append(
            f"X({number}, {_c_string(option.name)}, {arginfo}, {has_argument}, {usage}, {environ},"
            f" {_c_string(option.field)}, {plain})"
        )
    return "\n".join(lines) + "\n"


def _c_string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
