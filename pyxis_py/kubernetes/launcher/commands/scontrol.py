"""The command `scontrol`: host lists, the job and its nodes, and `requeue`."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pyxis_py.kubernetes.launcher.commands.client import Client, CommandError, ask, find_client
from pyxis_py.kubernetes.launcher.commands.squeue import format_duration
from pyxis_py.kubernetes.launcher.job.hostlist import (
    HostListError,
    compress_hosts,
    expand_hosts,
    sort_hosts,
)
from pyxis_py.kubernetes.launcher.job.places import find_places
from pyxis_py.kubernetes.launcher.wire import messages

_FLAG = re.compile(r"-[odaQv]+|--(oneliner|details|all|quiet|verbose)")
_ENTITIES: tuple[tuple[str, str, int], ...] = (
    # what is meant, its whole name, how many letters of it are enough
    ("hostlist", "hostlist", 5),
    ("hostlistsorted", "hostlistsorted", 9),
    ("hostnames", "hostnames", 5),
    ("job", "jobs", 1),
    ("job", "jobid", 1),
    ("node", "nodes", 1),
    ("step", "steps", 2),
)


def scontrol(argv: list[str]) -> int:
    """Run scontrol; return its exit status.

    Raises:
        CommandError: for what there is not in a pod.
    """
    words = [word for word in argv if not _FLAG.fullmatch(word)]
    one_line = any(re.fullmatch(r"--oneliner|-[daQv]*o[odaQv]*", word) for word in argv)
    if not words:
        raise CommandError("nothing to do: scontrol show hostnames, show job, requeue")
    verb, rest = words[0].lower(), words[1:]
    if rest and len(verb) > 2 and "show".startswith(verb):
        what, equals, value = rest[0].partition("=")
        chosen = ([value] if equals else []) + rest[1:]
        return _show(_entity(what.lower()), chosen, one_line=one_line)
    if verb in ("requeue", "requeuehold"):
        return _requeue(verb, rest)
    if verb == "wait_job":  # a script starts when all nodes of its job are up
        _check_job(find_client(os.environ), rest)
        return 0
    if verb == "write" and rest[:1] == ["batch_script"]:
        return _write_script(rest[1:])
    if verb == "listpids":
        raise CommandError("listpids: use kubectl exec and ps")
    raise CommandError(f"{' '.join(words)}: in a pod there are show hostnames, show hostlist, "
                       "show job, show node, show step, write batch_script, requeue")  # fmt: skip


def _entity(word: str) -> str:
    """Return what a word behind `show` means: scontrol takes the beginnings of names."""
    for meaning, name, enough in _ENTITIES:
        if len(word) >= enough and name.startswith(word):
            return meaning
    return word


def _show(what: str, rest: Sequence[str], *, one_line: bool) -> int:
    if what in ("hostnames", "hostlist", "hostlistsorted"):
        print(_hosts(what, rest))
        return 0
    client = find_client(os.environ)
    facts = ask(client, messages.ASK, {})
    if what == "job":
        _check_job(client, rest)
        lines = [_job(facts, os.environ)]
    elif what == "node":
        lines = [_node(facts, host) for host in _chosen(facts, rest)]
    elif what == "step":
        lines = [_step(facts, step) for step in facts["steps"]]
    else:
        raise CommandError(f"show {what}: not in a pod: use kubectl get")
    for line in lines:
        print(line.replace("\n   ", " ") if one_line else line + "\n")
    return 0


def _hosts(what: str, rest: Sequence[str]) -> str:
    text = rest[0] if rest else os.environ.get("SLURM_JOB_NODELIST", "")
    if not text:
        raise CommandError(f"show {what}: no list of hosts, and SLURM_JOB_NODELIST is not set")
    try:
        hosts = expand_hosts(text)
    except HostListError as error:
        raise CommandError(str(error)) from error
    if what == "hostnames":
        return "\n".join(hosts)
    if what == "hostlistsorted":
        hosts = sort_hosts(dict.fromkeys(hosts))
    return compress_hosts(hosts)


def _check_job(client: Client, rest: Sequence[str]) -> None:
    array = f"{os.environ.get('SLURM_ARRAY_JOB_ID')}_{client.job.element}"
    for word in rest:
        if word.partition("=")[2] or word not in (str(client.job.job_id), array):
            if word == f"jobid={client.job.job_id}":
                continue
            raise CommandError(f"{word}: this is job {client.job.job_id}, and knows of no other")


def _chosen(facts: Mapping[str, Any], rest: Sequence[str]) -> list[str]:
    if not rest:
        return list(facts["hosts"])
    try:
        chosen = expand_hosts(rest[0].partition("=")[2] or rest[0])
    except HostListError as error:
        raise CommandError(str(error)) from error
    strange = [host for host in chosen if host not in facts["hosts"]]
    if strange:
        raise CommandError(f"{', '.join(strange)}: not a node of this job")
    return chosen


def _job(facts: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    limit = facts["timeLimit"]
    nodes = len(facts["hosts"])
    user, uid = environ.get("USER", "?"), os.getuid()
    restarts = environ.get("SLURM_RESTART_COUNT", "0")
    memory = f",mem={facts['memory'] * nodes}M" if facts["memory"] else ""
    gpus = f",gres/gpu={facts['gpus'] * nodes}" if facts["gpus"] else ""
    rows = (
        f"JobId={facts['jobId']}{_array(environ)} JobName={environ.get('SLURM_JOB_NAME', '')}",
        f"UserId={user}({uid}) GroupId={os.getgid()}({os.getgid()})",
        (
            f"Account={environ.get('SLURM_JOB_ACCOUNT', '(null)')} "
            f"QOS={environ.get('SLURM_JOB_QOS', '(null)')}"
        ),
        f"JobState={facts['state']} Reason=None Dependency=(null)",
        f"Requeue={int(facts['requeue'])} Restarts={restarts} BatchFlag=1 ExitCode=0:0",
        (
            f"RunTime={format_duration(time.time() - facts['start'])} "
            f"TimeLimit={'UNLIMITED' if limit is None else format_duration(limit)}"
        ),
        f"StartTime={_clock(facts['start'])} EndTime={_clock(facts['end'])}",
        f"Partition={environ.get('SLURM_JOB_PARTITION', '')}",
        f"NodeList={compress_hosts(facts['hosts'])}",
        f"BatchHost={facts['hosts'][0]}",
        (
            f"NumNodes={nodes} NumCPUs={facts['cpus'] * nodes} NumTasks={facts['tasks']} "
            f"CPUs/Task={environ.get('SLURM_CPUS_PER_TASK', '1')}"
        ),
        f"TRES=cpu={facts['cpus'] * nodes}{memory},node={nodes}{gpus}",
        f"WorkDir={environ.get('SLURM_SUBMIT_DIR', '')}",
    )
    return "\n   ".join(rows)


def _array(environ: Mapping[str, str]) -> str:
    if "SLURM_ARRAY_JOB_ID" not in environ:
        return ""
    return (f" ArrayJobId={environ['SLURM_ARRAY_JOB_ID']} "
            f"ArrayTaskId={environ.get('SLURM_ARRAY_TASK_ID', '')}")  # fmt: skip


def _node(facts: Mapping[str, Any], host: str) -> str:
    node = facts["nodes"].get(str(facts["hosts"].index(host)))
    used = sum(step["cpus"] // len(step["hosts"]) for step in facts["steps"]
               if host in step["hosts"])  # fmt: skip
    rows = [
        f"NodeName={host} State={'ALLOCATED' if node else 'DOWN'}",
        f"CPUAlloc={min(used, facts['cpus'])} CPUTot={facts['cpus']}",
        f"NodeAddr={host} NodeHostName={host}",
        f"RealMemory={facts['memory']}",
        f"Gres={'gpu:' + str(facts['gpus']) if facts['gpus'] else '(null)'}",
    ]
    if node:
        rows.append(f"Comment=pod {node['pod']} on {node['machine']}")
    return "\n   ".join(rows)


def _step(facts: Mapping[str, Any], step: Mapping[str, Any]) -> str:
    limit = step["limit"]
    return "\n   ".join((
        f"StepId={facts['jobId']}.{step['number']} Name={step['name']}",
        (f"StartTime={_clock(step['start'])} "
        f"TimeLimit={format_duration(limit) if limit else 'UNLIMITED'}"),
        f"State=RUNNING NodeList={compress_hosts(step['hosts'])}",
        f"Nodes={len(step['hosts'])} CPUs={step['cpus']} Tasks={step['tasks']}",
    ))  # fmt: skip


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return "Unknown"
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(seconds))


def _write_script(rest: Sequence[str]) -> int:
    client = find_client(os.environ)
    _check_job(client, rest[:1])
    name = rest[1] if len(rest) > 1 else f"slurm-{client.job.job_id}.sh"
    try:
        with open(find_places(os.environ).script, "rb") as file:
            script = file.read()
        if name == "-":
            sys.stdout.buffer.write(script)
            return 0
        with open(name, "wb") as file:
            file.write(script)
    except OSError as error:
        raise CommandError(f"write batch_script: {error.filename}: {error.strerror}") from error
    print(f"batch script for job {client.job.job_id} written to {name}")
    return 0


def _requeue(verb: str, rest: Sequence[str]) -> int:
    client = find_client(os.environ)
    ids = [part for word in rest for part in word.split(",") if not word.startswith("State=")]
    _check_job(client, ids)
    if verb == "requeuehold":
        print("scontrol: the job is queued again and not held: pyxis kube hold does that",
              file=sys.stderr)  # fmt: skip
    ask(client, messages.REQUEUE, {})
    return 0
