"""Hook `50-slurm-pytorch`: torch.distributed's variables, from Slurm's, in PyTorch images.

Source: enroot 4.1.2 conf/hooks/extra/50-slurm-pytorch.sh; torch.distributed.run.
"""

from __future__ import annotations

from enroot_py.hooks.context import NO_EDITS, Edits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from enroot_py.hooks.context import HookContext

_FIRST_PORT, _PORTS = 61000, 4536
_COPIES = (
    ("WORLD_SIZE", "SLURM_NTASKS"),
    ("RANK", "SLURM_PROCID"),
    ("LOCAL_RANK", "SLURM_LOCALID"),
)


def run(context: HookContext) -> Edits:
    """Add what the container's environment does not set."""
    return plan_pytorch(context.settings.environment, context.environ)


def plan_pytorch(host: Mapping[str, str], container: Mapping[str, str]) -> Edits:
    """Decide from the host's and the container's environment. Pure."""
    if "PYTORCH_VERSION" not in container:
        return NO_EDITS
    wanted = {}
    address = first_host(host.get("SLURM_STEP_NODELIST", ""))
    if address:
        wanted["MASTER_ADDR"] = address
    job = host.get("SLURM_JOB_ID", "")
    if job.isdigit():
        # The same on every node, and seldom the same for two jobs on one node.
        wanted["MASTER_PORT"] = str(int(job) % _PORTS + _FIRST_PORT)
    for target, source in _COPIES:
        if host.get(source):
            wanted[target] = host[source]
    if _number(host, "SLURM_STEP_NUM_TASKS") > _number(host, "SLURM_STEP_NUM_NODES"):
        wanted["OMP_NUM_THREADS"] = "1"
    return Edits((), tuple(pair for pair in wanted.items() if pair[0] not in container))


def first_host(nodelist: str) -> str:
    """Return the first name of a Slurm host list: "gpu[03-09,12],login1" → "gpu03".

    Source: Slurm's scontrol(1), show hostnames; it need not be installed.
    """
    name = []
    at = 0
    while at < len(nodelist) and nodelist[at] != ",":
        if nodelist[at] != "[":
            name.append(nodelist[at])
            at += 1
            continue
        end = nodelist.find("]", at)
        if end < 0:
            return ""
        name.append(nodelist[at + 1 : end].split(",")[0].split("-")[0])
        at = end + 1
    return "".join(name)


def _number(host: Mapping[str, str], name: str) -> int:
    text = host.get(name) or "1"
    return int(text) if text.isdigit() else 1
