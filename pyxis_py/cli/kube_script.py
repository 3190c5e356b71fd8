"""Command lines that name a batch script: their words, and what they render to."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from enroot_py import NotFoundError, UsageError

if TYPE_CHECKING:
    from pyxis_py.command_lines.slurm_options import GivenOption, SlurmOption
    from pyxis_py.kubernetes.pod.context import RenderOptions, Submitter
    from pyxis_py.kubernetes.profile.site import Profile
    from pyxis_py.kubernetes.spec.jobspec import JobSpec
    from pyxis_py.kubernetes.spec.notes import Ledger, Note

PROFILE_VARIABLE = "PYXIS_KUBE_PROFILE"
"""Names the site profile where --profile does not."""
RENDER_WITH_VALUE = (
    "target", "gpu-api", "profile", "namespace", "job-id", "launcher", "env-secret", "allow",
)  # fmt: skip
RENDER_SWITCHES = ("explain", "capture-env", "bring-python")
SUBMIT_WITH_VALUE = (*RENDER_WITH_VALUE, "client", "kubeconfig", "context")
SUBMIT_SWITCHES = ("capture-env", "bring-python")
_REPEATED = ("env-secret", "allow")


class UncutCommand(click.Command):
    """A command whose words are cut with sbatch's own table, which click's parser cannot follow."""

    text = ""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the words as they are."""
        ctx.params["words"] = tuple(args)
        return []


@dataclass(slots=True)
class ScriptCommand:
    """A command line that names a script: its own options, and sbatch's words."""

    own: dict[str, Any]
    words: list[str]
    profile: Profile
    _text: str | None = None

    def read(self) -> tuple[JobSpec, Ledger]:
        """Read the job anew; the script itself is read once, since it may be standard input."""
        from pyxis_py.kubernetes.spec.job_reader import read_job

        allow = _check_codes(self.own.get("allow", []))
        # A shell's PWD may be another's: of a program that changed its directory.
        environ = {**os.environ, "PWD": os.getcwd()}
        return read_job(self.words, self._read_script, environ, allow=allow)

    def _read_script(self, path: str) -> str:
        if self._text is None:
            self._text = _read_script(path)
        return self._text

    def options(self, *, launcher: bytes | None = None, submitting: bool = False) -> RenderOptions:
        """Return what the renderer is told, with a new job id unless one was given."""
        import dataclasses

        options = _options(self.own, self.profile)
        launcher = options.launcher if options.launcher is not None else launcher
        return dataclasses.replace(options, launcher=launcher, submitting=submitting)


def read_command(
    words: Sequence[str], with_value: Sequence[str], switches: Sequence[str], command: str
) -> ScriptCommand:
    """Cut a command line and read its profile."""
    from pyxis_py.kubernetes.profile.reader import read_profile
    from pyxis_py.kubernetes.profile.site import Profile

    own, rest = cut_words(words, with_value, switches, command)
    path = own.get("profile") or os.environ.get(PROFILE_VARIABLE)
    return ScriptCommand(own, rest, read_profile(str(path)) if path else Profile())


def asks_for_help(
    words: Sequence[str], with_value: Sequence[str], switches: Sequence[str], command: str
) -> bool:
    """Whether --help (-h) is among a command's options, or nothing at all was typed.

    Without words the script is standard input, as sbatch has it; a terminal gets the help.
    """
    import sys

    if not words:
        return sys.stdin is not None and sys.stdin.isatty()  # None: it was closed
    try:
        own, _ = cut_words(words, with_value, switches, command)
    except UsageError:
        return False  # it is said when they are cut again
    return "help" in own


def print_notes(notes: Sequence[Note], *, but: Sequence[str] = ()) -> None:
    """Print on standard error what is not rendered faithfully; `but` are codes to leave out."""
    for note in notes:
        if note.kind != "rendered" and note.code not in but:
            click.echo(f"pyxis: {note}", err=True)


def cut_words(
    words: Sequence[str],
    with_value: Sequence[str] = RENDER_WITH_VALUE,
    switches: Sequence[str] = RENDER_SWITCHES,
    command: str = "pyxis kube render",
) -> tuple[dict[str, Any], list[str]]:
    """Separate a command's own options from sbatch's words, wherever they stand.

    Returns:
        Values by name, and `[sbatch options] SCRIPT [arguments]` as sbatch takes them.

    Raises:
        UsageError: if an option is unknown, ambiguous or lacks its value.
    """
    table = _table(with_value, switches)
    given, script = _cut(words, table, command, "")
    arguments: list[str] = []
    if script and not any(option.name == "wrap" for option in given):
        # sbatch's options may stand behind the script too; its arguments then follow `--`.
        hint = f"arguments of the script go behind --: {script[0]} -- …"
        behind, arguments = _cut(script[1:], table, command, hint)
        given += behind
        script = script[:1]
    own: dict[str, Any] = {}
    rest: list[str] = []
    for option in given:
        _sort(option, {*with_value, *switches}, own, rest)
    return own, [*rest, *(["--"] if script else []), *script, *arguments]


def _cut(
    words: Sequence[str], table: list[SlurmOption], command: str, hint: str
) -> tuple[list[GivenOption], list[str]]:
    from pyxis_py.command_lines.slurm_options import OptionError, split_command_line

    try:
        return split_command_line(words, table, command=command)
    except OptionError as error:  # whose status is srun's and sbatch's
        raise UsageError(str(error), hint=error.hint or hint) from error


def _table(with_value: Sequence[str], switches: Sequence[str]) -> list[SlurmOption]:
    from pyxis_py.command_lines.slurm_options import SlurmOption, built_in_options

    # sbatch's own --profile, for accounting, is out of reach here: it has no effect anyway.
    own = {*with_value, *switches}
    table = [option for option in built_in_options("sbatch") if option.name not in own]
    table += [SlurmOption(name, "required") for name in with_value]
    table += [SlurmOption(name, "none") for name in switches]
    return table


def _sort(option: GivenOption, names: set[str], own: dict[str, Any], rest: list[str]) -> None:
    if option.name in _REPEATED:
        own.setdefault(option.name, []).append(option.value)
    elif option.name in names or option.name == "help":
        own[option.name] = option.value
    else:
        rest.extend(option.words)


def _check_codes(codes: list[str]) -> list[str]:
    from pyxis_py.kubernetes.spec.notes import ALLOWABLE

    for code in codes:
        if code not in ALLOWABLE:
            raise UsageError(
                f"--allow: cannot go on in spite of {code!r}",
                hint="one of " + ", ".join(sorted(ALLOWABLE)),
            )
    return codes


def _read_script(path: str) -> str:
    import sys

    name = "standard input" if path == "-" else path
    if path == "-" and sys.stdin is None:
        # Its number may be another file's by now.
        raise NotFoundError("Cannot read the batch script: standard input is closed")
    try:
        with open(0 if path == "-" else path, "rb", closefd=path != "-") as file:
            return file.read().decode("utf-8")
    except OSError as error:
        raise NotFoundError(f"Cannot read the batch script {name}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name} is not UTF-8: a ConfigMap cannot have it",
            hint="save it as UTF-8, or move what is not to a file of its own",
        ) from error


def _options(own: dict[str, Any], profile: Profile) -> RenderOptions:
    import re
    import secrets

    from pyxis_py.kubernetes.pod.context import GPU_APIS, TARGETS, RenderOptions
    from pyxis_py.kubernetes.shapes.profile_shape import DNS_LABEL

    target = _choose("target", own.get("target", profile.target), TARGETS)
    gpu_api = _choose("gpu-api", own.get("gpu-api", profile.gpu_api), GPU_APIS)
    namespace = own.get("namespace", "")
    if namespace and not re.fullmatch(DNS_LABEL, namespace):
        raise UsageError(f"--namespace: not a namespace: {namespace!r}")
    return RenderOptions(
        target, gpu_api, _job_id(own.get("job-id")), secrets.token_hex(32), submitter(),
        namespace=namespace,
        launcher=_read_launcher(own["launcher"]) if "launcher" in own else None,
        environ=dict(os.environ),
        capture_env="capture-env" in own,
        bring_python="bring-python" in own,
        env_secrets=tuple(_env_secret(text) for text in own.get("env-secret", [])),
    )  # fmt: skip


def _choose(option: str, value: str, choices: Sequence[Any]) -> Any:
    if value not in choices:
        raise UsageError(f"--{option}: {value!r} is none of {', '.join(choices)}")
    return value


def _job_id(text: str | None) -> int:
    """A new number by time and chance: scripts do arithmetic with it, so it has 31 bits."""
    import secrets
    import time

    if text is None:
        return (int(time.time()) % 10**7) * 100 + secrets.randbelow(100) + 1
    if not text.isdecimal() or not text.isascii() or not 0 < int(text) < 2**31:
        raise UsageError(f"--job-id: not a number from 1 to {2**31 - 1}: {text!r}")
    return int(text)


def _read_launcher(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise NotFoundError(f"Cannot read the launcher {path}: {error.strerror}") from error


def _env_secret(text: str) -> tuple[str, str, str]:
    import re

    match = re.fullmatch(r"([A-Za-z_]\w*)=([a-z0-9][a-z0-9.-]*)/([A-Za-z0-9._-]+)", text, re.ASCII)
    if match is None:
        raise UsageError(f"--env-secret: not NAME=SECRET/KEY: {text.partition('=')[0]!r}…")
    return match[1], match[2], match[3]


def submitter() -> Submitter:
    """Return who runs this program, where."""
    import pwd

    from pyxis_py.kubernetes.pod.context import Submitter

    uid, gid = os.getuid(), os.getgid()
    try:
        entry = pwd.getpwuid(uid)
        user, home = entry.pw_name, entry.pw_dir
    except KeyError:
        user, home = os.environ.get("USER", str(uid)), os.environ.get("HOME", "/")
    groups = tuple(sorted(set(os.getgroups()) - {gid}))
    umask = os.umask(0o077)
    os.umask(umask)
    return Submitter(user, uid, gid, groups, home, os.uname().nodename, os.getcwd(), umask)
