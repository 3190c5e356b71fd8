"""Make the images that the benchmarks pull: OCI image layouts of a given size and file count.

File contents are slices, at random offsets, of a pool of this machine's own programs, libraries and
sources: they compress as real images do (about 2.6 to 1), and no two files are alike. Everything is
seeded: the same machine makes the same image again.

    python image_data.py FOLDER LAYERS FILES BYTES
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import random
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le"}
POOL_SIZE = 96 << 20


def content_pool() -> bytes:
    """About 100 MB of this machine's files, in a fixed order."""
    pool = bytearray()
    for folder in ("/usr/lib", "/usr/bin", "/usr/share/perl", "/usr/share/doc"):
        for path in sorted(Path(folder).rglob("*")):
            if len(pool) >= POOL_SIZE:
                return bytes(pool[:POOL_SIZE])
            try:
                if path.is_file() and not path.is_symlink():
                    pool += path.read_bytes()[: 4 << 20]
            except OSError:
                continue
    return bytes(pool)


def file_sizes(rng: random.Random, count: int, total: int) -> list[int]:
    """Sizes of `count` files that sum up to about `total` bytes: many small ones, a few huge."""
    raw = [rng.lognormvariate(8.0, 2.0) for _ in range(count)]
    scale = total / sum(raw)
    return [max(1, min(int(size * scale), 256 << 20)) for size in raw]


def layer_files(
    rng: random.Random, pool: bytes, prefix: str, count: int, total: int
) -> Iterator[tuple[str, bytes]]:
    """Yield `(path, content)` of one layer."""
    for number, size in enumerate(file_sizes(rng, count, total)):
        folder = f"{prefix}/d{number % 97:02d}/s{number % 13:02d}"
        parts, missing = [], size
        while missing:
            piece = min(missing, rng.randrange(1 << 12, 1 << 18))
            start = rng.randrange(len(pool) - piece)
            parts.append(pool[start : start + piece])
            missing -= piece
        yield f"{folder}/f{number:06d}", b"".join(parts)


def write_layer(blobs: Path, files: Iterator[tuple[str, bytes]]) -> dict[str, object]:
    """Write one gzip layer; returns its descriptor, with the diff id as an extra key."""
    partial = blobs / "partial"
    seen: set[str] = set()
    with open(partial, "wb") as raw:
        zipped = gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6, mtime=0, filename="")
        hashing = _Hashing(zipped)
        with tarfile.open(fileobj=hashing, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            for path, content in files:
                for parent in reversed(Path(path).parents[:-1]):
                    if str(parent) not in seen:
                        seen.add(str(parent))
                        entry = tarfile.TarInfo(str(parent))
                        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                        tar.addfile(entry)
                entry = tarfile.TarInfo(path)
                entry.size, entry.mode, entry.mtime = len(content), 0o644, 1_700_000_000
                tar.addfile(entry, io.BytesIO(content))
        zipped.close()
    descriptor = _place(partial, "application/vnd.oci.image.layer.v1.tar+gzip")
    descriptor["diff_id"] = "sha256:" + hashing.digest.hexdigest()
    return descriptor


class _Hashing(io.RawIOBase):
    """Passes what is written on and hashes it."""

    def __init__(self, target: gzip.GzipFile) -> None:
        self.target, self.digest = target, hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.digest.update(data)
        return self.target.write(data)


def _place(partial: Path, media_type: str) -> dict[str, object]:
    digest = hashlib.sha256()
    with open(partial, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    size = partial.stat().st_size
    partial.rename(partial.parent / digest.hexdigest())
    return {"mediaType": media_type, "digest": "sha256:" + digest.hexdigest(), "size": size}


def make_layout(folder: Path, *, layers: int, files: int, size: int) -> Path:
    """Make the layout `folder` unless it is there; returns it.

    In a process of its own: the pool of contents would count as memory of the commands that are
    measured afterwards, because a child's peak includes its parent's size at the fork.

    Args:
        layers: number of layers; the first one has half of everything, as base images do.
        files: number of regular files in all layers together.
        size: their bytes, uncompressed.
    """
    if not (folder / "index.json").exists():
        words = [str(folder), str(layers), str(files), str(size)]
        subprocess.run([sys.executable, __file__, *words], check=True)
    return folder


def _make_layout(folder: Path, *, layers: int, files: int, size: int) -> None:
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)
    rng, pool = random.Random(1), content_pool()
    shares = [0.5] + [0.5 / (layers - 1)] * (layers - 1) if layers > 1 else [1.0]
    descriptors = []
    for number, share in enumerate(shares):
        entries = layer_files(rng, pool, f"opt/l{number}", int(files * share), int(size * share))
        descriptors.append(write_layer(blobs, entries))
    diff_ids = [descriptor.pop("diff_id") for descriptor in descriptors]
    _write_manifest(folder, blobs, descriptors, diff_ids)


def _write_manifest(
    folder: Path, blobs: Path, layers: list[dict[str, object]], diff_ids: list[object]
) -> None:
    def place(document: dict[str, object], media_type: str) -> dict[str, object]:
        partial = blobs / "partial"
        partial.write_text(json.dumps(document))
        return _place(partial, media_type)

    config = {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Cmd": ["/bin/true"]},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
        # Optional, but charliecloud takes no image without it.
        "history": [{"created_by": "bench/image_data.py"} for _ in layers],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": place(config, "application/vnd.oci.image.config.v1+json"),
        "layers": layers,
    }
    entry = place(manifest, "application/vnd.oci.image.manifest.v1+json")
    entry["annotations"] = {"org.opencontainers.image.ref.name": "latest"}
    index = {"schemaVersion": 2, "manifests": [entry]}
    (folder / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
    (folder / "index.json").write_text(json.dumps(index))


def layer_paths(folder: Path) -> list[Path]:
    """Paths of the layout's layer blobs, topmost first."""
    blobs = folder / "blobs" / "sha256"
    index = json.loads((folder / "index.json").read_text())
    digest = index["manifests"][0]["digest"].removeprefix("sha256:")
    manifest = json.loads((blobs / digest).read_text())
    digests = [layer["digest"].removeprefix("sha256:") for layer in manifest["layers"]]
    return [blobs / digest for digest in reversed(digests)]


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[2:5]]
    _make_layout(Path(sys.argv[1]), layers=numbers[0], files=numbers[1], size=numbers[2])
