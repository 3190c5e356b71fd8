"""Environment definition files: an image, its mounts and its variables in one TOML file.

    base_environment = "common"            # or a list; what this file sets wins over its bases
    image = "nvcr.io#nvidia/pytorch:25.01-py3"
    mounts = ["${SCRATCH}:${SCRATCH}", "/capstor:/capstor:ro"]
    workdir = "${SCRATCH}"
    entrypoint = false
    writable = false
    devices = ["nvidia.com/gpu=all"]

    [env]
    HF_HOME = "${SCRATCH}/huggingface"
    DEBUG = ""                             # an empty value removes the variable

    [annotations]
    com.hooks.aws_ofi_nccl.enabled = "true"

`--environment=NAME` is looked for as NAME.toml in the folders of EDF_PATH (by default ~/.edf);
`--environment=./file.toml`, with a slash or the suffix, is a path.

Source: CSCS documentation of the container engine, "EDF reference". Annotations become variables
for hooks: see `annotation_variables`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from enroot_py import NotFoundError, UsageError
from pyxis_py.args import Arguments, parse_mount_entry

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LARGEST_FILE = 1 << 20
DEEPEST_BASE = 10
SUFFIX = ".toml"

KEYS = {
    "base_environment": (str, list), "image": (str,), "mounts": (list,), "workdir": (str,),
    "entrypoint": (bool,), "writable": (bool,), "devices": (list,), "env": (dict,),
    "annotations": (dict,),
}  # fmt: skip
"""Every key that a file may have, and what its value may be."""
KINDS = {str: "a string", list: "a list of strings", bool: "true or false", dict: "a table"}
"""What each type of value is called."""

_VARIABLE = re.compile(r"\$(?:\{([^}]*)\}|(\$)|(\{))")
_DEFAULT = ":-"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class Environment:
    """What a file and its bases say. None and "" mean: not said.

    Attributes:
        image: as `--container-image` takes it.
        mounts: as the items of `--container-mounts`, bases first.
        env: variables for the container, as written; one with an empty value is to be removed.
            `expand_variables` completes them once the container's own are known.
        workdir: directory inside the container.
        entrypoint: whether the image's entrypoint runs.
        writable: whether the rootfs is writable.
        devices: CDI names.
        annotations: dotted names and their values.
    """

    image: str = ""
    mounts: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""
    entrypoint: bool | None = None
    writable: bool | None = None
    devices: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)


def load_environment(name: str, environ: Mapping[str, str], *, cwd: str) -> Environment:
    """Find, read and complete an environment definition file.

    Args:
        name: a name or a path, as the flag takes it.
        environ: EDF_PATH, HOME and what `${NAME}` refers to.
        cwd: absolute folder that a relative path counts from.

    Raises:
        NotFoundError: if there is no such file; the hint lists where it was looked for.
        UsageError: naming file, line or key, if it is malformed.
    """
    return _load(name, environ, cwd, ())


def merge_environment(arguments: Arguments, environment: Environment) -> Arguments:
    """Return the arguments with what they leave open filled in from a file; flags win.

    Raises:
        UsageError: for a malformed mount, and if nothing says which image or container to use.
    """
    if not (arguments.image or environment.image or arguments.name):
        raise UsageError(
            f"--environment={arguments.environment}: no image is named, in the file or its bases",
            hint="write image = … into it, or give --container-image",
        )
    mounts = tuple(
        parse_mount_entry(text, flag="mounts of the environment file")
        for text in environment.mounts
    )
    return arguments._replace(
        image=arguments.image or environment.image,
        mounts=mounts + arguments.mounts,
        workdir=arguments.workdir or environment.workdir,
        entrypoint=_first(arguments.entrypoint, environment.entrypoint),
        writable=_first(arguments.writable, environment.writable),
        devices=arguments.devices or environment.devices,
    )


def annotation_variables(environment: Environment) -> dict[str, str]:
    """Return the variables by which hooks see annotations: `a.b-c` → PYXIS_ANNOTATION_A_B_C."""
    return {
        "PYXIS_ANNOTATION_" + re.sub(r"[^A-Za-z0-9]", "_", name).upper(): value
        for name, value in environment.annotations.items()
    }


def expand_variables(
    variables: Iterable[tuple[str, str]], environ: Mapping[str, str], *, origin: str
) -> tuple[tuple[str, str], ...]:
    """Complete the variables of a file.

    Args:
        variables: names and values as written.
        environ: what `${NAME}` refers to: the container's variables over those of the job.
        origin: the file, as it was asked for.

    Raises:
        UsageError: for a reference to a variable that neither has.
    """
    return tuple(
        (name, _expand(text, environ, f"--environment={origin}: env.{name}"))
        for name, text in variables
    )


def _first(value: bool | None, other: bool | None) -> bool | None:
    return other if value is None else value


def _load(name: str, environ: Mapping[str, str], cwd: str, chain: tuple[str, ...]) -> Environment:
    path = find_file(name, environ, cwd=cwd)
    if path in chain:
        raise UsageError(
            f"{path}: base_environment leads back to this file",
            hint=" → ".join((*chain[chain.index(path) :], path)),
        )
    if len(chain) > DEEPEST_BASE:
        raise UsageError(f"{path}: base_environment is nested more than {DEEPEST_BASE} deep")
    values = _parse(path)
    merged = Environment()
    folder = os.path.dirname(path)
    for text in _strings(path, "base_environment", values.get("base_environment", [])):
        base = _expand(text, environ, f"{path}: base_environment")
        merged = _over(merged, _load(base, environ, folder, (*chain, path)))
    return _over(merged, _build(path, values, environ))


def find_file(name: str, environ: Mapping[str, str], *, cwd: str) -> str:
    """Return the absolute path of the file that a name or a path stands for.

    Raises:
        NotFoundError: if there is none.
        UsageError: for a name that cannot be one.
    """
    if "\0" in name or not name:
        raise UsageError(f"--environment: not a name: {name!r}")
    if "/" in name or name.endswith(SUFFIX):
        path = os.path.join(cwd, os.path.expanduser(name))
        if os.path.isfile(path):
            return os.path.realpath(path)
        raise NotFoundError(f"--environment: no such file: {path}", hint=_near(name, path))
    if name in (".", ".."):
        raise UsageError(f"--environment: not a name: {name!r}")
    folders = environ.get("EDF_PATH") or os.path.join(environ.get("HOME", "/"), ".edf")
    for folder in filter(None, folders.split(":")):
        path = os.path.join(folder, name + SUFFIX)
        if os.path.isfile(path):
            return os.path.realpath(path)
    raise NotFoundError(
        f"--environment: no file {name}{SUFFIX}", hint=f"looked for it in {folders} (EDF_PATH)"
    )


def _near(name: str, path: str) -> str:
    if os.path.isdir(path):
        return "it is a folder"
    if os.path.isfile(path + SUFFIX):
        return f"there is {name}{SUFFIX}"
    if "/" not in name:
        return f"as {name.removesuffix(SUFFIX)} it is looked for in the folders of EDF_PATH"
    return ""


def _parse(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}") from error
    if len(data) > LARGEST_FILE:
        raise UsageError(f"{path}: larger than {LARGEST_FILE >> 20} MiB")
    try:
        values: dict[str, Any] = tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        bad = data[: error.start].count(b"\n") + 1
        raise UsageError(f"{path}:{bad}: not UTF-8") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        match = re.search(r"line (\d+)", str(error))
        line = int(match[1]) if match else data.rstrip().count(b"\n") + 1
        raise UsageError(f"{path}:{line}: {error}") from error
    return values


def _build(path: str, values: dict[str, Any], environ: Mapping[str, str]) -> Environment:
    for key, value in values.items():
        if key not in KEYS:
            raise UsageError(f"{path}: unknown key {key!r}", hint="known: " + ", ".join(KEYS))
        if not isinstance(value, KEYS[key]):
            kinds = " or ".join(KINDS[kind] for kind in KEYS[key])
            raise UsageError(f"{path}: {key}: expected {kinds}, got {_shown(value)}")

    def expand(key: str, text: str) -> str:
        return _expand(text, environ, f"{path}: {key}")

    return Environment(
        image=expand("image", values.get("image", "")),
        mounts=tuple(expand("mounts", item) for item in _strings(path, "mounts", values)),
        env=dict(_variables(path, values)),
        workdir=expand("workdir", values.get("workdir", "")),
        entrypoint=values.get("entrypoint"),
        writable=values.get("writable"),
        devices=tuple(expand("devices", item) for item in _strings(path, "devices", values)),
        annotations={
            name: expand(f"annotations.{name}", text)
            for name, text in _flatten(path, "annotations", values.get("annotations", {}))
        },
    )


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _strings(path: str, key: str, values: object) -> list[str]:
    found = values.get(key, []) if isinstance(values, dict) else values
    items = [found] if isinstance(found, str) else found
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise UsageError(f"{path}: {key}: expected strings, got {_shown(items)}")
    return items


def _variables(path: str, values: dict[str, Any]) -> list[tuple[str, str]]:
    variables = []
    for name, value in values.get("env", {}).items():
        if not _NAME.match(name):
            raise UsageError(f"{path}: env: not a variable name: {name!r}")
        if not isinstance(value, str) or "\0" in value:
            raise UsageError(f"{path}: env.{name}: expected a string, got {_shown(value)}")
        _check_references(value, f"{path}: env.{name}")
        variables.append((name, value))
    return variables


def _flatten(path: str, prefix: str, table: dict[str, Any]) -> list[tuple[str, str]]:
    """Turn nested tables (TOML reads a dotted key as such) into dotted names."""
    found = []
    for key, value in table.items():
        name = f"{prefix}.{key}"
        if isinstance(value, dict):
            found += _flatten(path, name, value)
        elif isinstance(value, str | bool | int):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            found.append((name.removeprefix("annotations."), text))
        else:
            kinds = "a string, a number, or true or false"
            raise UsageError(f"{path}: {name}: expected {kinds}, got {_shown(value)}")
    return found


def _expand(text: str, environ: Mapping[str, str], where: str) -> str:
    """Replace `${NAME}` and `${NAME:-DEFAULT}`; `$$` stands for a dollar sign.

    Raises:
        UsageError: for a variable that is not set, and for a brace that is not closed: a path made
            of nothing would mount or write somewhere else.
    """

    def replace(match: re.Match[str]) -> str:
        if match[2]:
            return "$"
        name, has_default, default = _reference(match, where).partition(_DEFAULT)
        value = environ.get(name, "")
        if has_default:
            return value or default
        if name not in environ:
            raise UsageError(
                f"{where}: the variable {name} is not set",
                hint=f"${{{name}:-}} stands for nothing where it is not set",
            )
        return value

    return _VARIABLE.sub(replace, text)


def _check_references(text: str, where: str) -> None:
    for match in _VARIABLE.finditer(text):
        if not match[2]:
            _reference(match, where)


def _reference(match: re.Match[str], where: str) -> str:
    """Return what stands between the braces. Raises UsageError if that is no reference."""
    if match[3]:
        raise UsageError(f"{where}: a brace is not closed in {match.string!r}")
    if not _NAME.match(match[1].partition(_DEFAULT)[0]):
        raise UsageError(f"{where}: not a variable: ${{{match[1]}}}")
    return match[1]


def _over(base: Environment, top: Environment) -> Environment:
    return Environment(
        image=top.image or base.image,
        mounts=base.mounts + tuple(item for item in top.mounts if item not in base.mounts),
        env={**base.env, **top.env},
        workdir=top.workdir or base.workdir,
        entrypoint=_first(top.entrypoint, base.entrypoint),
        writable=_first(top.writable, base.writable),
        devices=base.devices + tuple(item for item in top.devices if item not in base.devices),
        annotations={**base.annotations, **top.annotations},
    )
