"""The command `squeue`: this job, and its steps with --steps."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pyxis_py.kubernetes.launcher.commands.client import CommandError, ask, find_client
from pyxis_py.kubernetes.launcher.job.command_line import Option, cut
from pyxis_py.kubernetes.launcher.job.hostlist import compress_hosts
from pyxis_py.kubernetes.launcher.wire import messages

_OPTIONS = (
    Option("format", "o"), Option("Format", "O"), Option("jobs", "j"), Option("user", "u"),
    Option("name", "n"), Option("states", "t"), Option("steps", "s", "optional"),
    Option("noheader", "h", "none"), Option("me", "", "none"), Option("noconvert", "", "none"),
    Option("array", "r", "none"), Option("all", "a", "none"), Option("long", "l", "none"),
    Option("account", "A"), Option("partition", "p"), Option("qos", "q"), Option("sort", "S"),
    Option("start", "", "none"), Option("local", "", "none"), Option("verbose", "v", "none"),
)  # fmt: skip

DEFAULT_FORMAT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG_FORMAT = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
STEPS_FORMAT = "%.15i %.8j %.9P %.8u %.9M %N"
_FIELD = re.compile(r"%(\.?)(\d*)([A-Za-z])", re.ASCII)
_STATES = {"RUNNING": "R", "COMPLETING": "CG", "COMPLETED": "CD"}

if TYPE_CHECKING:
    Row = Mapping[str, Any]


def format_duration(seconds: float) -> str:
    """Return `1-02:03:04`, without days where there are none, as `3:04` below an hour."""
    left = max(0, int(seconds))
    days, left = divmod(left, 86400)
    hours, left = divmod(left, 3600)
    minutes, left = divmod(left, 60)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{left:02}"
    if hours:
        return f"{hours}:{minutes:02}:{left:02}"
    return f"{minutes}:{left:02}"


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return "N/A"
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(seconds))


def _left(row: Row) -> str:
    if row["timeLimit"] is None:
        return "UNLIMITED"
    return format_duration(row["start"] + row["timeLimit"] - time.time())


def _limit(row: Row) -> str:
    return "UNLIMITED" if row["timeLimit"] is None else format_duration(row["timeLimit"])


def _variable(name: str, default: str = "") -> Callable[[Row], str]:
    return lambda row: os.environ.get(name, default)


FIELDS: dict[str, tuple[str, str, Callable[[Row], str]]] = {
    # letter: heading, name for --Format, value
    "A": ("JOBID", "jobid", lambda row: str(row["jobId"])),
    "i": ("JOBID", "jobarrayid", lambda row: str(row["id"])),
    "F": ("ARRAY_JOB_ID", "arrayjobid", lambda row: str(row["arrayJobId"])),
    "K": ("ARRAY_TASK_ID", "arraytaskid", _variable("SLURM_ARRAY_TASK_ID", "N/A")),
    "a": ("ACCOUNT", "account", _variable("SLURM_JOB_ACCOUNT", "(null)")),
    "C": ("CPUS", "numcpus", lambda row: str(row["cpus"] * len(row["hosts"]))),
    "D": ("NODES", "numnodes", lambda row: str(len(row["hosts"]))),
    "e": ("END_TIME", "endtime", lambda row: _clock(row["end"])),
    "j": ("NAME", "name", lambda row: str(row["name"])),
    "k": ("COMMENT", "comment", lambda row: "(null)"),
    "l": ("TIME_LIMIT", "timelimit", _limit),
    "L": ("TIME_LEFT", "timeleft", _left),
    "m": ("MIN_MEMORY", "minmemory", lambda row: f"{row['memory']}M"),
    "M": ("TIME", "timeused", lambda row: format_duration(time.time() - row["start"])),
    "N": ("NODELIST", "nodelist", lambda row: compress_hosts(row["hosts"])),
    "B": ("EXEC_HOST", "batchhost", lambda row: str(row["hosts"][0])),
    "P": ("PARTITION", "partition", _variable("SLURM_JOB_PARTITION")),
    "q": ("QOS", "qos", _variable("SLURM_JOB_QOS", "(null)")),
    "r": ("REASON", "reason", lambda row: "None"),
    "R": ("NODELIST(REASON)", "reasonlist", lambda row: compress_hosts(row["hosts"])),
    "S": ("START_TIME", "starttime", lambda row: _clock(row["start"])),
    "t": ("ST", "statecompact", lambda row: _STATES[row["state"]]),
    "T": ("STATE", "state", lambda row: str(row["state"])),
    "u": ("USER", "username", _variable("USER")),
    "U": ("UID", "userid", lambda row: str(os.getuid())),
    "V": ("SUBMIT_TIME", "submittime", lambda row: "N/A"),
    "X": ("TASKS", "tasks", lambda row: str(row["tasks"])),
    "Z": ("WORK_DIR", "workdir", _variable("SLURM_SUBMIT_DIR")),
}


def squeue(argv: list[str]) -> int:
    """Print the job, or its steps; return the exit status.

    Raises:
        CommandError: for other jobs, of which nothing is known here.
    """
    given, words = cut(argv, _OPTIONS)
    if words:
        raise CommandError(f"not an option: {words[0]!r}")
    values = dict(given)
    client = find_client(os.environ)
    facts = ask(client, messages.ASK, {})
    row = {
        **facts,
        "id": facts["jobId"],
        "arrayJobId": os.environ.get("SLURM_ARRAY_JOB_ID", facts["jobId"]),
        "name": os.environ.get("SLURM_JOB_NAME", ""),
    }
    if client.job.element:
        row["id"] = f"{row['arrayJobId']}_{client.job.element}"
    _check_jobs(values.get("jobs", ""), row)
    rows = _steps(row) if "steps" in values else [row]
    rows = [found for found in rows if _matches(found, values)]
    line = _line_format(values)
    if "noheader" not in values:
        print(_format(line, None))
    for found in rows:
        print(_format(line, found))
    return 0


def _check_jobs(text: str, row: Row) -> None:
    for word in filter(None, text.split(",")):
        if word not in (str(row["jobId"]), str(row["id"]), str(row["arrayJobId"])):
            raise CommandError(f"{word}: this is job {row['jobId']}, and knows of no other")


def _steps(row: Row) -> list[dict[str, Any]]:
    return [
        {
            **row,
            "id": f"{row['jobId']}.{step['number']}",
            "name": step["name"],
            "hosts": step["hosts"],
            "start": step["start"],
            "timeLimit": step["limit"],
            "tasks": step["tasks"],
        }
        for step in row["steps"]
    ]


def _matches(row: Row, values: Mapping[str, str]) -> bool:
    states = {word.upper() for word in filter(None, values.get("states", "").split(","))}
    names = set(filter(None, values.get("name", "").split(",")))
    users = set(filter(None, values.get("user", "").split(",")))
    here = {row["state"], _STATES[row["state"]], "ALL"}
    return (
        (not states or bool(states & here))
        and (not names or row["name"] in names)
        and (not users or bool(users & {os.environ.get("USER", ""), str(os.getuid())}))
    )


def _line_format(values: Mapping[str, str]) -> str:
    if "Format" in values:
        return _long_names(values["Format"])
    if "format" in values:
        return values["format"]
    if "steps" in values:
        return STEPS_FORMAT
    return LONG_FORMAT if "long" in values else DEFAULT_FORMAT


def _long_names(text: str) -> str:
    """Return --Format's list as a --format: 20 characters each unless it says otherwise."""
    letters = {name: letter for letter, (_, name, _) in FIELDS.items()}
    parts = []
    for item in filter(None, (item.strip() for item in text.split(","))):
        name, _, size = item.partition(":")
        letter = letters.get(name.lower())
        if letter is None:
            raise CommandError(f"--Format: not a field: {name!r}")
        dot = "." if size.startswith(".") else ""
        parts.append(f"%{dot}{size.strip('.') or '20'}{letter}")
    return "".join(parts)


def _format(line: str, row: Row | None) -> str:
    """Return a line of the table; the headings without a row."""

    def replace(match: re.Match[str]) -> str:
        right, size, letter = match.groups()
        if letter not in FIELDS:
            raise CommandError(f"--format: not a field: {match.group(0)!r}")
        heading, _, value = FIELDS[letter]
        text = heading if row is None else value(row)
        if not size:
            return text
        width = int(size)
        return text[:width].rjust(width) if right else text[:width].ljust(width)

    return _FIELD.sub(replace, line)
