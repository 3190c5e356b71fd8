"""Hook `50-sharp`: settings for in-network reductions (SHARP), in steps that ask for them.

Source: enroot 4.1.2 conf/hooks/extra/50-sharp.sh.
"""

from __future__ import annotations

from enroot_py.hooks.context import NO_EDITS, Edits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from enroot_py.hooks.context import HookContext

_ALWAYS = (
    ("SHARP_COLL_LOCK_ON_COMM_INIT", "1"),
    ("SHARP_COLL_NUM_COLL_GROUP_RESOURCE_ALLOC_THRESHOLD", "0"),
    ("NCCL_COLLNET_ENABLE", "1"),
)
_NODES = ("SLURM_STEP_NUM_NODES", "OMPI_MCA_orte_num_nodes")


def run(context: HookContext) -> Edits:
    """Add what the container's environment does not set."""
    return plan_sharp(context.settings.environment, context.environ)


def plan_sharp(host: Mapping[str, str], container: Mapping[str, str]) -> Edits:
    """Decide from the host's and the container's environment. Pure."""
    devices = host.get("MELLANOX_VISIBLE_DEVICES", container.get("MELLANOX_VISIBLE_DEVICES", ""))
    if devices in ("", "void", "none") or host.get("SLURM_NETWORK") != "sharp":
        return NO_EDITS
    wanted = dict(_ALWAYS)
    for name in _NODES:
        if host.get(name):
            wanted["NCCL_SHARP_GROUP_SIZE_THRESH"] = host[name]
            break
    return Edits((), tuple(pair for pair in wanted.items() if pair[0] not in container))
