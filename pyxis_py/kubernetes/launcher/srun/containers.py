"""`srun --container-*` in a pod: the job's container is the only one.

Pure. Source: pyxis 0.24 args.c and README.
"""

from __future__ import annotations

import posixpath
from typing import NamedTuple

from pyxis_py.kubernetes.launcher.job.command_line import CommandLineError
from pyxis_py.kubernetes.launcher.job.job_file import Job
from pyxis_py.kubernetes.launcher.srun.options import Srun


class ContainerStep(NamedTuple):
    """What a step that asks for a container gets of it.

    Attributes:
        directory: where its tasks start, "" for the container's own folder.
        kept: variables that win over those of the image; None if all of the step's do, because
            it does not ask for an image.
    """

    directory: str
    kept: tuple[str, ...] | None


def read_container(srun: Srun, job: Job) -> ContainerStep | None:
    """Return what --container-* ask for, the job's too; None for a step without a container.

    Raises:
        CommandLineError: for another image or for mounts that the pod does not have.
    """
    image, mounts = srun.text("container-image"), srun.text("container-mounts")
    if image and job.image and _plain(image) != _plain(job.image):
        raise CommandLineError(
            f"image-mixed: the step asks for {image}, and the pod runs {job.image}: use one image "
            "for all steps, or split the job"
        )
    if mounts and job.mounts is not None:
        missing = [target for target in map(_target, mounts.split(",")) if target not in job.mounts]
        if missing:
            raise CommandLineError(
                f"mount-mixed: the pod has nothing mounted at {', '.join(missing)}: name the "
                "mounts of all steps in the job's --container-mounts"
            )
    directory = srun.text("container-workdir")
    if not image and not srun.has("container-name") and not job.contained:
        return ContainerStep(directory, None) if directory else None
    kept = tuple(name for name in srun.text("container-env").split(",") if name)
    return ContainerStep(directory, (*kept, *job.container_env))


def _plain(image: str) -> str:
    text = image.replace("\\#", "#")
    return text[len("docker://") :] if text.startswith("docker://") else text


def _target(entry: str) -> str:
    """Where an entry SRC[:DST[:FLAGS]] is mounted."""
    parts = entry.split(":")
    return posixpath.normpath(posixpath.join("/", parts[1] if len(parts) > 1 else parts[0]))
