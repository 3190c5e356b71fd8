"""Labels and annotations of the job object: Kueue's queue and gates, and what Slurm calls it.

Pure. Source: Kueue v0.19, admission gates and priority classes.
"""

from __future__ import annotations

from pyxis_py.kubernetes.pod.context import Context, Element
from pyxis_py.kubernetes.pod.environment import is_secret
from pyxis_py.kubernetes.spec.notes import Ledger

GATES = "kueue.x-k8s.io/admission-gated-by"
HOLD_GATE = "pyxis/hold"
DEPENDENCY_GATE = "pyxis/dep-"
ARRAY_GATE = "pyxis/array"
"""Of the elements of an array that its limit holds back."""
ARRAY_LIMIT = "pyxis/array-limit"
DEPENDENCY = "pyxis/dependency"
KILL_ON_INVALID = "pyxis/kill-on-invalid-dep"
HELD = "pyxis/held"
"""Annotation of a job that is held without a gate, by its user."""


def job_labels(context: Context, element: Element) -> dict[str, str]:
    """Return the labels of the job object."""
    labels = {**context.labels, "pyxis/element": element.name}
    if context.kueue:
        labels["kueue.x-k8s.io/queue-name"] = context.partition.queue
        if context.qos.workload_priority_class:
            labels["kueue.x-k8s.io/priority-class"] = context.qos.workload_priority_class
        elif context.job.qos and context.qos.priority_class:
            text = "the QOS has no workloadPriorityClass: Kueue takes the pods' class"
            context.ledger.approximate("qos-class", "--qos", text)
    return labels


def job_annotations(context: Context, element: Element) -> dict[str, str]:
    """Return the annotations of the job object."""
    job = context.job
    annotations = {
        "pyxis/job-name": job.name,
        "pyxis/submit-command": f"sbatch {job.script_name}",
    }
    for name, value in (("comment", job.comment), ("wckey", job.wckey)):
        if value and is_secret("", value):
            text = "an annotation would show what looks like a secret"
            context.ledger.refuse("env-secret", f"--{name}", text)
        elif value:
            annotations[f"pyxis/{name}"] = value
    gates = _gates(context)
    if is_limited(context) and job.array and element.task is not None:
        annotations[ARRAY_LIMIT] = str(job.array.limit)
        if job.array.indices.index(element.task) >= job.array.limit:
            gates.append(ARRAY_GATE)
    if job.hold and not context.kueue:
        annotations[HELD] = "user"
    if gates:
        annotations[GATES] = ",".join(gates)
        given = {option.name: option.value for option in job.given}
        if given.get("dependency"):
            annotations[DEPENDENCY] = given["dependency"]
            if given.get("kill-on-invalid-dep") == "yes":
                annotations[KILL_ON_INVALID] = "yes"
    return annotations


def is_limited(context: Context) -> bool:
    """Whether an array of jobs has more elements than may run at once, and Kueue to hold them."""
    array = context.job.array
    limited = array is not None and 0 < array.limit < len(array.indices)
    return limited and context.kueue and not context.array_of_pods


def _gates(context: Context) -> list[str]:
    """Kueue's admission gates; a gate can only be taken away once the object is there."""
    job, ledger = context.job, context.ledger
    if not context.kueue:
        _refuse_gates(context, ledger)
        return []
    gates = []
    way_out = "pyxis kube release JOB  admits the job"
    if job.hold:
        gates.append(HOLD_GATE)
        ledger.add("rendered", "", "--hold", "an admission gate", way_out=way_out)
    for condition in job.dependency.conditions if job.dependency else ():
        if condition.type == "afterburstbuffer":
            ledger.refuse("dependency-unsupported", "--dependency", "there are no burst buffers")
        elif condition.type == "singleton":
            gates.append(f"{DEPENDENCY_GATE}singleton")
        for number in condition.jobs:
            name = "".join(c if c.isalnum() else "-" for c in number.partition("+")[0])
            gates.append(f"{DEPENDENCY_GATE}{name.strip('-')}")
    if job.dependency:
        text = "admission gates, which somebody has to take away when the condition holds"
        way_out = "pyxis kube release --dependencies  admits what waits no longer"
        ledger.approximate("dependency", "--dependency", text, way_out=way_out)
    return list(dict.fromkeys(gates))


def _refuse_gates(context: Context, ledger: Ledger) -> None:
    target = context.options.target
    if context.job.hold and target == "slurm-bridge":
        ledger.render("--hold", "the job is suspended; pyxis kube release JOB resumes it")
    elif context.job.hold and context.options.submitting:
        text = "the job is aborted as soon as it is there; pyxis kube release JOB resumes it"
        ledger.approximate("hold", "--hold", text)
    elif context.job.hold:
        text = f"a manifest cannot keep a job of {target} from starting when it fits"
        ledger.refuse("hold-unsupported", "--hold", text)
    if context.job.dependency:
        text = f"jobs of {target} do not wait for others"
        ledger.refuse("dependency-unsupported", "--dependency", text)


def check_elsewhere(context: Context) -> None:
    """Note options that only Slurm itself could serve."""
    job, ledger = context.job, context.ledger
    bridge = context.options.target == "slurm-bridge"
    for option, value, code in (
        ("--licenses", job.licenses, "licenses"),
        ("--wckey", job.wckey, ""),
    ):
        if not value:
            continue
        if bridge:
            ledger.render(option, "an annotation for Slurm")
        elif code:
            ledger.refuse(code, option, "no scheduler here counts licences")
        else:
            ledger.ignore("wckey", option, "an annotation only")
    array = job.array
    if array is None:
        return
    if is_limited(context):
        text = f"all but {array.limit} elements wait behind admission gates for others to end"
        way_out = "pyxis kube release --dependencies --watch  lets them go one by one"
        ledger.approximate("array", "--array", text, way_out=way_out)
    elif array.limit and array.limit < len(array.indices) and not context.array_of_pods:
        text = f"nothing holds back all but {array.limit} of the elements"
        ledger.refuse("array-throttle", "--array", text)
    else:
        ledger.render("--array", f"{len(array.indices)} elements")
