"""A batch script as a job of the emulated cluster: its manifests, with the launcher and the site.

The site's only mount is one folder, at the same path in the pods as here.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyxis_py.kubernetes.pod.context import RenderOptions, Submitter, Target
from pyxis_py.kubernetes.profile.reader import parse_profile
from pyxis_py.kubernetes.profile.site import Profile
from pyxis_py.kubernetes.render.render import Rendering, render_job
from pyxis_py.kubernetes.spec.job_reader import read_job
from tests.kubernetes.emulator.cluster import Cluster
from tests.kubernetes.emulator.volumes import Storage

IMAGE = "registry.test/tools:1"
PYTHON_IMAGE = "registry.test/python:1"
USER = "user1"
TOKEN = "0123456789abcdef" * 4
_FLAG = "--container-image=docker://registry.test#tools:1"
FOLDER = Path(__file__).with_name("scripts")
"""The scripts."""


def render_script(
    script: Path,
    *,
    target: Target = "kueue",
    words: Sequence[str] = (),
    arguments: Sequence[str] = (),
    launcher: bytes,
    job_id: int = 0,
    environ: Mapping[str, str] | None = None,
    user: str = USER,
    uid: int | None = None,
    gid: int | None = None,
    cpus: int = 8,
    bring_python: bool = False,
) -> Rendering:
    """Render a script that lies in the folder where its user submits it.

    Args:
        words: options of the command line.
        arguments: the script's.
        job_id: 0 for one of its own.
        uid, gid: of the user; the caller's if None.
        bring_python: whether pods get the Python of another image.
    """
    folder = script.parent
    profile = _site(folder, cpus)
    submitter = Submitter(
        user, os.getuid() if uid is None else uid, os.getgid() if gid is None else gid, (),
        "/home/" + user, "login1", str(folder),
    )  # fmt: skip
    mount = f"--container-mounts={folder}"
    command = [_FLAG, mount, f"--container-workdir={folder}", *words, script.name, *arguments]
    variables = dict(environ or {})
    job, ledger = read_job(command, lambda path: script.read_text(), variables)
    options = RenderOptions(
        target, "device-plugin", job_id=job_id or 1000 + zlib.crc32(str(folder).encode()) % 10**6,
        token=TOKEN, submitter=submitter, launcher=launcher, environ=variables,
        bring_python=bring_python,
    )  # fmt: skip
    return render_job(job, profile, options, ledger)


def _site(folder: Path, cpus: int) -> Profile:
    """A site with one partition, whose nodes have these CPUs."""
    content = {
        "version": 1,
        "cluster": {"name": "rig", "partition": "all", "pythonImage": PYTHON_IMAGE},
        "partitions": {
            "all": {"queue": "all", "node": {"cpus": cpus, "memory": "4000Mi", "gpus": 0}}
        },
        "mounts": [{"path": str(folder), "name": "shared", "pvc": "shared"}],
        "security": {"allowRoot": True},
    }
    return parse_profile(json.dumps(content), origin="profile.yaml")


def cluster_for(
    rendering: Rendering, image: Path, shared: Path, *, lag: float = 0, python: Path | None = None
) -> Cluster:
    """The cluster that runs it.

    Args:
        lag: seconds before the pods' names are known.
        python: the image that pods get their Python from, if they get any.
    """
    return Cluster(
        rendering.manifests, images={IMAGE: image, PYTHON_IMAGE: python or image},
        storage=Storage(claims={"shared": shared}), names_lag=lag,
    )  # fmt: skip
