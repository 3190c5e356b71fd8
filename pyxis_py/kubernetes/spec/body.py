"""What a script's body will ask for in the pod: commands that cannot work there, and images.

The body is scanned word by word, not run: here-documents and strings are looked at as well, so a
finding may be in text that is never executed. `--allow CODE` is for that. Comments are not.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyxis_py.kubernetes.spec.assignments import WORD_PART, Assignments
from pyxis_py.kubernetes.spec.shell_lines import shell_lines

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
_WORD = re.compile(rf"[<>]&?|&>|[;&|()]|{WORD_PART}+")
_SRUN = re.compile(r"(?:^|[\s;&|(){}`\"'=/])srun(?![^\s;&|)}`\"'])")
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
    variables = script = Assignments(environ or {})
    for line in shell_lines(text, first_line):
        findings += _commands(line.text, line.number, _command_names(line.text))
        findings += _settings(line.text, line.number)
        if not line.inner:
            variables = script
        elif variables is script:
            variables = script.copy()
        if line.assigned != line.text:
            variables.note(line.assigned)
        for part, is_srun in _parts(line.text):
            if line.assigned == line.text and not is_srun:
                variables.note(part)
            part = variables.substitute(part)
            if not _SRUN.search(part):
                continue
            findings += _srun_flags(part, line.number)
            for word in _IMAGE.findall(part):
                image = variables.expand(word) or word.strip("\"'")
                images.setdefault(image.replace("\\#", "#"), line.number)
            for word in _MOUNTS.findall(part):
                known, unknown = _entries(word, variables)
                if known:
                    mounts.setdefault(",".join(known), line.number)
                findings += _unknown_mounts(unknown, line.number)
    return Body(tuple(findings), tuple(images.items()), tuple(mounts.items()))


def _parts(line: str) -> list[tuple[str, bool]]:
    """Cut a line into `srun` commands and what stands between; tell which are such commands.

    What is assigned before `srun` counts for it, and what is assigned behind it does not.
    """
    parts: list[tuple[str, bool]] = []
    start = begin = depth = 0  # of the part; of the command; parentheses in `srun`'s words
    is_srun = False
    for match in _WORD.finditer(line):
        token = match[0]
        if is_srun and token in ("(", ")"):
            depth += 1 if token == "(" else -1
        if token in (";", "&", "|", "(", ")"):
            begin = match.end()
            if is_srun and depth <= 0 and (token not in "()" or depth < 0):
                parts.append((line[start : match.start()], True))
                start, is_srun = match.start(), False
        elif not is_srun and token.strip("\"'").rpartition("/")[2] == "srun" and "=" not in token:
            parts.append((line[start:begin], False))
            start, is_srun, depth = begin, True, 0
        elif not is_srun and not _ASSIGNMENT.match(token):
            begin = match.end()
    return [part for part in (*parts, (line[start:], is_srun)) if part[0]]


def _unknown_mounts(entries: list[str], number: int) -> list[Finding]:
    return [
        Finding("srun-mounts", number,
                f"--container-mounts: what {entry} stands for is known at run time", False)
        for entry in entries
    ]  # fmt: skip


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
