"""From an sbatch command line, variables and a script to the job specification.

Options come from three places, as sbatch reads them: the script's `#SBATCH` lines, then SBATCH_*
variables, then the command line; the later one wins.

Pure, but for the script, which the caller's function reads. Source: sbatch(1) of Slurm 22.05.
"""

from __future__ import annotations

import dataclasses
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from enroot_py import UsageError
from pyxis_py.args import RawValue, parse_arguments
from pyxis_py.command_lines.sbatch_script import check_script, parse_script
from pyxis_py.command_lines.slurm_options import (
    GivenOption,
    OptionError,
    built_in_options,
    split_command_line,
)
from pyxis_py.kubernetes.spec import option_rules as rules
from pyxis_py.kubernetes.spec.body import scan_body
from pyxis_py.kubernetes.spec.jobspec import JobSpec
from pyxis_py.kubernetes.spec.notes import ALLOWABLE, REFUSALS, Ledger, Note, RefusedError
from pyxis_py.kubernetes.spec.slurm_lists import (
    ConstraintError,
    parse_array,
    parse_constraint,
    parse_dependency,
    parse_hostlist,
)
from pyxis_py.kubernetes.spec.slurm_values import (
    check_text,
    is_utf8,
    parse_count,
    parse_gpus,
    parse_gres,
    parse_nodes,
    parse_signal,
    parse_size,
    parse_switches,
    parse_time,
)
from pyxis_py.options import find_option


def _memory(per: str) -> Callable[[str], dict[str, Any]]:
    return lambda text: {"memory": parse_size(text), "memory_per": per}


def _field(name: str, parse: Callable[[str], Any] = str) -> Callable[[str], dict[str, Any]]:
    return lambda text: {name: parse(text)}


def _nodes(text: str) -> dict[str, Any]:
    least, most = parse_nodes(text)
    return {"nodes": most, "nodes_least": least}


def _time(text: str) -> dict[str, Any]:
    return {"time_limit": parse_time(text), "time_given": True}


def _identity(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or int(text) > 2**31 - 1:
        raise UsageError(f"not a numeric id: {text!r}")
    return int(text)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(text.split(",")))
    if not all(names):
        raise UsageError(f"an empty name in {text!r}")
    return names


def _exclusive(text: str) -> dict[str, Any]:
    if text.lower() not in ("", "exclusive", "user", "mcs", "topo"):
        raise UsageError(f"neither user nor mcs nor topo: {text!r}")
    return {"exclusive": True}


def _segment(text: str) -> int:
    return parse_count(text.split(",")[0])


_READERS: dict[str, Callable[[str], dict[str, Any]]] = {
    "account": _field("account"),
    "array": _field("array", parse_array),
    "chdir": _field("chdir"),
    "comment": _field("comment"),
    "constraint": _field("constraint", parse_constraint),
    "cpus-per-gpu": _field("cpus_per_gpu", parse_count),
    "cpus-per-task": _field("cpus_per_task", parse_count),
    "dependency": _field("dependency", parse_dependency),
    "exclude": _field("exclude", parse_hostlist),
    "exclusive": _exclusive,
    "export": _field("export"),
    "gid": _field("gid", _identity),
    "gpus": _field("gpus", parse_gpus),
    "gpus-per-node": _field("gpus_per_node", parse_gpus),
    "gpus-per-task": _field("gpus_per_task", parse_gpus),
    "gres": _field("gres", parse_gres),
    "hold": lambda text: {"hold": True},
    "job-name": _field("name"),
    "licenses": _field("licenses"),
    "mem": _memory("node"),
    "mem-per-cpu": _memory("cpu"),
    "mem-per-gpu": _memory("gpu"),
    "mincpus": _field("mincpus", parse_count),
    "no-requeue": lambda text: {"requeue": False},
    "nodelist": _field("nodelist", parse_hostlist),
    "nodes": _nodes,
    "ntasks": _field("ntasks", parse_count),
    "ntasks-per-gpu": _field("ntasks_per_gpu", parse_count),
    "ntasks-per-node": _field("ntasks_per_node", parse_count),
    "output": _field("output"),
    "partition": _field("partitions", _names),
    "qos": _field("qos"),
    "requeue": lambda text: {"requeue": True},
    "reservation": _field("reservation"),
    "segment": _field("segment", _segment),
    "signal": _field("signal", parse_signal),
    "switches": _field("switches", parse_switches),
    "time": _time,
    "tmp": _field("tmp", parse_size),
    "uid": _field("uid", _identity),
    "wckey": _field("wckey"),
}


def read_job(
    words: Sequence[str],
    read_file: Callable[[str], str],
    environ: Mapping[str, str],
    *,
    allow: Iterable[str] = (),
) -> tuple[JobSpec, Ledger]:
    """Read an sbatch command line with the script it names.

    Args:
        words: options of sbatch, the script's path, and its arguments.
        read_file: returns the text of a path; "-" for standard input.
        environ: the submitter's environment, for SBATCH_* and PYXIS_*.
        allow: codes of refusals that become warnings.

    Returns:
        The specification, and a ledger that may hold refusals already.

    Raises:
        RefusedError: if the command line or the header cannot be cut, or the script is none.
        NotFoundError: if `read_file` raises it.
    """
    table = built_in_options("sbatch")
    try:
        on_line, command = split_command_line(words, table, command="sbatch")
        name, text = _find_script(on_line, command, read_file)
        script = parse_script(text, table, origin=name)
    except UsageError as error:
        raise _not_cut(error) from error
    given = _without_nothing(merge((script.options, _from_environ(environ), on_line)))
    ledger = Ledger(given, allow=allow)
    if len(script.components) > 1:
        line = next((option.line for option in script.components[1]), 0)
        ledger.refuse("hetjob", "hetjob", "components of several kinds", line=line)
    job = JobSpec(name, text, name, tuple(command[1:]), tuple(given))
    job = _read_options(job, ledger)
    job = _read_container(job, environ, ledger)
    return _read_body(job, script.body_line, environ, ledger), ledger


def _find_script(
    on_line: Sequence[GivenOption], command: Sequence[str], read_file: Callable[[str], str]
) -> tuple[str, str]:
    """Return the name and the text of the script, which `--wrap` may stand for."""
    wraps = [option.value for option in on_line if option.name == "wrap"]
    if wraps and command:
        raise UsageError(
            f"both --wrap and a script: {command[0]!r}",
            hint="give one of them; --wrap's has no arguments",
        )
    if wraps and not is_utf8(wraps[-1]):
        raise UsageError("--wrap: not UTF-8")
    if wraps:
        return "wrap", f"#!/bin/sh\n# Made from --wrap.\n\n{wraps[-1]}\n"
    path = command[0] if command else "-"
    name = "sbatch" if path == "-" else check_text(path.rstrip("/").rpartition("/")[2])
    text = read_file(path)
    if path == "-":
        check_script(text, origin="standard input")
    else:
        check_script(text, origin=name, path=path)
    return name, text


def _not_cut(error: UsageError) -> RefusedError:
    """A script or header that sbatch itself could not read; what stands behind is not known."""
    code = "unknown-option" if isinstance(error, OptionError) else "invalid-value"
    way_out = error.hint or REFUSALS[code]
    return RefusedError([Note("refused", code, "", 0, str(error), way_out)])


def _without_nothing(given: Sequence[GivenOption]) -> list[GivenOption]:
    """Leave out what an empty value takes back; the file `none`, in any letters, is /dev/null."""
    return [
        option._replace(value="/dev/null")
        if option.name in ("error", "input", "output") and option.value.lower() == "none"
        else option
        for option in given
        if option.value or option.name not in rules.EMPTY_IS_NONE
    ]


_SET = re.compile(r"|yes|\s*[+-]?0*[1-9]\d*", re.ASCII | re.IGNORECASE)
"""Values of a switch's variable that set it; with others sbatch goes on as without it."""


def _from_environ(environ: Mapping[str, str]) -> list[GivenOption]:
    switches = {row.name for row in built_in_options("sbatch") if row.argument == "none"}
    given = [
        GivenOption(option, "" if option in switches else environ[variable], (variable,))
        for variable, option in rules.VARIABLES.items()
        if variable in environ and (option not in switches or _SET.fullmatch(environ[variable]))
    ]
    wait = environ.get(rules.SWITCH_WAIT)
    return [
        option._replace(value=f"{option.value}@{wait}")
        if option.name == "switches" and wait
        else option
        for option in given
    ]


def merge(sources: Iterable[Sequence[GivenOption]]) -> list[GivenOption]:
    """Return the options that hold, weakest source first: each name once, the last one given.

    Options that exclude each other displace those of weaker sources, and stay side by side within
    one source, for the reader to refuse; of opposites the last one given is left.
    """
    merged: dict[str, GivenOption] = {}
    for source in sources:
        displaced: set[str] = set()
        for option in source:
            for group in rules.EXCLUSIVE_GROUPS:
                if option.name in group:
                    displaced |= group
        displaced |= {option.name for option in source}
        merged = {name: option for name, option in merged.items() if name not in displaced}
        for option in source:
            for group in rules.OPPOSITES:
                if option.name in group:
                    merged = {n: other for n, other in merged.items() if n not in group}
            merged[option.name] = option
    return list(merged.values())


def _read_options(job: JobSpec, ledger: Ledger) -> JobSpec:
    fields: dict[str, Any] = {}
    launcher: list[tuple[str, str]] = []
    names = {option.name for option in job.given}
    for group in rules.EXCLUSIVE_GROUPS:
        both = sorted(group & names)
        if len(both) > 1:
            ledger.refuse("invalid-value", f"--{both[1]}", f"excludes --{both[0]}")
    for first, second in rules.NEVER_TOGETHER:
        if {first, second} <= names:
            ledger.refuse("invalid-value", f"--{first}", f"excludes --{second}")
    for option in job.given:
        flag = f"--{option.name}"
        if option.name in rules.LAUNCHER:
            launcher += _read_launcher_option(option, ledger)
        elif option.name in rules.IGNORED:
            ledger.ignore(option.name, flag, rules.IGNORED[option.name])
        elif option.name in rules.REFUSED:
            code, way_out = rules.REFUSED[option.name], rules.WAYS_OUT.get(option.name, "")
            ledger.refuse(code, flag, "has no equal on Kubernetes", way_out=way_out)
        elif option.name in _READERS:  # --wrap is the script, and was read before all others
            fields.update(_read_value(option, ledger))
    return dataclasses.replace(job, launcher=tuple(sorted(launcher)), **fields)


def _read_launcher_option(option: GivenOption, ledger: Ledger) -> list[tuple[str, str]]:
    flag = f"--{option.name}"
    pattern, values = rules.LAUNCHER_VALUES.get(option.name, ("", ""))
    try:
        check_text(option.value)
        if pattern and not re.fullmatch(pattern, option.value, re.ASCII | re.IGNORECASE):
            raise UsageError(f"not a value of it: {option.value!r}", hint=values)
    except UsageError as error:
        ledger.refuse("invalid-value", flag, str(error), way_out=error.hint)
        return []
    if option.name in rules.APPROXIMATED_BY_LAUNCHER:
        ledger.approximate(option.name, flag, rules.LAUNCHER[option.name])
    else:
        ledger.render(flag, rules.LAUNCHER[option.name])
    return [(option.name, option.value)]


def _read_value(option: GivenOption, ledger: Ledger) -> dict[str, Any]:
    try:
        return _READERS[option.name](check_text(option.value))
    except ConstraintError as error:
        ledger.refuse(error.code, f"--{option.name}", str(error))
    except UsageError as error:
        ledger.refuse("invalid-value", f"--{option.name}", str(error), way_out=error.hint)
    return {}


def _read_container(job: JobSpec, environ: Mapping[str, str], ledger: Ledger) -> JobSpec:
    values = []
    for option in job.given:
        row = find_option(option.name)
        if row is None:
            continue
        try:
            values.append(RawValue(row, check_text(option.value)))
        except UsageError as error:
            ledger.refuse("invalid-value", f"--{option.name}", str(error), way_out=error.hint)
    while True:
        try:
            return dataclasses.replace(job, container=parse_arguments(values, environ))
        except UsageError as error:
            name, _, text = str(error).partition(": ")
            wrong = [value for value in values if name == f"--{value.option.name}"]
            if not wrong:
                flag = str(error).partition(" ")[0].partition(":")[0]
                ledger.refuse("invalid-value", flag, str(error), way_out=error.hint)
                return job
            ledger.refuse("invalid-value", name, text, way_out=error.hint)
            # Whatever else there is to say, it is said now, and the other values count.
            values = [value for value in values if value not in wrong]


_KNOWN = ("HOME", "USER", "LOGNAME", "PWD")


def _known_variables(job: JobSpec, environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables that the script will find set, as far as they are known here."""
    known = {name: environ[name] for name in _KNOWN if name in environ}
    submitted = known.pop("PWD", "")
    directory = posixpath.join(submitted, job.chdir)
    if directory.startswith("/") and not (job.container.workdir or job.container.image):
        known["PWD"] = posixpath.normpath(directory)  # else the script starts in the container's
    found = {"SLURM_JOB_NAME": job.name, "SLURM_SUBMIT_DIR": submitted,
             "SLURM_JOB_ACCOUNT": job.account, "SLURM_JOB_QOS": job.qos}  # fmt: skip
    return {**known, **{name: value for name, value in found.items() if value}}


def _read_body(job: JobSpec, body_line: int, environ: Mapping[str, str], ledger: Ledger) -> JobSpec:
    body = scan_body(job.script, body_line, _known_variables(job, environ))
    for finding in body.findings:
        if finding.refusal:
            way_out = REFUSALS[finding.code]
            if finding.code in ALLOWABLE:
                way_out += f"; --allow {finding.code} if it is never run"
            ledger.refuse(finding.code, "", finding.text, line=finding.line, way_out=way_out)
        else:
            ledger.warn(finding.code, "", finding.text, line=finding.line)
    image = job.container.image
    for other, line in body.images:
        if not image:
            image = other
            job = dataclasses.replace(
                job, container=job.container._replace(image=other), image_line=line
            )
        elif other.removeprefix("docker://") != image.removeprefix("docker://"):
            text = f"srun runs {other!r}, the job {image!r}: one image for each pod"
            ledger.refuse("image-mixed", "--container-image", text, line=line)
    return _add_mounts(job, body.mounts, ledger)


def _add_mounts(job: JobSpec, mounts: Sequence[tuple[str, int]], ledger: Ledger) -> JobSpec:
    """Give the pod what its steps mount: it is mounted for all of them, from the start."""
    row = find_option("container-mounts")
    assert row is not None
    for text, line in mounts:
        try:
            entries = parse_arguments([RawValue(row, check_text(text))], {}).mounts
        except UsageError as error:
            said = str(error).removeprefix("--container-mounts: ")
            ledger.refuse("invalid-value", "--container-mounts", said, line=line)
            continue
        for entry in entries:
            same = [mount for mount in job.container.mounts if mount.target == entry.target]
            if entry in same:
                continue
            if same:
                text = f"{entry.target}: mounted twice, the step's is left away"
                ledger.warn("mount-twice", "--container-mounts", text, line=line)
                continue
            container = job.container._replace(mounts=(*job.container.mounts, entry))
            job = dataclasses.replace(job, container=container)
            text = f"{entry.target} of srun is mounted for all steps"
            ledger.approximate("srun-mounts", "--container-mounts", text)
    return job
