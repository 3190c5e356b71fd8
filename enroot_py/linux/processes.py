"""What /proc says about a process: the facts that ps and lsns show, without either.

A process may end between any two reads. Every function here answers None, or leaves a fact out,
where the process is gone or another user's; none of them fails because of that.

Source: proc(5); procps 4.0 output.c for the forms of STAT, STIME and ELAPSED.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple

EXEC_LIMIT = 0.5
"""Seconds that a process may take to execute a program before we look away."""
_VSIZE, _START_CODE, _ENV_START, _ENV_END = (number - 3 for number in (23, 26, 50, 51))
"""Places in what `_stat_fields` returns. Source: proc_pid_stat(5)."""


class Process(NamedTuple):
    """One process.

    Attributes:
        pid: as seen from here.
        comm: the name of its main thread, at most 15 characters.
        state: the state letter, and ps's marks behind it: "Ss+".
        age: seconds since it was started.
        mnt_namespace: inode number, as in `readlink /proc/PID/ns/mnt`; 0 if it cannot be read.
        user_namespace: the same of the user namespace.
        command: its argument vector; of a kernel thread or a zombie its name in brackets.
    """

    pid: int
    comm: str
    state: str
    age: float
    mnt_namespace: int
    user_namespace: int
    command: tuple[str, ...]


def process_ids() -> list[int]:
    """Return the ids of all processes, ascending."""
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def namespace(pid: int | str, kind: str) -> int:
    """Return the inode number of a process's namespace, 0 if it cannot be read.

    Args:
        pid: a process id, or "self".
        kind: a file name in /proc/PID/ns, e.g. "mnt".
    """
    try:
        link = os.readlink(f"/proc/{pid}/ns/{kind}")
    except OSError:
        return 0
    return int(link[link.index("[") + 1 : -1])


def start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None if it is gone."""
    fields = _stat_fields(pid)
    return int(fields[19]) if fields else None


def read_process(pid: int) -> Process | None:
    """Return the facts about a process; None if it is gone or cannot be looked at."""
    fields = _stat_fields(pid)
    if not fields:
        return None
    status = _read(f"/proc/{pid}/status")
    comm = os.fsdecode(_read(f"/proc/{pid}/comm").rstrip(b"\n"))
    words = _read(f"/proc/{pid}/cmdline").rstrip(b"\0")
    command = tuple(map(os.fsdecode, words.split(b"\0"))) if words else (f"[{comm}]",)
    if fields[0] == "Z":
        command = (f"[{comm}]", "<defunct>")
    ticks = os.sysconf("SC_CLK_TCK")
    return Process(
        pid=pid,
        comm=comm,
        state=_state(pid, fields, status),
        age=max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / ticks),
        mnt_namespace=namespace(pid, "mnt"),
        user_namespace=namespace(pid, "user"),
        command=command,
    )


def format_started(age: float, now: float) -> str:
    """Return when a process of that age started, as ps's STIME: a time, a day or a year.

    Args:
        age: seconds.
        now: seconds since the epoch.
    """
    today, started = time.localtime(now), time.localtime(now - age)
    if started.tm_year != today.tm_year:
        return time.strftime("%Y", started)
    return time.strftime("%H:%M" if started.tm_yday == today.tm_yday else "%b%d", started)


def format_age(age: float) -> str:
    """Return seconds as ps's ELAPSED: [[days-]hours:]minutes:seconds."""
    minutes, seconds = divmod(int(age), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    text = f"{minutes:02}:{seconds:02}"
    if days or hours:
        text = f"{hours:02}:{text}"
    return f"{days}-{text}" if days else text


def slurm_step(pid: int) -> tuple[str, str]:
    """Return the Slurm job and step that a process belongs to; "" for what cannot be told."""
    cgroup = _read(f"/proc/{pid}/cgroup")
    return parse_slurm_step(cgroup, b"" if b"/job_" in cgroup else read_environ(pid))


def read_environ(pid: int, *, deadline: float | None = None) -> bytes:
    """Return a process's environment as /proc/PID/environ holds it; b"" if there is none to read.

    In the middle of an execve(2) a process has new memory that nothing is in yet, and seems to have
    no variables: those are waited for.

    Args:
        deadline: until when, by the monotonic clock; half a second from now if None.
    """
    if deadline is None:
        deadline = time.monotonic() + EXEC_LIMIT
    while True:
        try:
            with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
                data = file.read()
                if not data and _is_between_programs(pid) and time.monotonic() < deadline:
                    # open(2) waits until execve lets go of a lock, which it does just before it
                    # copies the variables; the open file is that memory's (fs/exec.c).
                    time.sleep(0.0002)
                    data = file.read()
                    if not data:
                        continue
                return data
        except OSError:
            return b""


def _is_between_programs(pid: int) -> bool:
    """Whether a process without variables executes a program just now, or did a moment ago."""
    fields = _stat_fields(pid)
    if not fields or fields[_VSIZE] == "0":
        return False  # gone, or the kernel's
    return fields[_START_CODE] == "0" or fields[_ENV_START] != fields[_ENV_END]


def parse_slurm_step(cgroup: bytes, environ: bytes) -> tuple[str, str]:
    """Return job and step: those that the cgroup is named after, else those in the environment.

    Args:
        cgroup: as /proc/PID/cgroup holds it.
        environ: as /proc/PID/environ holds it.
    """
    job = step = ""
    for part in os.fsdecode(cgroup).replace("\n", "/").split("/"):
        if part.startswith("job_") and not job:
            job = part[len("job_") :]
        elif part.startswith("step_") and job and not step:
            step = part[len("step_") :]
    if job:
        return job, step
    variables = dict(
        entry.partition("=")[::2]
        for entry in os.fsdecode(environ).split("\0")
        if entry.startswith("SLURM_")
    )
    return variables.get("SLURM_JOB_ID", ""), variables.get("SLURM_STEP_ID", "")


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third one on; [] if the process is gone."""
    # The second field is a name in parentheses that may hold blanks and parentheses itself.
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].decode("ascii").split()


def _state(pid: int, fields: list[str], status: bytes) -> str:
    group, session, terminal_group = int(fields[2]), int(fields[3]), int(fields[5])
    nice, threads = int(fields[16]), int(fields[17])
    text = fields[0]
    if nice:
        text += "<" if nice < 0 else "N"
    if b"VmLck:" in status and status.partition(b"VmLck:")[2].split(None, 1)[0] != b"0":
        text += "L"
    if session == pid:
        text += "s"
    if threads > 1:
        text += "l"
    return text + ("+" if group == terminal_group else "")


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
