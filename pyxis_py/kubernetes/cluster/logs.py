"""What the pods of a job write: of the batch host, of one node, or of all with their numbers.

Output files that sbatch's --output names are the launcher's; what is read here is kept by the
kubelet as long as the pod is there.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Protocol

from enroot_py import EnrootError, NotFoundError
from pyxis_py.kubernetes.access.client import ByteStream, ClusterClient
from pyxis_py.kubernetes.access.resources import Object
from pyxis_py.kubernetes.cluster.jobs import Job, read_job_object
from pyxis_py.kubernetes.cluster.listing import pods_of, read_states
from pyxis_py.kubernetes.cluster.states import current_pods, pod_index

_LONGEST_LINE = 1 << 16


class Writer(Protocol):
    """A binary stream."""

    def write(self, data: bytes, /) -> object:
        """Write everything."""

    def flush(self) -> object:
        """Pass on what was written."""


def select_pods(client: ClusterClient, job: Job, numbers: Sequence[int] | None) -> list[Object]:
    """Return the latest pods of a job with these numbers, or all.

    Raises:
        NotFoundError: if one of them has no pod, with the job's state.
    """
    pods = current_pods(pods_of(client, job))
    if numbers is None:
        chosen = pods
    else:
        by_number = {pod_index(pod): pod for pod in pods}
        chosen = [by_number[number] for number in numbers if number in by_number]
    if not chosen or (numbers is not None and len(chosen) < len(numbers)):
        (record,) = read_states(client, [job])
        reason = f" ({record.state.reason})" if record.state.reason else ""
        number = "" if numbers is None else f" {numbers[0]}"
        raise NotFoundError(
            f"Node{number} of job {job.title} has no pod: the job is {record.state.state}{reason}",
            hint="" if record.state.finished else "--follow waits for it",
        )
    return chosen


def wait_for_pods(
    client: ClusterClient, job: Job, numbers: Sequence[int] | None, *,
    sleep: Callable[[float], None],
) -> list[Object]:  # fmt: skip
    """Return pods as `select_pods` does, as soon as they have begun to write.

    Raises:
        NotFoundError: if the job ends before.
    """
    while True:
        try:
            pods = select_pods(client, job, numbers)
            if all((pod.get("status") or {}).get("phase") != "Pending" for pod in pods):
                return pods
        except NotFoundError:
            pass
        job = read_job_object(client.get(job.resource, job.namespace, job.name)) or job
        (record,) = read_states(client, [job])
        if record.state.finished or record.state.state == "CG":
            return select_pods(client, job, numbers)
        sleep(1.0)


def copy_logs(
    client: ClusterClient, pods: Sequence[Object], out: Writer, *, follow: bool = False,
    tail: int | None = None, labels: bool = False,
) -> None:  # fmt: skip
    """Write what pods wrote: one after the other, or, followed, line by line as they come.

    Args:
        labels: put the pod's number before each line, as `srun --label` does.

    Raises:
        EnrootError: the first failure, when all others have come to their end.
    """
    if not labels and len(pods) == 1:
        with contextlib.closing(iter(_log(client, pods[0], follow, tail))) as pieces:
            for piece in pieces:
                out.write(piece)
                out.flush()
        return
    width = len(str(max((pod_index(pod) for pod in pods), default=0)))
    streams = [_log(client, pod, follow, tail) for pod in pods]
    labelled = [
        _labelled(stream, f"{pod_index(pod):{width}}: " if labels else "")
        for stream, pod in zip(streams, pods, strict=True)
    ]
    one_by_one = (lines for stream in labelled for lines in stream)
    # Closed at once when writing fails: the traceback would keep the streams open.
    with contextlib.closing(_merged(streams, labelled) if follow else one_by_one) as pieces:
        for lines in pieces:
            out.write(lines)
            out.flush()


def _log(client: ClusterClient, pod: Object, follow: bool, tail: int | None) -> ByteStream:
    metadata = pod["metadata"]
    return client.log(metadata["namespace"], metadata["name"], follow=follow, tail=tail)


def _labelled(pieces: ByteStream, label: str) -> Generator[bytes, None, None]:
    """Whole lines with a label, however the pieces are cut; the longest ones are cut in two.

    A progress bar that never ends its line would otherwise be kept, and copied, for ever.
    """
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            lines, rest = [*lines, rest], b""
        if lines:
            yield b"".join(b"%b%b\n" % (label.encode("ascii"), line) for line in lines)
    if rest:
        yield b"%b%b\n" % (label.encode("ascii"), rest)


def _merged(
    streams: Sequence[ByteStream], labelled: Sequence[Iterator[bytes]]
) -> Generator[bytes, None, None]:
    """Pieces of several streams in the order in which they come."""
    ready: queue.SimpleQueue[bytes | EnrootError | None] = queue.SimpleQueue()

    def drain(pieces: Iterator[bytes]) -> None:
        try:
            for piece in pieces:
                ready.put(piece)
        except EnrootError as error:
            ready.put(error)
        finally:
            ready.put(None)

    threads = [threading.Thread(target=drain, args=(pieces,)) for pieces in labelled]
    for thread in threads:
        thread.start()
    open_streams, failed = len(threads), None
    try:
        while open_streams:
            piece = ready.get()
            if piece is None:
                open_streams -= 1
            elif isinstance(piece, EnrootError):
                failed = failed or piece
            else:
                yield piece
    finally:
        # Ctrl-C and closed pipes come this way: the threads must not keep the command alive.
        for stream in streams:
            stream.close()
        for thread in threads:
            thread.join()
    if failed is not None:
        raise failed
