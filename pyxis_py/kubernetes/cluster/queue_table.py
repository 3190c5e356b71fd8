"""Jobs as squeue shows them, and as JSON for programs.

Pure. Source: squeue(1), the default format and JOB STATE CODES.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Sequence

from pyxis_py.kubernetes.cluster.listing import JobRecord
from pyxis_py.kubernetes.cluster.states import JobState

JSON_VERSION = 1
STATES = {
    "PD": "PENDING", "CF": "CONFIGURING", "R": "RUNNING", "CG": "COMPLETING", "CD": "COMPLETED",
    "F": "FAILED", "TO": "TIMEOUT", "OOM": "OUT_OF_MEMORY", "PR": "PREEMPTED", "NF": "NODE_FAIL",
    "CA": "CANCELLED",
}  # fmt: skip
HEADER = ("JOBID", "PARTITION", "NAME", "USER", "ST", "TIME", "NODES", "NODELIST(REASON)")
_TO_THE_RIGHT = (0, 5, 6)
_NUMBERED = re.compile(r"(.*?)(\d+)\Z", re.DOTALL)


def format_table(records: Sequence[JobRecord], now: float, *, header: bool = True) -> str:
    """Return one line for each job, in columns as wide as they need to be."""
    rows: list[tuple[str, ...]] = [HEADER] if header else []
    rows += [_row(record, now) for record in records]
    widths = [max((len(row[number]) for row in rows), default=0) for number in range(len(HEADER))]
    lines = (
        " ".join(
            cell.rjust(widths[number]) if number in _TO_THE_RIGHT else cell.ljust(widths[number])
            for number, cell in enumerate(row)
        ).rstrip()
        for row in rows
    )
    return "".join(f"{line}\n" for line in lines)


def format_messages(records: Sequence[JobRecord]) -> str:
    """Return a line for each job about which the cluster has something to say."""
    return "".join(
        f"{record.job.title}: {printable(record.state.reason)}: {printable(record.state.message)}\n"
        for record in records
        if record.state.message
    )


def _row(record: JobRecord, now: float) -> tuple[str, ...]:
    job, state = record.job, record.state
    return tuple(map(printable, (
        job.title, job.partition, job.job_name, job.user, state.state,
        format_duration(elapsed(state, now) or 0), str(job.nodes), _place(state),
    )))  # fmt: skip


def _place(state: JobState) -> str:
    if state.state == "R" and state.hosts:
        return compress_hosts(state.hosts)
    return f"({state.reason or 'None'})" if state.state != "CD" else ""


def printable(text: str) -> str:
    """Return a text that cannot move a terminal's cursor: others write it, in labels and names."""
    return "".join(
        character if character.isprintable() else f"\\x{ord(character):02x}" for character in text
    )


def elapsed(state: JobState, now: float) -> float | None:
    """Return the seconds that a run has taken, None if it has not begun."""
    if state.started is None:
        return None
    return max(0.0, (state.ended if state.ended is not None else now) - state.started)


def format_duration(seconds: float) -> str:
    """Return `M:SS`, `H:MM:SS` or `D-HH:MM:SS`, as squeue writes them."""
    whole = int(seconds)
    days, hours = divmod(whole // 3600, 24)
    minutes, rest = whole // 60 % 60, whole % 60
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{rest:02}"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def compress_hosts(hosts: Iterable[str]) -> str:
    """Return names as a host list: `n[01-03,07],m1`."""
    hosts = tuple(dict.fromkeys(hosts))
    names = [_NUMBERED.match(host) for host in hosts]
    # Numbers with leading zeros go together with those of their own width alone.
    padded = {(name[1], len(name[2])) for name in names if name and len(name[2]) > 1
              and name[2][0] == "0"}  # fmt: skip
    groups: dict[tuple[str, int], list[int]] = {}
    for host, name in zip(hosts, names, strict=True):
        if name is None or len(name[2]) > 9:
            groups[host, 0] = []
        else:
            key = (name[1], len(name[2]))
            groups.setdefault(key if key in padded else (name[1], 1), []).append(int(name[2]))
    return ",".join(_group(head, width, numbers) for (head, width), numbers in groups.items())


def _group(head: str, width: int, numbers: list[int]) -> str:
    if not numbers:
        return head
    if len(numbers) == 1:
        return f"{head}{numbers[0]:0{width}}"
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    parts = (
        f"{low:0{width}}" if low == high else f"{low:0{width}}-{high:0{width}}"
        for low, high in ranges
    )
    return f"{head}[{','.join(parts)}]"


def format_json(records: Sequence[JobRecord], now: float) -> str:
    """Return `{"version": 1, "jobs": […]}`; times are ISO 8601 in UTC, null where unknown."""
    jobs = [
        {
            "job_id": record.job.job_id,
            "array_task_id": record.job.task,
            "title": record.job.title,
            "name": record.job.job_name,
            "partition": record.job.partition,
            "user": record.job.user,
            "namespace": record.job.namespace,
            "object": f"{record.job.resource.title}/{record.job.name}",
            "state": STATES[record.state.state],
            "state_compact": record.state.state,
            "reason": record.state.reason,
            "message": record.state.message,
            "nodes": record.job.nodes,
            "node_list": list(record.state.hosts),
            "submit_time": record.job.made["metadata"].get("creationTimestamp"),
            "start_time": _stamp(record.state.started),
            "end_time": _stamp(record.state.ended),
            "elapsed_seconds": elapsed(record.state, now),
            "time_limit_seconds": record.job.time_limit,
            "exit_code": record.state.exit_code,
        }
        for record in records
    ]
    return json.dumps({"version": JSON_VERSION, "jobs": jobs}, indent=1) + "\n"


def _stamp(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
