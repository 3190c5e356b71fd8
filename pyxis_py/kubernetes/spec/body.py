"""What a script's body will ask for in the pod: commands that cannot work there, and images.

The body is scanned word by word, not run: here-documents and strings are looked at as well, so a
finding may be in text that is never executed. `--allow CODE` is for that.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyxis_py.kubernetes.spec.assignments import WORD_PART, Assignments, end_of_open_word

COMMANDS: dict[str, tuple[str, str]] = {
    # command: code, what it would need
    "sbatch": ("nested-sbatch", "submitting from inside a pod needs rights on the cluster"),
    "salloc": ("salloc", "there is no allocation to wait for inside a pod"),
    "sattach": ("sattach", "there is no slurmstepd to attach to"),
    "sacct": ("sacct", "there is no accounting database behind a pod"),
    "sbcast": ("sbcast", "files are not broadcast to pods"),
}
_CONTAINER = "all steps run in the pod's container"
_HOOK = "call it in the script, or in the command"
SRUN_FLAGS: dict[str, tuple[str, str]] = {
    "--pty": ("pty", "a batch job has no terminal"),
    "--x11": ("x11", "there is no X11 forwarding into a pod"),
    "--bcast": ("srun-bcast", "programs are not broadcast to pods"),
    "--het-group": ("srun-option", "the job has one component"),
    "--container-entrypoint": ("srun-option", _CONTAINER),
    "--container-remap-root": ("srun-option", _CONTAINER),
    "--container-save": ("srun-option", _CONTAINER),
    "--prolog": ("srun-option", _HOOK),
    "--epilog": ("srun-option", _HOOK),
    "--task-prolog": ("srun-option", _HOOK),
    "--task-epilog": ("srun-option", _HOOK),
}
HOST_COMMANDS = ("module", "spack", "sudo", "ml", "systemctl", "nvidia-smi -pm", "nvidia-smi -lgc")

_TOKEN = re.compile(r"\$\(|[;&|(){}`]|[^\s;&|(){}`]+")
_SEPARATORS = frozenset(("$(", ";", "&", "|", "(", ")", "{", "}", "`"))
_BEFORE_COMMANDS = frozenset(
    ("then", "do", "else", "exec", "time", "if", "elif", "while", "until", "!", "nohup", "env")
)
_ASSIGNMENT = re.compile(r"\w+=")
_VALUE = rf"(?:=|\s+)({WORD_PART}+)"
_IMAGE = re.compile("--container-image" + _VALUE)
_MOUNTS = re.compile("--container-mounts" + _VALUE)
_MPI = re.compile("--mpi" + _VALUE)
_SECRET = re.compile(
    r"(?:^|\s)(?:export\s+)?(\w*(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY)\w*)=['\"]?[^\s'\"$`]{6,}"
)
_SOCKET = re.compile(r"\bNCCL_SOCKET_IFNAME=")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in the body: a refusal's or a warning's code, the line and a sentence."""

    code: str
    line: int
    text: str
    refusal: bool


@dataclass(frozen=True, slots=True)
class Body:
    """What the body has: findings, and what its `srun` lines name, each once, with its line.

    Attributes:
        images: of --container-image; variables whose value the script tells are expanded.
        mounts: of --container-mounts, likewise.
    """

    findings: tuple[Finding, ...]
    images: tuple[tuple[str, int], ...]
    mounts: tuple[tuple[str, int], ...] = ()


def scan_body(text: str, first_line: int, environ: Mapping[str, str] | None = None) -> Body:
    """Look through the lines of a script from `first_line` (counted from 1; 0 for no body).

    Args:
        environ: variables that the script will find set.
    """
    findings: list[Finding] = []
    images: dict[str, int] = {}
    mounts: dict[str, int] = {}
    variables = Assignments(environ or {})
    for number, line in _logical_lines(text, first_line):
        if line.lstrip().startswith("#"):
            continue
        commands = _command_names(line)
        findings += _commands(line, number, commands)
        findings += _settings(line, number)
        before = line.partition("srun")[0]
        variables.note(line if before == line or before.count('"') % 2 else before)
        line = variables.substitute(line)
        if re.search(r"\bsrun\b", line):
            findings += _srun_flags(line, number)
            for word in _IMAGE.findall(line):
                image = variables.expand(word) or word.strip("\"'")
                images.setdefault(image.replace("\\#", "#"), number)
            for word in _MOUNTS.findall(line):
                known, unknown = _entries(word, variables)
                if known:
                    mounts.setdefault(",".join(known), number)
                for entry in unknown:
                    text = f"--container-mounts: what {entry} stands for is known at run time"
                    findings.append(Finding("srun-mounts", number, text, False))
    return Body(tuple(findings), tuple(images.items()), tuple(mounts.items()))


def _entries(word: str, variables: Assignments) -> tuple[list[str], list[str]]:
    """Return the mounts of a list that are known, and those that are not."""
    whole = variables.expand(word)
    if whole is not None:
        return [whole], []
    known: list[str] = []
    unknown: list[str] = []
    for part in word.replace('"', "").split(","):
        entry = variables.expand(part)
        (unknown if entry is None else known).append(part if entry is None else entry)
    return known, unknown


def _logical_lines(text: str, first_line: int) -> list[tuple[int, str]]:
    """Join lines that end in a backslash or in the middle of an assignment.

    Each has the number of its first one.
    """
    if not first_line:
        return []
    lines: list[tuple[int, str]] = []
    continued = False
    end = ""  # of an assignment of several lines
    for number, line in enumerate(text.splitlines(), start=1):
        if number < first_line:
            continue
        part = line.removesuffix("\\")
        if end == ")" and part.lstrip().startswith("#"):
            continue
        if continued or end:
            lines[-1] = (lines[-1][0], lines[-1][1] + " " + part)
        else:
            lines.append((number, part))
        continued = part != line
        if not end and not lines[-1][1].lstrip().startswith("#"):
            end = end_of_open_word(lines[-1][1])
        elif end and end in part:
            end = ""
    return lines


def _command_names(line: str) -> list[str]:
    """Return the words that stand where a shell looks for a command, without their folders."""
    names = []
    expected = True
    for token in _TOKEN.findall(line):
        if token in _SEPARATORS:
            expected = True
        elif expected and token not in _BEFORE_COMMANDS and not _ASSIGNMENT.match(token):
            names.append(token.strip("\"'").rpartition("/")[2])
            expected = False
    return names


def _commands(line: str, number: int, commands: list[str]) -> list[Finding]:
    found = [
        Finding(COMMANDS[command][0], number, f"{command}: {COMMANDS[command][1]}", True)
        for command in commands
        if command in COMMANDS
    ]
    for host in HOST_COMMANDS:
        first, _, rest = host.partition(" ")
        if first in commands and rest in line:
            found.append(
                Finding(
                    "host-command", number, f"{host}: it runs in the image, not on a node", False
                )
            )
    return found


def _srun_flags(line: str, number: int) -> list[Finding]:
    words = [word.partition("=")[0] for word in line.split()]
    found = [
        Finding(code, number, f"srun {flag}: {text}", True)
        for flag, (code, text) in SRUN_FLAGS.items()
        if flag in words
    ]
    for kind in _MPI.findall(line):
        if kind.strip("\"'") not in ("none", "list", "pmi2"):
            text = f"srun --mpi={kind}: there is no such server in a pod"
            found.append(Finding("mpi-server", number, text, True))
    return found


def _settings(line: str, number: int) -> list[Finding]:
    found = []
    if _SOCKET.search(line):
        text = "NCCL_SOCKET_IFNAME names an interface of the Slurm nodes; a pod's is eth0"
        found.append(Finding("nccl-interface", number, text, False))
    match = _SECRET.search(line)
    if match:
        text = f"{match[1]} is written out in the script, which goes into a ConfigMap"
        found.append(Finding("script-secret", number, text, False))
    return found
