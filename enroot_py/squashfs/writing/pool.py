"""Compress blocks in threads; the caller takes them in the order in which it gave them."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread, stack_size

from enroot_py.errors import SquashfsError
from enroot_py.squashfs.compressors import make_compressor
from enroot_py.squashfs.file_content import FileBlocks
from enroot_py.squashfs.format import DATA_UNCOMPRESSED
from enroot_py.squashfs.options import SquashfsOptions

BLOCK, HOLE, END, FRAGMENT = range(4)
"""Kinds of jobs: a data block, zeros that are not stored, the end of a file, a fragment."""

_STACK = 1 << 20
"""Bytes of a thread's stack: musl gives 128 KiB, which some compressors overrun."""


class Job:
    """One block on its way: compressed by a thread, then taken out of the queue in order."""

    __slots__ = ("data", "done", "kind", "packed", "record", "size")

    def __init__(self, kind: int, data: bytes, record: FileBlocks | None) -> None:
        self.kind = kind
        self.data = data
        self.size = len(data)
        self.record = record
        self.packed = b""
        self.done: Lock | None = None


def queue_depth(options: SquashfsOptions, processors: int) -> int:
    """Blocks in flight: enough to keep every thread busy while the caller parses headers."""
    depth = 8 * processors + 8
    if options.memory:
        # Each is held raw and compressed.
        depth = min(depth, options.memory // (2 * options.block_size))
    # A large block size must not cost more memory than the default one at twice the threads.
    return max(2, min(depth, (64 << 20) // options.block_size))


class CompressorPool:
    """Threads that compress jobs; with one processor the caller's own thread does it."""

    def __init__(self, options: SquashfsOptions, processors: int) -> None:
        self._options = options
        self._processors = processors
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads: list[Thread] = []
        # Made here, so that a missing library is reported before anything is read.
        self._compress = make_compressor(options)

    def submit(self, job: Job) -> None:
        wanted = self._options.compress_data
        if job.kind == FRAGMENT:
            wanted = self._options.compress_fragments
        if not wanted:
            return
        if self._processors <= 1:
            job.packed = self._compress(job.data)
            return
        if not self._threads:
            self._start()
        job.done = Lock()
        job.done.acquire()
        self._jobs.put(job)

    def result(self, job: Job) -> tuple[bytes, int]:
        """Wait for a job; return the bytes to store and their size as the format counts it."""
        if job.done is not None:
            job.done.acquire()
            if not job.packed:
                raise SquashfsError(f"The {self._options.compressor} compressor failed")
        data, packed = job.data, job.packed
        if packed and len(packed) < len(data):
            return packed, len(packed)
        return data, len(data) | DATA_UNCOMPRESSED

    def close(self) -> None:
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _start(self) -> None:
        before = stack_size(_STACK)
        try:
            for number in range(self._processors):
                arguments = (self._jobs, self._options)
                thread = Thread(target=_work, args=arguments, name=f"squashfs-{number}")
                thread.start()
                self._threads.append(thread)
        finally:
            stack_size(before)


def _work(jobs: SimpleQueue[Job | None], options: SquashfsOptions) -> None:
    # A compressor has a state that threads cannot share, and some may be used only where they
    # were made.
    compress = make_compressor(options)
    get: Callable[[], Job | None] = jobs.get
    while (job := get()) is not None:
        try:
            job.packed = compress(job.data)
        finally:
            # Whatever happened: the writer waits for this lock, and finds nothing in `packed`.
            assert job.done is not None
            job.done.release()
