"""What is done with every option of sbatch: one row each, and the variables that stand for options.

An option is read into the job specification, handed to the launcher in the pod, ignored with a
reason, or refused with a code. Options that are read are noted where they are rendered.

Pure. Source of the options: sbatch(1), sections OPTIONS and INPUT ENVIRONMENT VARIABLES.
"""

from __future__ import annotations

_READ = """
    account array chdir comment constraint cpus-per-gpu cpus-per-task dependency exclude exclusive
    export gid gpus gpus-per-node gpus-per-task gres hold job-name licenses mem mem-per-cpu
    mem-per-gpu mincpus no-requeue nodelist nodes ntasks ntasks-per-gpu ntasks-per-node output
    partition qos requeue reservation segment signal switches time tmp uid wckey wrap
"""
READ = frozenset(_READ.split())
"""Read into the job specification (jobspec.py)."""

LAUNCHER: dict[str, str] = {
    "distribution": "tasks are distributed over the pods",
    "error": "the launcher writes the file",
    "gpu-bind": "tasks are bound within the pod's GPUs",
    "hint": "a hint for the binding of tasks: CPUs of a pod are hardware threads",
    "input": "the launcher reads the file",
    "mem-bind": "tasks are bound within the pod's memory",
    "ntasks-per-core": "a limit for the binding of tasks: CPUs of a pod are hardware threads",
    "ntasks-per-socket": "a limit for the binding of tasks",
    "open-mode": "how the launcher opens output files",
    "overcommit": "tasks may share CPUs of the pod",
    "threads-per-core": "a hint for the binding of tasks: CPUs of a pod are hardware threads",
}
"""Handed to the launcher in job.json, with what it does."""

APPROXIMATED_BY_LAUNCHER = frozenset(
    ("gpu-bind", "mem-bind", "hint", "ntasks-per-core", "ntasks-per-socket",
     "threads-per-core")
)  # fmt: skip

_GPU_MAP = r"(0x[\da-f]+|\d+)(\*\d+)?"
_GPU_MASK = r"(0x)?[\da-f]+(\*\d+)?"
_GPU_BINDING = (
    r"closest|none|(single|per_task):\d+"
    rf"|map_gpu:{_GPU_MAP}(,+{_GPU_MAP})*,*|mask_gpu:{_GPU_MASK}(,+{_GPU_MASK})*,*"
)
_DISTRIBUTION = r"(\*|block|cyclic|arbitrary)(:(\*|block|cyclic|fcyclic)){0,2}"
LAUNCHER_VALUES: dict[str, tuple[str, str]] = {
    # option: what its value looks like in any case of letters, and how to say so
    "distribution": (
        rf"(no)?pack|plane=0*[1-9]\d*|{_DISTRIBUTION}(,(no)?pack)?",
        "block, cyclic, plane=SIZE or arbitrary, and how within a node: block:cyclic",
    ),
    "gpu-bind": (
        rf"(verbose,)?({_GPU_BINDING})(,verbose)?",
        "closest, none, single:N, per_task:N, map_gpu:LIST or mask_gpu:LIST",
    ),
    "hint": (
        r"(compute_bound|memory_bound|(no)?multithread)(,(compute_bound|memory_bound|(no)?multithread))*",
        "compute_bound, memory_bound, multithread or nomultithread",
    ),
    "ntasks-per-core": (r"[1-9]\d*", "a count"),
    "ntasks-per-socket": (r"[1-9]\d*", "a count"),
    "open-mode": (r"[at].*", "append or truncate"),
    "threads-per-core": (r"[1-9]\d*", "a count"),
}
"""Values that sbatch refuses are refused here, not in the pod."""

IGNORED: dict[str, str] = {
    "acctg-freq": "there is no accounting: use the cluster's metrics",
    "batch": "the first pod runs the script, whichever node it is on",
    "consolidate-segments": "the scheduler decides where segments go",
    "contiguous": "nodes of a cluster have no order",
    "core-spec": "the kubelet reserves CPUs for the system",
    "cores-per-socket": "nodes are chosen by labels: use --constraint",
    "cpu-freq": "pods do not set frequencies",
    "deadline": "no scheduler here has deadlines",
    "delay-boot": "nodes are not booted for a job",
    "extra": "a comment for other tools",
    "extra-node-info": "nodes are chosen by labels: use --constraint",
    "get-user-env": "no login environment is copied into a pod",
    "gpu-freq": "pods do not set frequencies",
    "gres-flags": "the device plugin or driver decides",
    "ignore-pbs": "#PBS lines are never read",
    "kill-on-invalid-dep": "conditions are held against the cluster when the job is released",
    "mail-type": "nothing here sends mail; watch the job with kubectl get -w",
    "mail-user": "nothing here sends mail; watch the job with kubectl get -w",
    "mcs-label": "namespaces separate users",
    "network": "the fabric comes from the site profile",
    "nice": "priorities are classes: use --qos",
    "no-kill": "a lost pod ends the run",
    "oversubscribe": "pods share a node whenever their requests fit",
    "parsable": "for the command that submits",
    "power": "pods do not set power limits",
    "prefer": "a preference only",
    "priority": "priorities are classes: use --qos",
    "profile": "use the cluster's metrics",
    "propagate": "limits of a pod come from the container runtime",
    "quiet": "for the command that submits",
    "sockets-per-node": "nodes are chosen by labels: use --constraint",
    "spread-job": "one pod for each node already",
    "stepmgr": "steps are managed by the launcher already",
    "test-only": "rendering submits nothing",
    "thread-spec": "the kubelet reserves CPUs for the system",
    "time-min": "limits are not lowered for backfilling",
    "tres-bind": "the device plugin or driver decides",
    "use-min-nodes": "the number of nodes is fixed",
    "verbose": "for the command that submits",
    "wait": "for the command that submits",
    "wait-all-nodes": "the body starts when all agents have joined",
}

REFUSED: dict[str, str] = {
    # option: code
    "bb": "bb",
    "bbf": "bb",
    "begin": "begin",
    "cluster-constraint": "cluster",
    "clusters": "cluster",
    "container": "option-unsupported",
    "container-id": "option-unsupported",
    "context": "option-unsupported",
    "export-file": "export-file",
    "gpus-per-socket": "gpus-per-socket",
    "help": "option-unsupported",
    "nodefile": "option-unsupported",
    "reboot": "option-unsupported",
    "resources-per-task": "option-unsupported",
    "tres-per-job": "option-unsupported",
    "tres-per-node": "option-unsupported",
    "tres-per-socket": "option-unsupported",
    "tres-per-task": "option-unsupported",
    "usage": "option-unsupported",
    "version": "option-unsupported",
}

WAYS_OUT: dict[str, str] = {
    "container": "use --container-image",
    "context": "leave it away: the cluster's policy gives pods their SELinux context",
    "nodefile": "use --nodelist",
    "reboot": "leave it away: pods do not reboot nodes",
    "tres-per-node": "use --gres or --gpus-per-node",
    "tres-per-task": "use --cpus-per-task and --gpus-per-task",
}

VARIABLES: dict[str, str] = {
    # variable: option; of a switch's variable the value says whether it is set
    "SBATCH_ACCOUNT": "account",
    "SBATCH_ACCTG_FREQ": "acctg-freq",
    "SBATCH_ARRAY_INX": "array",
    "SBATCH_BATCH": "batch",
    "SBATCH_BURST_BUFFER": "bb",
    "SBATCH_CLUSTERS": "clusters",
    "SBATCH_CLUSTER_CONSTRAINT": "cluster-constraint",
    "SBATCH_CONSTRAINT": "constraint",
    "SBATCH_CONTAINER": "container",
    "SBATCH_CORE_SPEC": "core-spec",
    "SBATCH_CPUS_PER_GPU": "cpus-per-gpu",
    "SBATCH_CPU_FREQ_REQ": "cpu-freq",
    "SBATCH_DELAY_BOOT": "delay-boot",
    "SBATCH_DISTRIBUTION": "distribution",
    "SBATCH_ERROR": "error",
    "SBATCH_EXCLUSIVE": "exclusive",
    "SBATCH_EXPORT": "export",
    "SBATCH_GET_USER_ENV": "get-user-env",
    "SBATCH_GPUS": "gpus",
    "SBATCH_GPUS_PER_NODE": "gpus-per-node",
    "SBATCH_GPUS_PER_SOCKET": "gpus-per-socket",
    "SBATCH_GPUS_PER_TASK": "gpus-per-task",
    "SBATCH_GPU_BIND": "gpu-bind",
    "SBATCH_GPU_FREQ": "gpu-freq",
    "SBATCH_GRES": "gres",
    "SBATCH_GRES_FLAGS": "gres-flags",
    "SBATCH_HINT": "hint",
    "SBATCH_IGNORE_PBS": "ignore-pbs",
    "SBATCH_INPUT": "input",
    "SBATCH_JOB_NAME": "job-name",
    "SBATCH_MEM_BIND": "mem-bind",
    "SBATCH_MEM_PER_CPU": "mem-per-cpu",
    "SBATCH_MEM_PER_GPU": "mem-per-gpu",
    "SBATCH_MEM_PER_NODE": "mem",
    "SBATCH_NETWORK": "network",
    "SBATCH_NO_KILL": "no-kill",
    "SBATCH_NO_REQUEUE": "no-requeue",
    "SBATCH_OPEN_MODE": "open-mode",
    "SBATCH_OUTPUT": "output",
    "SBATCH_OVERCOMMIT": "overcommit",
    "SBATCH_PARTITION": "partition",
    "SBATCH_POWER": "power",
    "SBATCH_PROFILE": "profile",
    "SBATCH_QOS": "qos",
    "SBATCH_REQUEUE": "requeue",
    "SBATCH_REQ_SWITCH": "switches",
    "SBATCH_RESERVATION": "reservation",
    "SBATCH_SIGNAL": "signal",
    "SBATCH_SPREAD_JOB": "spread-job",
    "SBATCH_THREADS_PER_CORE": "threads-per-core",
    "SBATCH_THREAD_SPEC": "thread-spec",
    "SBATCH_TIMELIMIT": "time",
    "SBATCH_TRES_BIND": "tres-bind",
    "SBATCH_TRES_PER_TASK": "tres-per-task",
    "SBATCH_USE_MIN_NODES": "use-min-nodes",
    "SBATCH_WAIT": "wait",
    "SBATCH_WAIT_ALL_NODES": "wait-all-nodes",
    "SBATCH_WCKEY": "wckey",
}
SWITCH_WAIT = "SBATCH_WAIT4SWITCH"
"""How long SBATCH_REQ_SWITCH's wish is waited for: what stands behind the @ of --switches."""

EXCLUSIVE_GROUPS: tuple[frozenset[str], ...] = (frozenset(("mem", "mem-per-cpu", "mem-per-gpu")),)
"""Options of which one excludes the others; one from a stronger source displaces them."""

OPPOSITES: tuple[frozenset[str], ...] = (
    frozenset(("requeue", "no-requeue")),
    frozenset(("exclusive", "oversubscribe")),
)
"""Options of which the last one counts."""

NEVER_TOGETHER: tuple[tuple[str, str], ...] = (
    ("ntasks-per-gpu", "gpus-per-task"),
    ("ntasks-per-gpu", "ntasks-per-node"),
)
"""Options that sbatch refuses side by side, wherever they come from."""

EMPTY_IS_NONE = frozenset((
    "account", "array", "comment", "constraint", "dependency", "exclude", "gpus", "gpus-per-node",
    "gpus-per-task", "gres", "licenses", "nodelist", "qos", "reservation", "wckey",
))  # fmt: skip
"""Options that an empty value takes back, as in `--dependency="$AFTER"`."""
