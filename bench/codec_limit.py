"""The codec limit: decompress the layers and compress their bytes again, with all cores, no files.

    python codec_limit.py LAYOUT

What no importer that writes zstd-1 blocks can beat; imports are measured as a multiple of it.
Prints the seconds. Uses the codecs that the product uses: isal for gzip, zstandard.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import zstandard
from image_data import layer_paths
from isal import isal_zlib

BLOCK = 128 << 10
READ = 1 << 18
_local = threading.local()


def compress(block: bytes) -> int:
    compressor = getattr(_local, "compressor", None)
    if compressor is None:
        compressor = _local.compressor = zstandard.ZstdCompressor(level=1)
    return len(compressor.compress(block))


def run(layers: list[Path], threads: int) -> int:
    """Return the compressed size in bytes."""
    total = 0
    pending: deque[Future[int]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for layer in layers:
            decompressor = isal_zlib.decompressobj(31)
            buffer = b""
            with open(layer, "rb", buffering=0) as file:
                while chunk := file.read(READ):
                    buffer += decompressor.decompress(chunk)
                    at = 0
                    while len(buffer) - at >= BLOCK:
                        pending.append(pool.submit(compress, buffer[at : at + BLOCK]))
                        at += BLOCK
                    buffer = buffer[at:]
                    while len(pending) > 32:
                        total += pending.popleft().result()
            pending.append(pool.submit(compress, buffer))
        while pending:
            total += pending.popleft().result()
    return total


def main() -> None:
    layers = layer_paths(Path(sys.argv[1]))
    started = time.perf_counter()
    run(layers, len(os.sched_getaffinity(0)))
    print(time.perf_counter() - started)


if __name__ == "__main__":
    main()
