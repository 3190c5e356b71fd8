"""What is known of a container's step, and the environment that enroot works in for it. Pure.

Source: pyxis 0.24 pyxis_slurmstepd.c, job_get_info() and enroot_set_env().
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NamedTuple

    from pyxis_py.args import Arguments
    from pyxis_py.plugin_config import PluginConfig
else:
    from enroot_py import NamedTuple

PYXIS_VERSION = "0.24.0"
"""The version of NVIDIA's Pyxis whose behaviour this package has; importers are told."""

BATCH_STEP = 0xFFFFFFFB
"""The step id of a batch script. Source: slurm.h, SLURM_BATCH_SCRIPT."""

_WITHHELD = frozenset(
    {
        "PATH", "LD_LIBRARY_PATH", "LD_PRELOAD",
        # Identity of one task; the container is for all of them.
        "SLURM_PROCID", "SLURM_LOCALID", "SLURM_TASK_PID", "PMIX_RANK", "PMI_FD", "PMI_RANK",
    }
)  # fmt: skip
"""Variables of the job that enroot and its hooks do not see."""

SITE_SETTINGS = frozenset(
    {
        "ENROOT_LIBRARY_PATH", "ENROOT_SYSCONF_PATH", "ENROOT_RUNTIME_PATH", "ENROOT_CACHE_PATH",
        "ENROOT_DATA_PATH", "ENROOT_TEMP_PATH", "ENROOT_ZSTD_OPTIONS", "ENROOT_TRANSFER_RETRIES",
        "ENROOT_CONNECT_TIMEOUT", "ENROOT_MAX_CONNECTIONS", "ENROOT_ALLOW_HTTP",
    }
)  # fmt: skip
"""Settings that are the site's under Slurm, not the user's to choose."""

_YES = {True: "y", False: "n"}


class JobFacts(NamedTuple):
    """The step, as Slurm describes it.

    Attributes:
        uid, gid: the job's user and group.
        job: job id.
        step: step id, BATCH_STEP for a batch script.
        tasks: how many tasks the step has on all nodes; 0 for a batch script.
        local_tasks: how many on this node.
        cwd: the job's working directory, an absolute host path, or "" if it is not known.
        script: host path of the batch script, "" in other steps.
        script_target: its path inside the container; "" for the same.
        environ: the job's environment.
    """

    uid: int
    gid: int
    job: int
    step: int
    tasks: int = 1
    local_tasks: int = 1
    cwd: str = ""
    script: str = ""
    script_target: str = ""
    environ: Mapping[str, str] = {}

    @property
    def privileged(self) -> bool:
        """Whether root asked to stay root on the host (ENROOT_ALLOW_SUPERUSER)."""
        text = self.environ.get("ENROOT_ALLOW_SUPERUSER", "false").lower()
        return self.uid == 0 and text not in ("no", "false", "n", "f", "")


def enroot_environ(
    arguments: Arguments, config: PluginConfig, job: JobFacts, path: str, *, own: bool = False
) -> dict[str, str]:
    """Return the environment in which enroot and its hooks work for a step.

    Args:
        arguments: what was asked; switches become ENROOT_* variables.
        config: the site's settings.
        job: the step.
        path: the PATH to look programs up in: the daemon's or the launcher's, not the job's.
        own: whoever runs the step is the site, too.
    """
    withheld = _WITHHELD if own else _WITHHELD | SITE_SETTINGS
    environ = {name: value for name, value in job.environ.items() if name not in withheld}
    environ["PATH"] = path
    environ["SLURM_JOB_UID"] = str(job.uid)
    environ["SLURM_JOB_GID"] = str(job.gid)
    for variable, asked in (
        ("ENROOT_MOUNT_HOME", arguments.mount_home),
        ("ENROOT_REMAP_ROOT", arguments.remap_root),
        ("ENROOT_ROOTFS_WRITABLE", arguments.writable),
    ):
        if asked is not None:
            environ[variable] = _YES[asked]
    for namespace in arguments.unshare:
        environ[f"ENROOT_UNSHARE_{namespace.upper()}"] = "y"
    if config.image_store:
        environ["ENROOT_CACHE_PATH"] = config.image_store
    environ["PYXIS_RUNTIME_PATH"] = config.runtime_path
    environ["PYXIS_VERSION"] = PYXIS_VERSION
    return environ


def parse_step_id(text: str) -> int:
    """Return a step id from SLURM_STEP_ID or from a step's name ("batch").

    Raises:
        ValueError: if it is neither.
    """
    return BATCH_STEP if text == "batch" else int(text)
