"""Hook `50-mig-config`: let root inside configure MIG on GPUs that have it enabled.

Source: enroot 4.1.2 conf/hooks/extra/50-mig-config.sh; nvidia-smi(1).
"""

from __future__ import annotations

import os

from enroot_py.hooks.context import NO_EDITS, Edits
from enroot_py.hooks.execute import read_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from enroot_py.hooks.context import HookContext


def run(context: HookContext) -> Edits:
    """Ask nvidia-smi about the visible GPUs; a host without it has none."""
    host = context.settings.environment
    image = context.environ.get("NVIDIA_VISIBLE_DEVICES", "")
    visible = context.gpus or host.get("NVIDIA_VISIBLE_DEVICES", image)
    if not names_whole_gpus(visible):
        return NO_EDITS
    command = ["nvidia-smi", "--query-gpu=mig.mode.current", "--format=csv,noheader"]
    if visible != "all":
        command += ["-i", visible]
    output = os.path.join(context.workdir, "mig-mode")
    modes = read_program(command, host, output, context.settings.hook_timeout)
    if "Enabled" not in modes:
        return NO_EDITS
    return Edits((), (("NVIDIA_MIG_CONFIG_DEVICES", "all"),))


def names_whole_gpus(visible: str) -> bool:
    """Tell whether a NVIDIA_VISIBLE_DEVICES value names GPUs and no MIG device ("0:1", "MIG-…")."""
    if visible in ("", "void", "none") or "MIG-" in visible:
        return False
    # Parity: a colon inside says MIG device. What is left may come from an image and goes into a
    # command line of the host, so it must look like indices or UUIDs.
    return visible.replace(",", "").replace("-", "").isalnum() and not visible.startswith("-")
