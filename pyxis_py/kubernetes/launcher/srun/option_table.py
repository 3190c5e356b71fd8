"""The options of srun: what a step does with each of them.

Pure. Source: srun(1) of Slurm 22.05 to 23.11; pyxis 0.24 for --container-*.
"""

from __future__ import annotations

from pyxis_py.kubernetes.launcher.job.command_line import Option


def _used(text: str, argument: str) -> list[Option]:
    """Rows of `name[,letter] [VARIABLE…]`, one in each line."""
    rows = []
    for line in text.strip().splitlines():
        words = line.split()
        name, _, short = words[0].partition(",")
        rows.append(Option(name, short, argument, variables=tuple(words[1:])))
    return rows


_USED = """
    chdir,D SLURM_REMOTE_CWD SLURM_WORKING_DIR
    container-env
    container-image
    container-mounts
    container-name
    container-workdir
    cpu-bind SLURM_CPU_BIND
    cpus-per-gpu SLURM_CPUS_PER_GPU
    cpus-per-task,c SRUN_CPUS_PER_TASK
    distribution,m SLURM_DISTRIBUTION
    error,e SLURM_STDERRMODE
    exclude,x
    export SRUN_EXPORT_ENV SLURM_EXPORT_ENV
    gpu-bind SLURM_GPU_BIND
    gpus,G SLURM_GPUS
    gpus-per-node SLURM_GPUS_PER_NODE
    gpus-per-task SLURM_GPUS_PER_TASK
    gres SLURM_STEP_GRES SLURM_GRES
    input,i SLURM_STDINMODE
    job-name,J
    jobid
    mpi SLURM_MPI_TYPE
    nodelist,w
    nodes,N SLURM_JOB_NUM_NODES SLURM_NNODES
    ntasks,n SLURM_NTASKS SLURM_NPROCS
    ntasks-per-gpu SLURM_NTASKS_PER_GPU
    ntasks-per-node SLURM_NTASKS_PER_NODE
    open-mode SLURM_OPEN_MODE
    output,o SLURM_STDOUTMODE
    relative,r
    signal SLURM_SIGNAL
    time,t
    wait,W SLURM_WAIT
"""
_USED_OPTIONAL = """
    exclusive SLURM_EXCLUSIVE
    immediate,I SLURM_IMMEDIATE
    kill-on-bad-exit,K SLURM_KILL_BAD_EXIT
    overlap SLURM_OVERLAP
"""
_USED_SWITCHES = """
    exact SLURM_EXACT
    help,h
    label,l SLURM_LABELIO
    multi-prog
    overcommit,O SLURM_OVERCOMMIT
    preserve-env,E
    quiet,Q
    quit-on-interrupt
    unbuffered,u SLURM_UNBUFFEREDIO
    usage
    version,V
    whole
"""

_OF_JOBS = "it belongs to the job, which runs already"
_MEMORY = "memory is not divided among steps: each has its pod's"
_TOPOLOGY = "sockets and cores of the node are not the pod's to choose"
_NOTHING = "it has no effect in a pod"

_IGNORED: dict[str, tuple[str, ...]] = {
    _OF_JOBS: (
        "account,A", "begin,b", "comment", "constraint,C", "consolidate-segments:none",
        "contiguous:none", "deadline",
        "delay-boot", "dependency,d", "extra", "hold,H:none", "licenses,L", "mail-type",
        "mail-user", "mcs-label", "nice:optional", "no-kill,k:optional", "oversubscribe,s:none",
        "partition,p", "power", "prefer", "priority", "qos,q", "reservation", "segment",
        "spread-job:none", "switches", "time-min", "tmp", "use-min-nodes:none", "wckey",
    ),
    _MEMORY: ("mem", "mem-bind", "mem-per-cpu", "mem-per-gpu"),
    _TOPOLOGY: (
        "core-spec,S", "cores-per-socket", "extra-node-info,B", "hint", "mincpus",
        "ntasks-per-core", "ntasks-per-socket", "sockets-per-node", "thread-spec",
        "threads-per-core",
    ),
    _NOTHING: (
        "accel-bind", "acctg-freq", "bcast-exclude", "compress:optional", "container-digest",
        "container-import-timeout", "context", "container-mount-home:none",
        "container-readonly:none", "container-unshare", "container-writable:none", "cpu-freq",
        "disable-status,X:none",
        "gpu-freq", "gres-flags", "msg-timeout", "network", "no-container-entrypoint:none",
        "no-container-mount-home:none", "no-container-remap-root:none", "profile",
        "propagate:optional", "resv-ports:optional", "send-libs:optional", "slurmd-debug",
        "threads,T", "tree-width", "tres-bind", "verbose,v:none",
    ),
}  # fmt: skip

_REFUSED: dict[str, tuple[str, ...]] = {
    "a batch job has no terminal: use kubectl exec -it": ("pty:none", "interactive:none"),
    "there is no X11 forwarding into a pod: use kubectl port-forward": ("x11:optional",),
    "programs are not broadcast: put them on a mounted filesystem": ("bcast:optional",),
    "the job has one component": ("het-group",),
    "all steps run in the pod's container": (
        "container", "container-device", "container-entrypoint-log:none",
        "container-entrypoint:none", "container-gpus", "container-id", "container-remap-root:none",
        "container-save", "environment",
    ),
    "call it in the script, or in the command": (
        "epilog", "prolog", "task-epilog", "task-prolog",
    ),
    "the cluster of the job is the only one": ("clusters,M",),
    "nodes are not rebooted": ("reboot:none",),
    "a step cannot get more than its job": (
        "bb", "bbf", "cluster-constraint", "gid", "no-allocate,Z:none", "uid",
    ),
    "name the nodes with --nodelist": ("nodefile,F",),
    "use --gpus-per-node": ("gpus-per-socket", "tres-per-node", "tres-per-socket"),
    "use --cpus-per-task and --gpus-per-task": ("tres-per-task", "resources-per-task"),
    "nothing but jobs is tested": ("debugger-test:none", "test-only:none"),
    "put & behind the command": ("async:optional",),
}  # fmt: skip


def _others(table: dict[str, tuple[str, ...]], use: str) -> list[Option]:
    rows = []
    for why, words in table.items():
        for word in words:
            flag, _, argument = word.partition(":")
            name, _, short = flag.partition(",")
            rows.append(Option(name, short, argument or "required", use, why))
    return rows


OPTIONS: tuple[Option, ...] = (
    *_used(_USED, "required"),
    *_used(_USED_OPTIONAL, "optional"),
    *_used(_USED_SWITCHES, "none"),
    *_others(_IGNORED, "ignored"),
    *_others(_REFUSED, "refused"),
)
"""Every option of srun, each once."""

ALIASES = {
    "cluster": "clusters",
    "cpu_bind": "cpu-bind",
    "mem_bind": "mem-bind",
    "ntasks-per-tres": "ntasks-per-gpu",
    "pack-group": "het-group",
    "tasks-per-node": "ntasks-per-node",
}
"""Other names of options, which Slurm takes or took once and scripts still have."""
