"""The --container-* flags of Slurm's Pyxis plugin, and the launchers behind them: the public API.

    import pyxis_py

    status = pyxis_py.launch(["python", "train.py"], image="nvcr.io#nvidia/pytorch:25.01-py3",
                             mounts=["/scratch:/scratch"], nodes=4, tasks_per_node=8)

`StepHooks` is for launchers of other kinds: the hooks of a step on one node as an object. Names
resolve on first use, as in enroot_py.
"""

from __future__ import annotations

_EXPORTS = {
    "JobFacts": "pyxis_py.job",
    "StepHooks": "pyxis_py.launchers.step_hooks",
    "become_task": "pyxis_py.launchers.handover",
    "launch": "pyxis_py.launchers.launch",
    "launch_command": "pyxis_py.launchers.launch",
    "pass_task": "pyxis_py.launchers.handover",
    "read_flags": "pyxis_py.launchers.step_hooks",
    "run_local": "pyxis_py.launchers.local",
}
__all__ = sorted(_EXPORTS)

TYPE_CHECKING = False  # the literal that type checkers know; `typing` itself would cost 4 ms
if TYPE_CHECKING:
    from pyxis_py.job import JobFacts as JobFacts
    from pyxis_py.launchers.handover import become_task as become_task
    from pyxis_py.launchers.handover import pass_task as pass_task
    from pyxis_py.launchers.launch import launch as launch
    from pyxis_py.launchers.launch import launch_command as launch_command
    from pyxis_py.launchers.local import run_local as run_local
    from pyxis_py.launchers.step_hooks import StepHooks as StepHooks
    from pyxis_py.launchers.step_hooks import read_flags as read_flags
else:

    def __getattr__(name: str) -> object:
        # Hidden from type checkers, which would take any name for an object otherwise.
        if name not in _EXPORTS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(__import__(_EXPORTS[name], fromlist=[name]), name)
        globals()[name] = value  # the next access skips this function
        return value


def __dir__() -> list[str]:
    return [*globals(), *_EXPORTS]
