"""What is left to do when a step or a job has ended: save, let go, remove.

`finish` is the step's own end; `clean_job` is for what a step could not do any more because it was
killed. Both may run twice, and both work as the user, so that nothing of another one can be meant.

Source: pyxis 0.24 pyxis_slurmstepd.c, enroot_export() and enroot_cleanup(); pyxis_slurmd.c,
slurm_spank_job_epilog().
"""

from __future__ import annotations

import ast
import os
import shutil

from enroot_py import BusyError, EnrootError, NotFoundError, containers, remove, remove_unfinished
from pyxis_py.site_packages import add_libraries
from pyxis_py.step.job_processes import end_job_processes, end_processes
from pyxis_py.step.plan import belongs_to_job

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NamedTuple

    from enroot_py import Settings
else:
    from enroot_py import NamedTuple


class StepState(NamedTuple):
    """What a step's end has to know about its beginning.

    Attributes:
        container: name of the container; "" where the step started from an image.
        temporary: it is to be removed.
        save: absolute host path to save it to, or "".
        importer: an external importer that holds an image, or "".
        scratch: a folder to remove, or "".
    """

    container: str
    temporary: bool
    save: str
    importer: str
    scratch: str

    @property
    def has_work(self) -> bool:
        """Whether anything is left to do at the end."""
        return bool(self.temporary or self.save or self.importer or self.scratch)


def parse_state(text: str) -> StepState:
    """Read what `StepState` was written as: the text of a plain tuple.

    Raises:
        ValueError: if it is none.
    """
    try:
        values = ast.literal_eval(text)
        return StepState(*values)
    except (SyntaxError, TypeError) as error:
        raise ValueError(text) from error


def finish(state: StepState, settings: Settings, *, complete: bool) -> tuple[list[str], list[str]]:
    """End a step.

    Args:
        state: what there is to end.
        settings: in force.
        complete: all tasks were started; a container that was not is not worth saving.

    Returns:
        Lines for the user, and lines about what failed. Nothing that fails keeps the rest from
        being tried.
    """
    done: list[str] = []
    failed: list[str] = []
    if state.save and complete:
        add_libraries()
        from enroot_py import export

        try:
            export(state.container, state.save, settings=settings, force=True)
            done.append(f"saved container {state.container} to {state.save}")
        except EnrootError as error:
            failed.append(f"cannot save container {state.container} to {state.save}: {error}")
            # Some name options of `enroot export`, which nobody has called.
            failed += [error.hint] if error.hint and "--" not in error.hint else []
    if state.importer:
        from pyxis_py.importer import release_image

        try:
            release_image(state.importer, settings.environment)
        except EnrootError as error:
            failed += [str(error), *error.hint.splitlines()]
    if state.temporary:
        failed += _remove(state.container, settings)
    if state.scratch:
        shutil.rmtree(state.scratch, ignore_errors=True)
    return done, failed


def clean_job(job: int, settings: Settings, *, folders: Iterable[str], named: bool) -> list[str]:
    """Remove what a job has left on this node; return what could not be removed.

    Args:
        job: job id.
        settings: the user's.
        folders: his runtime folders: that of the plugin, and those of tasks without one.
        named: named containers end with their job as well.
    """
    failed = []
    end_job_processes(job)
    for status in containers(settings=settings):
        if belongs_to_job(status.name, job, named=named):
            # Those that another job has joined to it: it ends with this one.
            end_processes([process.pid for process in status.processes])
            failed += _remove(status.name, settings)
    for folder in folders:
        _empty_folder(folder, job)
    # Unpacking that was killed, too: the next step of this user may come late, or never. The last
    # thing, as a large tree, or a folder that does not answer, may take more time than there is.
    try:
        remove_unfinished(settings=settings)
    except OSError as error:
        failed.append(f"cannot look for unfinished work: {error}")
    return failed


def _empty_folder(folder: str, job: int) -> None:
    """Remove from a runtime folder what a job has left in it."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return
    for name in names:
        if name.startswith(f"{job}."):
            path = os.path.join(folder, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)


def _remove(name: str, settings: Settings) -> list[str]:
    try:
        try:
            remove(name, settings=settings)
        except BusyError:
            # The pause program, where tasks were killed before they joined; what tasks have left.
            for status in containers(settings=settings):
                if status.name == name:
                    end_processes([process.pid for process in status.processes])
            remove(name, settings=settings)
    except NotFoundError:
        pass  # the epilog and the step's end may both come to it
    except EnrootError as error:
        return [f"cannot remove container {name}: {error}"]
    return []
