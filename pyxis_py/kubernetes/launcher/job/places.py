"""Where the launcher finds its files, and where it listens; tests put them elsewhere.

Pure.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

FOLDER_VARIABLE = "PYXIS_LAUNCHER_FOLDER"
TOKEN_VARIABLE = "PYXIS_TOKEN_FOLDER"
LISTEN_VARIABLE = "PYXIS_LISTEN"
BATCH_VARIABLE = "PYXIS_BATCH_ADDRESS"


class Places(NamedTuple):
    """Folders and addresses.

    Attributes:
        listen_address: "" for all addresses of the pod.
        batch_address: the batch host's, "" to look its name up.
    """

    folder: str
    token_folder: str
    listen_address: str
    batch_address: str

    @property
    def script(self) -> str:
        """The batch script."""
        return os.path.join(self.folder, "job.sh")

    @property
    def job_file(self) -> str:
        """What the renderer tells the launcher."""
        return os.path.join(self.folder, "job.json")

    @property
    def token(self) -> str:
        """The file with the job's secret."""
        return os.path.join(self.token_folder, "token")

    def as_variables(self) -> dict[str, str]:
        """Variables by which commands in this pod find the same files."""
        return {FOLDER_VARIABLE: self.folder, TOKEN_VARIABLE: self.token_folder}


def find_places(environ: Mapping[str, str]) -> Places:
    """Return where things are, by variables or as the manifests mount them."""
    return Places(
        environ.get(FOLDER_VARIABLE, "/run/pyxis"),
        environ.get(TOKEN_VARIABLE, "/run/pyxis-token"),
        environ.get(LISTEN_VARIABLE, ""),
        environ.get(BATCH_VARIABLE, ""),
    )
