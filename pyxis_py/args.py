"""Raw flag values → typed arguments.

The same rules serve the plugin, the wrappers, `pyxis run`, the sbatch parser and the Python API: a
flag given twice with the same value is one flag (Slurm passes options on twice), with two values it
is an error; a flag beats its variable, and a bad variable is not even looked at when the flag is
given.

Pure. Source: pyxis 0.24 args.c.
"""

from __future__ import annotations

from enroot_py import UsageError
from pyxis_py.options import OPTIONS, READONLY_ENV, FlagOption

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import NamedTuple
else:
    from enroot_py import NamedTuple

NAME_MODES = ("auto", "create", "exec", "no_exec")
NAMESPACES = ("net", "ipc", "uts")
_TRUE = ("1", "true", "yes", "y")
_FALSE = ("0", "false", "no", "n")
_NAME_CHARACTERS = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+@=,"
)


class MountEntry(NamedTuple):
    """One mount of `--container-mounts`.

    Attributes:
        source: a path (absolute, or relative to the job's working directory), `tmpfs` or `umount`.
        target: a path inside the container.
        options: mount options, as in fstab, with the defaults for this kind of source first.
    """

    source: str
    target: str
    options: tuple[str, ...]


class Arguments(NamedTuple):
    """What was asked of the container of one step. None and "" mean: not asked."""

    image: str = ""
    mounts: tuple[MountEntry, ...] = ()
    workdir: str = ""
    name: str = ""
    name_mode: str = "auto"
    save: str = ""
    mount_home: bool | None = None
    remap_root: bool | None = None
    entrypoint: bool | None = None
    entrypoint_log: bool = False
    writable: bool | None = None
    env: tuple[str, ...] = ()
    unshare: tuple[str, ...] = ()
    import_timeout: float = 0.0
    digest: str = ""
    gpus: str = ""
    devices: tuple[str, ...] = ()
    environment: str = ""

    @property
    def enabled(self) -> bool:
        """Whether the step runs in a container at all."""
        return bool(self.image or self.name or self.environment)


class RawValue(NamedTuple):
    """One flag as it was given: its row, and its argument ("" for a flag without)."""

    option: FlagOption
    argument: str


def parse_arguments(
    given: Iterable[RawValue], environ: Mapping[str, str], *, job_environ_only: bool = False
) -> Arguments:
    """Turn flags and variables into arguments.

    Args:
        given: the flags in the order in which they were given.
        environ: the job's environment, for the PYXIS_* variables of fields without a flag.
        job_environ_only: ignore `given` (a step that only variables describe).

    Raises:
        UsageError: naming the flag or variable, what it got and what it takes.
    """
    raw: dict[str, list[tuple[str, str]]] = {}
    for value in () if job_environ_only else given:
        text = value.argument if value.option.takes_argument else value.option.value
        raw.setdefault(value.option.field, []).append(("--" + value.option.name, text))
    for option in OPTIONS:
        text = environ.get(option.env, "") if option.env else ""
        if text and option.field not in raw:
            if not option.takes_argument:
                switch = _boolean(text)
                if switch is None:
                    continue
                text = str(int(switch != (option.env == READONLY_ENV)))
            raw[option.field] = [(option.env, text)]
    fields: dict[str, object] = {}
    for field, values in raw.items():
        fields.update(_PARSERS[field](field, values))
    return Arguments(**fields)  # type: ignore[arg-type]


def ignored_without_container(arguments: Arguments) -> list[str]:
    """Return the fields that were asked for though there is neither an image nor a name."""
    if arguments.enabled:
        return []
    defaults = Arguments()
    return [
        field
        for field, value, default in zip(arguments._fields, arguments, defaults, strict=True)
        if value != default
    ]


def _boolean(text: str) -> bool | None:
    """Source: pyxis 0.24 config.c, parse_bool(): anything else is ignored in variables."""
    if text in _TRUE:
        return True
    return False if text in _FALSE else None


def _single(field: str, values: list[tuple[str, str]]) -> dict[str, object]:
    """One value, however often it is given."""
    flag, text = values[0]
    if not text:
        raise UsageError(f"{flag}: a value is missing")
    for other_flag, other in values[1:]:
        if other != text:
            raise UsageError(f"{other_flag} was given more than once: {text!r} and {other!r}")
    return {field: text}


def _switch(field: str, values: list[tuple[str, str]]) -> dict[str, object]:
    texts = {text for _, text in values}
    if len(texts) > 1:
        names = " and ".join(dict.fromkeys(flag for flag, _ in values))
        raise UsageError(f"{names} contradict each other: give one of them")
    return {field: texts == {"1"}}


def _list(field: str, values: list[tuple[str, str]]) -> dict[str, object]:
    items: dict[str, None] = {}
    for flag, text in values:
        for item in text.split(","):
            if not item:
                raise UsageError(f"{flag}: an empty item in {text!r}", hint="expected A[,B...]")
            items[item] = None
    return {field: tuple(items)}


def _env(field: str, values: list[tuple[str, str]]) -> dict[str, object]:
    parsed = _list(field, values)
    for name in parsed[field]:  # type: ignore[attr-defined]
        if not _is_variable_name(name):
            raise UsageError(
                f"{values[0][0]}: not a variable name: {name!r}",
                hint="name variables of the job; set values in the job's environment",
            )
    return parsed


def _is_variable_name(name: str) -> bool:
    return name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit()


def _unshare(field: str, values: list[tuple[str, str]]) -> dict[str, object]:
    parsed = _list(field, values)
    for namespace in parsed[field]:  # type: ignore[attr-defined]
        if namespace not in NAMESPACES:
            raise UsageError(
                f"{values[0][0]}: unknown namespace {namespace!r}",
                hint="expected " + ", ".join(NAMESPACES),
            )
    return parsed


def _name(field: str, values: list[tuple[str, str]]) -> dict[str, object]:
    text = str(_single(field, values)[field])
    flag = values[0][0]
    name, _, mode = text.partition(":")
    if not name:
        raise UsageError(f"{flag}: the name is empty: {text!r}")
    if not set(name) <= _NAME_CHARACTERS or name[0] in ".-" or len(name) > 200:
        raise UsageError(
            f"{flag}: not a container name: {name!r}",
            hint="letters, digits and ._-+@=, and no more than 200 of them",
        )
    if mode and mode not in NAME_MODES:
        raise UsageError(
            f"{flag}: unknown mode {mode!r}", hint="expected one of " + ", ".join(NAME_MODES)
        )
    return {"name": name, "name_mode": mode or "auto"}


def _save(field: str, values: list[tuple[str, str]]) -> dict[str, object]:
    text = str(_single(field, values)[field])
    if text.endswith("/"):
        raise UsageError(f"{values[0][0]}: a folder, not a file: {text!r}")
    return {field: text}


def _seconds(field: str, values: list[tuple[str, str]]) -> dict[str, object]:
    text = str(_single(field, values)[field])
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 10**9:
        raise UsageError(f"{values[0][0]}: not a number of seconds: {text!r}")
    return {field: seconds}


def _digest(field: str, values: list[tuple[str, str]]) -> dict[str, object]:
    text = str(_single(field, values)[field])
    algorithm, _, hexadecimal = text.partition(":")
    pinned = (
        algorithm == "sha256"
        and len(hexadecimal) == 64
        and set(hexadecimal) <= set("0123456789abcdef")
    )
    if text != "print" and not pinned:
        raise UsageError(f"{values[0][0]}: neither `print` nor a sha256 digest: {text!r}")
    return {field: text}


def _gpus(field: str, values: list[tuple[str, str]]) -> dict[str, object]:
    """Refuse what no node can have; which GPUs there are only the nodes know."""
    text = str(_single(field, values)[field])
    for item in text.split(","):
        if item.strip() and not _may_be_gpu(item.strip().lower()):
            raise UsageError(
                f"{values[0][0]}: neither a GPU nor a number of one: {item!r}",
                hint="expected all, none, void, or indexes and UUIDs with commas between them",
            )
    return {field: text}


def _may_be_gpu(item: str) -> bool:
    if item in ("all", "none", "void") or item.startswith(("gpu-", "mig-")) or _is_device(item):
        return True
    # An index, host:N, GPU:MIG, or a PCI address.
    number = item.removeprefix("host:")
    address = ":" in number and set(number) <= set("0123456789abcdef:.")
    return number.isascii() and (number.isdecimal() or address)


def _is_device(item: str) -> bool:
    kind, equals, name = item.partition("=")
    vendor, slash, of_vendor = kind.partition("/")
    return bool(equals and slash and vendor and of_vendor and name)


def _devices(field: str, values: list[tuple[str, str]]) -> dict[str, object]:
    parsed = _list(field, values)
    for item in parsed[field]:  # type: ignore[attr-defined]
        if not _is_device(item):
            raise UsageError(
                f"{values[0][0]}: not a device's name: {item!r}", hint="expected VENDOR/CLASS=NAME"
            )
    return parsed


def _mounts(field: str, values: list[tuple[str, str]]) -> dict[str, object]:
    entries: dict[MountEntry, None] = {}
    for flag, text in values:
        for item in text.split(","):
            entries[parse_mount_entry(item, flag=flag)] = None
    return {field: tuple(entries)}


def parse_mount_entry(text: str, *, flag: str = "--container-mounts") -> MountEntry:
    """Parse one `SRC[:DST[:FLAGS]]`; flags are joined with "+".

    Raises:
        UsageError: if a part is missing or is no path.

    Source: pyxis 0.24 args.c, parse_mount_option() and add_mount().
    """
    source, colon, rest = text.partition(":")
    target, _, flags = rest.partition(":")
    if not colon:
        target = source
    if not source or not target:
        raise UsageError(f"{flag}: malformed mount {text!r}", hint="expected SRC:DST[:FLAGS]")
    if source[0] in "./":
        defaults: tuple[str, ...] = ("x-create=auto", "rbind")
    elif source == "tmpfs":
        defaults = ("x-create=dir",)
    elif source == "umount":
        defaults = ("x-detach",)
    else:
        raise UsageError(
            f"{flag}: not a mount source: {source!r}",
            hint="expected a path that starts with / or ., or `tmpfs`, or `umount`",
        )
    if target[0] not in "./":
        raise UsageError(f"{flag}: not a mount target: {target!r}", hint="expected a path")
    options = tuple(option for option in flags.replace("+", ",").split(",") if option)
    return MountEntry(source, target, defaults + options)


_PARSERS: dict[str, Callable[[str, list[tuple[str, str]]], dict[str, object]]] = {
    "image": _single,
    "mounts": _mounts,
    "workdir": _single,
    "name": _name,
    "save": _save,
    "mount_home": _switch,
    "remap_root": _switch,
    "entrypoint": _switch,
    "entrypoint_log": _switch,
    "writable": _switch,
    "env": _env,
    "unshare": _unshare,
    "import_timeout": _seconds,
    "digest": _digest,
    "gpus": _gpus,
    "devices": _devices,
    "environment": _single,
}
