"""Signals for jobs that run: sent by the launcher in the pod of the batch host.

Kubernetes has no request for that, so a program is run in the pod: the launcher's own scancel.

Source: scancel(1), --signal, --batch and --full.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

from enroot_py import UnsupportedError, UsageError
from pyxis_py.kubernetes.access.client import ClusterClient
from pyxis_py.kubernetes.access.failures import ClusterError
from pyxis_py.kubernetes.access.resources import Object
from pyxis_py.kubernetes.cluster.jobs import Job
from pyxis_py.kubernetes.cluster.listing import pods_of
from pyxis_py.kubernetes.cluster.states import current_pods, pod_index, pod_phase
from pyxis_py.kubernetes.pod.template import CONTROL_PORT

_CODE = (
    "import os, sys; sys.path.insert(0, sys.argv[1]); "
    "os.environ['PYXIS_CONTROLLER'] = sys.argv[2]; "
    "from pyxis_py.kubernetes.launcher.entry import run_command; "
    "run_command('scancel', sys.argv[3:])"
)


def parse_signal_name(text: str) -> str:
    """Return a signal's name without SIG, or its number as it is.

    Raises:
        UsageError: if there is no such signal.
    """
    name = text.upper().removeprefix("SIG")
    numbers = {str(int(number)) for number in signal.Signals}
    if name not in numbers and f"SIG{name}" not in signal.Signals.__members__:
        raise UsageError(f"--signal: no such signal: {text!r}", hint="for example USR1")
    return name


def scancel_command(job: Job, name: str, *, batch: bool, full: bool) -> list[str]:
    """Return the program that sends a signal, as it is run in the pod of a batch host.

    Raises:
        UnsupportedError: if the pods do not run the launcher.
    """
    container = job.template["spec"]["containers"][0]
    words = [*container.get("command", ()), *container.get("args", ())]
    number = next((at for at, word in enumerate(words) if word.endswith("launcher.pyz")), 0)
    if not number:
        raise UnsupportedError(f"The pods of job {job.title} do not run the launcher")
    options = [f"--signal={name}", *(["--batch"] if batch else []), *(["--full"] if full else [])]
    # The variable by which the launcher's commands find the batch host, which listens everywhere.
    controller = f"127.0.0.1 {CONTROL_PORT}"
    return [*words[:number], "-IS", "-c", _CODE, words[number], controller, *options,
            f"--name={job.job_name}"]  # fmt: skip


def send_signal(
    client: ClusterClient, job: Job, name: str, *, batch: bool = False, full: bool = False,
    numbers: Sequence[int] | None = None,
) -> None:  # fmt: skip
    """Send a signal to the steps of a job, to its batch script (`batch`), or to both (`full`).

    Args:
        numbers: pods of an array of pods, each of which is a batch host; None for all that run.

    Raises:
        UnsupportedError: if it does not run.
        ClusterError: if the launcher cannot be reached or refuses.
    """
    command = scancel_command(job, name, batch=batch, full=full)
    hosts = _batch_hosts(client, job, numbers)
    if not hosts:
        raise UnsupportedError(f"Job {job.title} does not run: there is nothing to signal",
                               hint="pyxis kube cancel JOB ends it")  # fmt: skip
    for pod in hosts:
        status, output = client.execute(job.namespace, pod["metadata"]["name"], command)
        if status:
            raise ClusterError(f"Job {job.title} takes no signal: {output.strip() or status}")


def _batch_hosts(client: ClusterClient, job: Job, numbers: Sequence[int] | None) -> list[Object]:
    running = [pod for pod in current_pods(pods_of(client, job)) if pod_phase(pod) == "Running"]
    if not job.is_array:
        numbers = [0]
    return [pod for pod in running if numbers is None or pod_index(pod) in numbers]
