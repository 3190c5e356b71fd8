"""Build a small image of three layers from this machine's own shell, as an OCI image layout.

The base layer holds a shell, a few programs and the libraries they load; the second one adds an
application; the third one changes a file, removes one (a whiteout) and sets the environment.

    python3 build_image.py FOLDER

Only the standard library is used. Source: OCI image specification 1.1, image-layout.md, layer.md.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

PROGRAMS = ("sh", "cat", "echo", "env", "id", "ls", "mkdir", "sleep", "true", "uname")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le"}
MTIME = 1_700_000_000


class Layer:
    """One layer: a tar archive in the making."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w", format=tarfile.PAX_FORMAT)
        self._names: set[str] = set()

    def folder(self, path: str, mode: int = 0o755) -> None:
        self._add(tarfile.DIRTYPE, path, mode=mode)

    def file(self, path: str, content: bytes, mode: int = 0o644) -> None:
        for parent in reversed(Path(path).parents[:-1]):
            if str(parent) not in self._names:
                self.folder(str(parent))
        self._add(tarfile.REGTYPE, path, mode=mode, content=content)

    def _add(self, kind: bytes, path: str, *, mode: int, content: bytes = b"") -> None:
        entry = tarfile.TarInfo(path)
        entry.type, entry.mode, entry.mtime, entry.size = kind, mode, MTIME, len(content)
        self._tar.addfile(entry, io.BytesIO(content))
        self._names.add(path)

    def finish(self) -> bytes:
        self._tar.close()
        return self._buffer.getvalue()


def base_layer() -> bytes:
    """The shell, some programs, and the libraries that the dynamic loader would give them."""
    layer = Layer()
    for name in ("dev", "etc", "proc", "root", "run", "sys", "tmp", "var/run", "var/lock"):
        layer.folder(name)
    libraries: set[str] = set()
    for name in PROGRAMS:
        program = shutil.which(name)
        if program is None:
            continue
        layer.file(f"bin/{name}", Path(program).read_bytes(), mode=0o755)
        libraries |= loaded_libraries(program)
    for library in sorted(libraries):
        layer.file(library.lstrip("/"), Path(library).read_bytes(), mode=0o755)
    layer.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
    layer.file("etc/group", b"root:x:0:\n")
    layer.file("etc/motd", b"to be removed by the third layer\n")
    return layer.finish()


def loaded_libraries(program: str) -> set[str]:
    """The absolute paths that ldd(1) prints for a program."""
    done = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    return {word for word in done.stdout.split() if word.startswith("/") and Path(word).is_file()}


def application_layer() -> bytes:
    layer = Layer()
    script = b'#!/bin/sh\necho "training with $WORKERS workers as $(id -un) in $(pwd)"\n'
    layer.file("opt/app/train", script, mode=0o755)
    layer.file("opt/app/VERSION", b"1\n")
    return layer.finish()


def patch_layer() -> bytes:
    layer = Layer()
    layer.file("opt/app/VERSION", b"2\n")
    layer.file("etc/.wh.motd", b"")
    return layer.finish()


def write_layout(folder: Path, layers: list[bytes]) -> str:
    """Write the layout and return the manifest's digest."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)

    def blob(data: bytes, media_type: str) -> dict[str, object]:
        name = hashlib.sha256(data).hexdigest()
        (blobs / name).write_bytes(data)
        return {"mediaType": media_type, "digest": f"sha256:{name}", "size": len(data)}

    oci = "application/vnd.oci.image"
    config = {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {
            "Env": ["PATH=/bin:/usr/bin", "WORKERS=4"],
            "WorkingDir": "/opt/app",
            "Cmd": ["/opt/app/train"],
        },
        "rootfs": {
            "type": "layers",
            "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest() for layer in layers],
        },
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{oci}.manifest.v1+json",
        "config": blob(json.dumps(config).encode(), f"{oci}.config.v1+json"),
        "layers": [
            blob(gzip.compress(layer, mtime=0), f"{oci}.layer.v1.tar+gzip") for layer in layers
        ],
    }
    entry = blob(json.dumps(manifest).encode(), f"{oci}.manifest.v1+json")
    entry["annotations"] = {"org.opencontainers.image.ref.name": "latest"}
    index = {"schemaVersion": 2, "mediaType": f"{oci}.index.v1+json", "manifests": [entry]}
    (folder / "index.json").write_text(json.dumps(index))
    (folder / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
    return str(entry["digest"])


def main() -> None:
    folder = Path(sys.argv[1])
    digest = write_layout(folder, [base_layer(), application_layer(), patch_layer()])
    print(digest)


if __name__ == "__main__":
    main()
