"""`pyxis kube`: the batch script that runs under Slurm, as manifests for Kubernetes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from enroot_py import ExistsError, NotFoundError, UsageError

if TYPE_CHECKING:
    from pyxis_py.kubernetes.pod.context import RenderOptions, Submitter
    from pyxis_py.kubernetes.profile.site import Profile
    from pyxis_py.launchers.slurm_options import GivenOption, SlurmOption

_OWN_WITH_VALUE = (
    "target", "gpu-api", "profile", "namespace", "job-id", "launcher", "env-secret", "allow",
)  # fmt: skip
_OWN_SWITCHES = ("explain", "capture-env")
_REPEATED = ("env-secret", "allow")

RENDER_HELP = """\
Usage: pyxis kube render [OPTIONS] SCRIPT [SBATCH OPTIONS] [-- ARGUMENTS]

  Print the manifests of a batch script, without any access to a cluster. Exit status 2: something
  in the script has no equal there.

Options (all others are sbatch's):
  --target TARGET      kueue, kueue-job, volcano or slurm-bridge
  --gpu-api API        device-plugin, dra or dra-extended
  --profile FILE       the site profile (pyxis kube profile init writes one)
  --explain            print what became of every option instead of the manifests
  --namespace NAME     instead of the account's
  --job-id N           instead of a new one: the same command line prints the same manifests,
                       but for the token
  --launcher FILE      put this launcher.pyz into the job's ConfigMap; without it pods mount the
                       ConfigMap that the profile names
  --capture-env        let --export=ALL copy your environment
  --env-secret NAME=SECRET/KEY   take a variable from a Secret of the namespace
  --allow CODE         go on in spite of a refusal, where that makes sense
  --help               print this
"""


class _Uncut(click.Command):
    """A command whose words are cut with sbatch's own table, which click's parser cannot follow."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.params["words"] = tuple(args)
        return []

    def get_help(self, ctx: click.Context) -> str:
        return RENDER_HELP.rstrip()


@click.group("kube", context_settings={"help_option_names": ["-h", "--help"]})
def kube() -> None:
    """Batch scripts on Kubernetes: Kueue, Volcano, and Slurm as its scheduler."""


@kube.command("render", cls=_Uncut)
def render_command(words: tuple[str, ...]) -> int:
    """Print the manifests of a batch script."""
    if "--help" in words or not words:
        click.echo(RENDER_HELP, nl=False)
        return 0
    return _render(words)


@kube.group("profile")
def profile_group() -> None:
    """The site profile: what Slurm has in slurm.conf."""


@profile_group.command("init")
@click.argument("path", default="-")
def init_command(path: str) -> int:
    """Write a commented profile to PATH, or to standard output."""
    from pyxis_py.kubernetes.profile.template import TEMPLATE

    if path == "-":
        click.echo(TEMPLATE, nl=False)
        return 0
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(TEMPLATE)
    except FileExistsError as error:
        raise ExistsError(f"{path} is there already") from error
    except OSError as error:
        raise NotFoundError(f"Cannot write {path}: {error.strerror}") from error
    return 0


@profile_group.command("check")
@click.argument("path")
def check_command(path: str) -> int:
    """Read a profile and say what is wrong with it."""
    from pyxis_py.kubernetes.profile.reader import read_profile

    profile = read_profile(path)
    click.echo(f"{path}: {len(profile.partitions)} partitions, {len(profile.mounts)} mounts")
    return 0


def _render(words: Sequence[str]) -> int:
    from pyxis_py.kubernetes.profile.reader import read_profile
    from pyxis_py.kubernetes.profile.site import Profile
    from pyxis_py.kubernetes.render.manifest_text import dump_manifests, explain
    from pyxis_py.kubernetes.render.render import render_job
    from pyxis_py.kubernetes.spec.job_reader import read_job
    from pyxis_py.kubernetes.spec.notes import RefusedError

    own, rest = cut_words(words)
    profile = read_profile(str(own["profile"])) if own.get("profile") else Profile()
    allow = _check_codes(own.get("allow", []))
    job, ledger = read_job(rest, _read_script, os.environ, allow=allow)
    explaining = "explain" in own
    try:
        rendering = render_job(job, profile, _options(own, profile), ledger)
    except RefusedError:
        if not explaining:
            raise
        click.echo(explain(ledger.notes), nl=False)
        return RefusedError.exit_code
    if explaining:
        click.echo(explain(rendering.notes, rendering.manifests), nl=False)
        return 0
    for note in rendering.notes:
        if note.kind != "rendered":
            click.echo(f"pyxis: {note}", err=True)
    click.echo(dump_manifests(rendering.manifests), nl=False)
    return 0


def cut_words(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Separate this command's options from sbatch's words, wherever they stand.

    Returns:
        Values by name, and `[sbatch options] SCRIPT [arguments]` as sbatch takes them.

    Raises:
        UsageError: if an option is unknown, ambiguous or lacks its value.
    """
    from pyxis_py.launchers.slurm_options import split_command_line

    table = _table()
    given, command = split_command_line(words, table, command="pyxis kube render")
    arguments: list[str] = []
    if command and not any(option.name == "wrap" for option in given):
        # sbatch's options may stand behind the script too; its arguments then follow `--`.
        behind, arguments = split_command_line(command[1:], table, command="pyxis kube render")
        given += behind
        command = command[:1]
    own: dict[str, Any] = {}
    rest: list[str] = []
    for option in given:
        _sort(option, own, rest)
    return own, [*rest, *(["--"] if command else []), *command, *arguments]


def _table() -> list[SlurmOption]:
    from pyxis_py.launchers.slurm_options import SlurmOption, built_in_options

    # sbatch's own --profile, for accounting, is out of reach here: it has no effect anyway.
    own = {*_OWN_WITH_VALUE, *_OWN_SWITCHES}
    table = [option for option in built_in_options("sbatch") if option.name not in own]
    table += [SlurmOption(name, "required") for name in _OWN_WITH_VALUE]
    table += [SlurmOption(name, "none") for name in _OWN_SWITCHES]
    return table


def _sort(option: GivenOption, own: dict[str, Any], rest: list[str]) -> None:
    if option.name in _REPEATED:
        own.setdefault(option.name, []).append(option.value)
    elif option.name in _OWN_WITH_VALUE or option.name in _OWN_SWITCHES:
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
    try:
        with open(0 if path == "-" else path, "rb", closefd=path != "-") as file:
            return file.read().decode("utf-8")
    except OSError as error:
        raise NotFoundError(f"Cannot read the batch script {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8: a ConfigMap cannot have it") from error


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
        target, gpu_api, _job_id(own.get("job-id")), secrets.token_hex(32), _submitter(),
        namespace=namespace,
        launcher=_read_launcher(own["launcher"]) if "launcher" in own else None,
        environ=dict(os.environ),
        capture_env="capture-env" in own,
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


def _submitter() -> Submitter:
    import pwd

    from pyxis_py.kubernetes.pod.context import Submitter

    uid, gid = os.getuid(), os.getgid()
    try:
        entry = pwd.getpwuid(uid)
        user, home = entry.pw_name, entry.pw_dir
    except KeyError:
        user, home = os.environ.get("USER", str(uid)), os.environ.get("HOME", "/")
    groups = tuple(sorted(set(os.getgroups()) - {gid}))
    return Submitter(user, uid, gid, groups, home, os.uname().nodename, os.getcwd())
