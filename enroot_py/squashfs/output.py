"""Write at a position, all of it."""

from __future__ import annotations

import os


def write_all(fd: int, buffers: list[bytes], position: int) -> None:
    """Write all of `buffers` at `position`, however often the kernel writes less."""
    for first in range(0, len(buffers), 512):  # IOV_MAX is 1024
        batch = buffers[first : first + 512]
        size = sum(map(len, batch))
        written = os.pwritev(fd, batch, position)
        if written < size:
            rest = b"".join(batch)
            while written < size:
                written += os.pwrite(fd, memoryview(rest)[written:], position + written)
        position += size
