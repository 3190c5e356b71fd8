"""Variables of the pods: SLURM_* from the job, identity, and what the submitter exports.

Values that only a running pod knows come through the downward API; those of a task are the
launcher's. Nothing that looks like a secret is ever written into a pod spec: it goes to the job's
Secret, or comes from one of the user's.

Pure. Source: sbatch(1), section OUTPUT ENVIRONMENT VARIABLES.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyxis_py.kubernetes.pod.context import Context, Element, Manifest
from pyxis_py.kubernetes.pod.devices import uses_fabric
from pyxis_py.kubernetes.spec.slurm_lists import format_counts
from pyxis_py.kubernetes.spec.slurm_values import is_utf8

INDEX_LABEL = "metadata.labels['batch.kubernetes.io/job-completion-index']"
NODE_INDEX = {
    "kueue": INDEX_LABEL,
    "kueue-job": INDEX_LABEL,
    "slurm-bridge": INDEX_LABEL,
    "volcano": "metadata.annotations['volcano.sh/task-index']",
}
RESTART_COUNT = {
    "kueue": "metadata.labels['jobset.sigs.k8s.io/restart-attempt']",
    "volcano": "metadata.annotations['volcano.sh/job-retry-count']",
}
BRIDGE_JOB_ID = "metadata.labels['scheduler.slinky.slurm.net/slurm-jobid']"

_SECRET_NAME = re.compile(
    r"(^|_)(TOKEN|SECRET|KEY|KEYS|PASSWORD|PASSWD|PASS|PAT|CREDENTIALS?|AUTH|COOKIE)(_|\Z)"
    r"|PASSWORD|APIKEY|SECRET",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"://[^/\s:@]*:[^/\s@]+@|-----BEGIN [A-Z ]*PRIVATE KEY|\b(hf_|ghp_|glpat-|sk-|nvapi-|AKIA)\w{8}"
)
_NOT_CAPTURED = re.compile(r"PATH\Z|LD_|HOSTNAME\Z|SSH_|KUBE|SLURM_|SBATCH_|PYXIS_|BASH_FUNC_|_\Z")
_OF_OPTIONS = {
    "cpus-per-gpu": "SLURM_CPUS_PER_GPU",
    "dependency": "SLURM_JOB_DEPENDENCY",
    "distribution": "SLURM_DISTRIBUTION",
    "gpu-bind": "SLURM_GPU_BIND",
    "gpus": "SLURM_GPUS",
    "gpus-per-node": "SLURM_GPUS_PER_NODE",
    "gpus-per-task": "SLURM_GPUS_PER_TASK",
    "hint": "SLURM_HINT",
    "ntasks-per-core": "SLURM_NTASKS_PER_CORE",
    "ntasks-per-gpu": "SLURM_NTASKS_PER_GPU",
    "ntasks-per-socket": "SLURM_NTASKS_PER_SOCKET",
    "threads-per-core": "SLURM_THREADS_PER_CORE",
}
"""Variables that are set to what an option says, and read by srun where it has the option too."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Exports:
    """What the submitter exports: open values for job.json, and those of the Secret."""

    plain: tuple[tuple[str, str], ...] = ()
    secret: tuple[tuple[str, str], ...] = ()


def is_secret(name: str, value: str) -> bool:
    """Whether a variable looks like a password, a key or a token."""
    return bool(_SECRET_NAME.search(name) or _SECRET_VALUE.search(value))


def read_exports(context: Context) -> Exports:
    """Return the variables that `--export` names; nothing is captured without it."""
    text, ledger, environ = context.job.export, context.ledger, context.options.environ
    if text is None:
        text = "no variable of the submitter is passed on; Slurm would pass all"
        ledger.approximate("export", "", text, way_out="--export=A,B names those that are needed")
        return Exports()
    line = next((o.line for o in context.job.given if o.name == "export"), 0)
    found: dict[str, str] = {}
    for item in text.split(","):
        name, equals, value = item.partition("=")
        if name in ("ALL", "") and not equals:
            if not context.options.capture_env:
                ledger.refuse("export-all", "--export", "the whole environment of the submitter")
            else:
                found.update(_captured(context))
        elif name in ("NONE", "NIL") and not equals:
            continue
        elif not _VARIABLE.match(name):
            ledger.refuse("invalid-value", "--export", f"not a variable's name: {name!r}")
        elif equals and line and is_secret(name, value):
            text = f"the value of {name} stands in the script, which goes into a ConfigMap"
            ledger.refuse("env-secret", "--export", text)
        elif equals or name in environ:
            found[name] = value if equals else environ[name]
        else:
            ledger.warn("export-unset", "--export", f"{name} is not set where you submit")
    for name, value in found.items():
        if not is_utf8(value):
            ledger.warn("export-not-utf8", "--export", f"{name} is left out: it is not UTF-8")
    pairs = tuple(pair for pair in found.items() if is_utf8(pair[1]))
    if pairs:
        ledger.render("--export", ", ".join(name for name, _ in pairs))
    return Exports(
        tuple(pair for pair in pairs if not is_secret(*pair)),
        tuple(pair for pair in pairs if is_secret(*pair)),
    )


def _captured(context: Context) -> dict[str, str]:
    return {
        name: value
        for name, value in sorted(context.options.environ.items())
        if _VARIABLE.match(name) and not _NOT_CAPTURED.match(name)
    }


def pod_environment(context: Context, element: Element) -> list[Manifest]:
    """Return the container's variables in a fixed order."""
    target = context.options.target
    env = [{"name": "PYXIS_BACKEND", "value": target}]
    rows = [_field(name, path) for name, path in (
        ("POD_NAME", "metadata.name"),
        ("POD_IP", "status.podIP"),
        ("K8S_NODE_NAME", "spec.nodeName"),
    )]  # fmt: skip
    if context.array_of_pods:
        rows.append(_field("PYXIS_ARRAY_INDEX", NODE_INDEX[target]))
        rows.append(_value("SLURM_NODEID", "0"))
    else:
        rows.append(_field("SLURM_NODEID", NODE_INDEX[target]))
    if target in RESTART_COUNT and not context.array_of_pods:
        rows.append(_field("SLURM_RESTART_COUNT", RESTART_COUNT[target]))
    if target == "slurm-bridge":
        rows += [_field(name, BRIDGE_JOB_ID) for name in ("SLURM_JOB_ID", "SLURM_JOBID")]
    values = {**_job(context, element), **_sizes(context, element), **_array(context, element)}
    if uses_fabric(context):
        values.update(context.profile.fabric.environment)
    user = context.options.submitter
    values.update({"USER": user.user, "LOGNAME": user.user, "HOME": user.home})
    for name, value in values.items():
        if is_secret(name, value):
            text = f"{name} would show what looks like a secret to everyone who sees the pod"
            context.ledger.refuse("env-secret", "", text)
        if not is_utf8(value):
            context.ledger.refuse("invalid-value", "", f"{name} is not UTF-8: {value!r}")
        rows.append(_value(name, value))
    taken = {row["name"] for row in rows}
    for name, secret, key in context.options.env_secrets:
        if name not in taken:
            rows.append({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}})
    return [*env, *rows]


def _value(name: str, value: str) -> Manifest:
    # The kubelet expands $(NAME), and makes $ of $$.
    return {"name": name, "value": value.replace("$", "$$")}


def _field(name: str, path: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _job(context: Context, element: Element) -> dict[str, str]:
    """Variables that name the job; those of options that were not given are not set."""
    job, submitter = context.job, context.options.submitter
    ids = {"SLURM_JOB_ID": str(element.job_id), "SLURM_JOBID": str(element.job_id)}
    if context.options.target == "slurm-bridge" or context.array_of_pods:
        ids = {}
    return {
        **ids,
        "SLURM_JOB_NAME": job.name,
        "SLURM_JOB_PARTITION": context.partition_name or context.partition.queue,
        **({"SLURM_JOB_QOS": job.qos} if job.qos else {}),
        **({"SLURM_JOB_ACCOUNT": job.account} if job.account else {}),
        **({"SLURM_JOB_RESERVATION": job.reservation} if job.reservation else {}),
        "SLURM_CLUSTER_NAME": context.profile.cluster_name,
        "SLURM_SUBMIT_DIR": submitter.directory,
        "SLURM_SUBMIT_HOST": submitter.host,
        "SLURM_JOB_USER": submitter.user,
        "SLURM_JOB_UID": str(submitter.uid),
        "SLURM_JOB_GID": str(submitter.gid),
    }


def node_list(context: Context, name: str) -> str:
    """Return the names of a job's pods as a host list: the host names of an Indexed Job's pods."""
    return name_pattern(context, name).format(
        index=f"[0-{context.layout.nodes - 1}]" if context.layout.nodes > 1 else "0"
    )


def name_pattern(context: Context, name: str) -> str:
    """Return what a pod's host name is made of, with `{index}` in place of its number."""
    if context.options.target == "kueue" and not context.array_of_pods:
        return f"{name}-n-0-{{index}}"
    if context.options.target == "volcano":
        return f"{name}-n-{{index}}"
    return f"{name}-{{index}}"


def _sizes(context: Context, element: Element) -> dict[str, str]:
    job, layout = context.job, context.layout
    nodes = layout.nodes
    values = {
        "SLURM_JOB_NUM_NODES": str(nodes),
        "SLURM_NNODES": str(nodes),
        "SLURM_TASKS_PER_NODE": format_counts(layout.tasks),
        "SLURM_JOB_CPUS_PER_NODE": format_counts([layout.cpus] * nodes),
        "SLURM_CPUS_ON_NODE": str(layout.cpus),
    }
    if not context.array_of_pods:
        hosts = node_list(context, element.name)
        values.update({"SLURM_JOB_NODELIST": hosts, "SLURM_NODELIST": hosts})
    if job.ntasks or job.ntasks_per_node or job.ntasks_per_gpu:
        values.update({"SLURM_NTASKS": str(layout.ntasks), "SLURM_NPROCS": str(layout.ntasks)})
    if job.ntasks_per_node:
        values["SLURM_NTASKS_PER_NODE"] = str(job.ntasks_per_node)
    if job.cpus_per_task:
        values["SLURM_CPUS_PER_TASK"] = str(job.cpus_per_task)
    if job.memory is not None:
        per = job.memory_per.upper()
        values[f"SLURM_MEM_PER_{per}"] = str(job.memory or layout.memory)
    if layout.gpus:
        values["SLURM_GPUS_ON_NODE"] = str(layout.gpus)
        values["SLURM_JOB_GPUS"] = ",".join(map(str, range(layout.gpus)))
    for option in job.given:
        if option.name in _OF_OPTIONS:
            values[_OF_OPTIONS[option.name]] = option.value
        elif option.name == "overcommit":
            values["SLURM_OVERCOMMIT"] = "1"
        elif option.name == "open-mode":
            values["SLURM_OPEN_MODE"] = option.value[0].lower()
    return values


def _array(context: Context, element: Element) -> dict[str, str]:
    array = context.job.array
    if array is None:
        return {}
    values = {
        "SLURM_ARRAY_JOB_ID": str(context.options.job_id),
        "SLURM_ARRAY_TASK_COUNT": str(len(array.indices)),
        "SLURM_ARRAY_TASK_MIN": str(array.indices[0]),
        "SLURM_ARRAY_TASK_MAX": str(array.indices[-1]),
        "SLURM_ARRAY_TASK_STEP": str(array.step),
    }
    if element.task is not None:
        values["SLURM_ARRAY_TASK_ID"] = str(element.task)
    return values
