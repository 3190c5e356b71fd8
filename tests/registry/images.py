"""Images made by hand: tar entries in, layers, manifests and indexes out.

For the tests of every package. `ImageStore` keeps the bytes in memory; `fake_registry` serves
them, `push` puts them into a real registry, and `write_layout` into an OCI layout.

    store = ImageStore()
    store.image("t/one", "1", [[directory("etc"), file("etc/a", "text")]], config={"Cmd": ["sh"]})
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zstandard

MTIME = 1_600_000_000
OCI, DOCKER = "oci", "docker"

_MEDIA_TYPES = {
    OCI: {
        "index": "application/vnd.oci.image.index.v1+json",
        "manifest": "application/vnd.oci.image.manifest.v1+json",
        "config": "application/vnd.oci.image.config.v1+json",
        "none": "application/vnd.oci.image.layer.v1.tar",
        "gzip": "application/vnd.oci.image.layer.v1.tar+gzip",
        "zstd": "application/vnd.oci.image.layer.v1.tar+zstd",
    },
    DOCKER: {
        "index": "application/vnd.docker.distribution.manifest.list.v2+json",
        "manifest": "application/vnd.docker.distribution.manifest.v2+json",
        "config": "application/vnd.docker.container.image.v1+json",
        "none": "application/vnd.docker.image.rootfs.diff.tar",
        "gzip": "application/vnd.docker.image.rootfs.diff.tar.gzip",
        "zstd": "application/vnd.docker.image.rootfs.diff.tar.zstd",
    },
}


@dataclass(frozen=True)
class Entry:
    """One tar member. Names and targets are text; bytes that are not UTF-8 as surrogates."""

    path: str
    kind: bytes
    mode: int
    data: bytes = b""
    target: str = ""
    device: tuple[int, int] = (0, 0)
    uid: int = 0
    gid: int = 0
    mtime: float = MTIME
    pax: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Raw:
    """Bytes that go into the archive as they are: headers no library would write."""

    data: bytes


def directory(path: str, mode: int = 0o755, **more: Any) -> Entry:
    """A directory."""
    return Entry(path, tarfile.DIRTYPE, mode, **more)


def file(path: str, data: bytes | str = b"", mode: int = 0o644, **more: Any) -> Entry:
    """A regular file."""
    content = data.encode() if isinstance(data, str) else data
    return Entry(path, tarfile.REGTYPE, mode, content, **more)


def symlink(path: str, target: str, **more: Any) -> Entry:
    """A symbolic link."""
    return Entry(path, tarfile.SYMTYPE, 0o777, target=target, **more)


def hardlink(path: str, target: str, **more: Any) -> Entry:
    """Another name for a file of this or a lower layer."""
    return Entry(path, tarfile.LNKTYPE, 0o644, target=target, **more)


def fifo(path: str, mode: int = 0o644, **more: Any) -> Entry:
    """A named pipe."""
    return Entry(path, tarfile.FIFOTYPE, mode, **more)


def character_device(path: str, major: int, minor: int, mode: int = 0o666, **more: Any) -> Entry:
    """A character device."""
    return Entry(path, tarfile.CHRTYPE, mode, device=(major, minor), **more)


def block_device(path: str, major: int, minor: int, mode: int = 0o660, **more: Any) -> Entry:
    """A block device."""
    return Entry(path, tarfile.BLKTYPE, mode, device=(major, minor), **more)


def whiteout(path: str) -> Entry:
    """Hide `path` of the lower layers."""
    folder, slash, name = path.rpartition("/")
    return file(f"{folder}{slash}.wh.{name}")


def opaque(path: str) -> Entry:
    """Hide everything that lower layers have in the directory `path`."""
    return file(f"{path}/.wh..wh..opq")


def xattrs(**values: str) -> dict[str, str]:
    """Extended attributes as pax records: `pax=xattrs(user_note="x")` sets `user.note`."""
    return {f"SCHILY.xattr.{key.replace('_', '.', 1)}": value for key, value in values.items()}


def tar_bytes(entries: Sequence[Entry | Raw], *, format: int = tarfile.PAX_FORMAT) -> bytes:
    """Return an archive, with its closing zero blocks."""
    buffer = io.BytesIO()
    with tarfile.open(
        fileobj=buffer, mode="w", format=format, encoding="utf-8", errors="surrogateescape"
    ) as archive:
        for entry in entries:
            if isinstance(entry, Raw):
                buffer.write(entry.data)
                archive.offset += len(entry.data)
                continue
            archive.addfile(_member(entry), io.BytesIO(entry.data))
    return buffer.getvalue()


def _member(entry: Entry) -> tarfile.TarInfo:
    member = tarfile.TarInfo(entry.path)
    member.type, member.mode, member.linkname = entry.kind, entry.mode, entry.target
    member.uid, member.gid, member.mtime = entry.uid, entry.gid, entry.mtime
    member.devmajor, member.devminor = entry.device
    member.size = len(entry.data)
    member.pax_headers = dict(entry.pax)
    return member


@dataclass(frozen=True)
class Layer:
    """A layer's archive and how it is stored.

    Attributes:
        content: entries, or a finished archive.
        compression: "gzip", "zstd" or "none".
        media_type: what the manifest calls it; "" for the truth.
    """

    content: Sequence[Entry | Raw] | bytes
    compression: str = "gzip"
    media_type: str = ""

    def archive(self) -> bytes:
        """The uncompressed archive."""
        return self.content if isinstance(self.content, bytes) else tar_bytes(self.content)

    def stored(self) -> bytes:
        """The archive as a registry keeps it."""
        return compress(self.archive(), self.compression)


def compress(data: bytes, compression: str) -> bytes:
    """Compress with "gzip" or "zstd", or leave as it is with "none". Deterministic."""
    if compression == "gzip":
        return gzip.compress(data, 6, mtime=0)
    if compression == "zstd":
        return zstandard.ZstdCompressor(level=3).compress(data)
    assert compression == "none"
    return data


def decompress(data: bytes) -> bytes:
    """Undo `compress`, whatever it did."""
    if data.startswith(b"\x1f\x8b"):
        return gzip.decompress(data)
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return data


@dataclass(frozen=True)
class BuiltImage:
    """What `ImageStore.image` made: descriptors as they stand in the manifest."""

    manifest: dict[str, Any]
    config: dict[str, Any]
    layers: tuple[dict[str, Any], ...]

    @property
    def digest(self) -> str:
        """The manifest's digest."""
        return str(self.manifest["digest"])


class ImageStore:
    """Blobs by digest, and manifests by repository and tag or digest.

    Attributes:
        blobs: digest ("sha256:…") to bytes, manifests included.
        tags: (repository, tag or digest) to (digest, media type).
    """

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.tags: dict[tuple[str, str], tuple[str, str]] = {}

    def blob(self, data: bytes, media_type: str = "application/octet-stream") -> dict[str, Any]:
        """Keep a blob and return its descriptor."""
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        self.blobs[digest] = data
        return {"mediaType": media_type, "digest": digest, "size": len(data)}

    def document(self, repository: str, tag: str, document: Any, media_type: str) -> dict[str, Any]:
        """Keep a manifest or index (an object, or bytes as they are) and tag it if `tag` is set."""
        data = document if isinstance(document, bytes) else json.dumps(document).encode()
        descriptor = self.blob(data, media_type)
        for name in filter(None, (tag, descriptor["digest"])):
            self.tags[repository, name] = (descriptor["digest"], media_type)
        return descriptor

    def image(
        self,
        repository: str,
        tag: str,
        layers: Sequence[Layer | Sequence[Entry | Raw]],
        *,
        config: Mapping[str, Any] | None = None,
        style: str = OCI,
        architecture: str = "amd64",
        **config_members: Any,
    ) -> BuiltImage:
        """Build an image, base layer first, and tag it unless `tag` is empty.

        Args:
            repository, tag: where it is found.
            layers: base layer first; plain lists of entries become gzip layers.
            config: the inner `config` object (Env, Cmd, …).
            style: OCI or DOCKER, for every media type.
            architecture: in Go's spelling.
            config_members: further members of the image config (`os=…`, `history=…`).
        """
        types = _MEDIA_TYPES[style]
        built = [layer if isinstance(layer, Layer) else Layer(layer) for layer in layers]
        descriptors = [
            self.blob(layer.stored(), layer.media_type or types[layer.compression])
            for layer in built
        ]
        diff_ids = ["sha256:" + hashlib.sha256(layer.archive()).hexdigest() for layer in built]
        image_config = {
            "architecture": architecture,
            "os": "linux",
            "created": "2020-01-01T00:00:00Z",
            "config": dict(config or {}),
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
            **config_members,
        }
        config_descriptor = self.blob(json.dumps(image_config).encode(), types["config"])
        manifest = {
            "schemaVersion": 2,
            "mediaType": types["manifest"],
            "config": config_descriptor,
            "layers": descriptors,
        }
        descriptor = self.document(repository, tag, manifest, types["manifest"])
        return BuiltImage(descriptor, config_descriptor, tuple(descriptors))

    def index(
        self,
        repository: str,
        tag: str,
        entries: Sequence[tuple[BuiltImage | Mapping[str, Any], str]],
        *,
        style: str = OCI,
    ) -> dict[str, Any]:
        """Tag an index of (image, platform) pairs, platforms like "linux/arm64/v8" or ""."""
        manifests = []
        for image, platform in entries:
            entry = dict(image.manifest if isinstance(image, BuiltImage) else image)
            if platform:
                names = ("os", "architecture", "variant")
                entry["platform"] = dict(zip(names, platform.split("/"), strict=False))
            manifests.append(entry)
        media_type = _MEDIA_TYPES[style]["index"]
        document = {"schemaVersion": 2, "mediaType": media_type, "manifests": manifests}
        return self.document(repository, tag, document, media_type)

    def attestation(self, repository: str) -> tuple[Mapping[str, Any], str]:
        """An index entry as BuildKit adds one for each image: an image to no eye but a parser's."""
        built = self.image(repository, "", [[file("att")]], architecture="unknown")
        mark = {"vnd.docker.reference.type": "attestation-manifest"}
        return {**built.manifest, "annotations": mark}, "unknown/unknown"

    def write_layout(self, folder: Path, repository: str, tag: str) -> None:
        """Write one tagged image as an OCI layout, the tag as its reference name."""
        blobs = folder / "blobs" / "sha256"
        blobs.mkdir(parents=True)
        digest, media_type = self.tags[repository, tag]
        for name in self.reachable(digest):
            (blobs / name.removeprefix("sha256:")).write_bytes(self.blobs[name])
        entry = {
            "mediaType": media_type,
            "digest": digest,
            "size": len(self.blobs[digest]),
            "annotations": {"org.opencontainers.image.ref.name": tag},
        }
        (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))

    def docker_archive(self, repository: str, tag: str) -> bytes:
        """Return one tagged image as `docker save` writes it: named `repository:tag`."""
        manifest = json.loads(self.blobs[self.tags[repository, tag][0]])
        config = manifest["config"]["digest"].removeprefix("sha256:")
        entries = [file(f"{config}.json", self.blobs[manifest["config"]["digest"]])]
        names = []
        for layer in manifest["layers"]:
            name = layer["digest"].removeprefix("sha256:") + "/layer.tar"
            if name not in names:
                entries.append(file(name, decompress(self.blobs[layer["digest"]])))
            names.append(name)
        tagged = [f"{repository}:{tag}"]
        listing = [{"Config": f"{config}.json", "RepoTags": tagged, "Layers": names}]
        entries.append(file("manifest.json", json.dumps(listing)))
        return tar_bytes(entries)

    def push(self, host: str, repository: str, tag: str) -> None:
        """Push one tagged image, blobs first, to the registry at `host` over plain HTTP."""
        connection = http.client.HTTPConnection(host, timeout=60)
        try:
            self._push(connection, repository, self.tags[repository, tag][0], tag)
        finally:
            connection.close()

    def _push(
        self, connection: http.client.HTTPConnection, repository: str, digest: str, tag: str
    ) -> None:
        document = json.loads(self.blobs[digest])
        for entry in document.get("manifests", []):
            self._push(connection, repository, entry["digest"], entry["digest"])
        for entry in [document.get("config"), *document.get("layers", [])]:
            if entry:
                self._push_blob(connection, repository, entry["digest"])
        _request(
            connection,
            "PUT",
            f"/v2/{repository}/manifests/{tag}",
            self.blobs[digest],
            {"Content-Type": document.get("mediaType", "")},
        )

    def _push_blob(
        self, connection: http.client.HTTPConnection, repository: str, digest: str
    ) -> None:
        where = _request(connection, "POST", f"/v2/{repository}/blobs/uploads/", b"", {})
        path = where[where.index("/v2/") :]
        mark = "&" if "?" in path else "?"
        headers = {"Content-Type": "application/octet-stream"}
        _request(connection, "PUT", f"{path}{mark}digest={digest}", self.blobs[digest], headers)

    def reachable(self, digest: str) -> list[str]:
        """Digests of a manifest or index and of everything that it needs."""
        found = [digest]
        document = json.loads(self.blobs[digest])
        for entry in document.get("manifests", []):
            found += self.reachable(entry["digest"])
        for entry in [document.get("config"), *document.get("layers", [])]:
            if entry:
                found.append(entry["digest"])
        return found


def _request(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes,
    headers: Mapping[str, str],
) -> str:
    """Send a request that must succeed and return its Location header."""
    connection.request(method, path, body, {**headers, "Content-Length": str(len(body))})
    response = connection.getresponse()
    text = response.read()
    assert response.status in (200, 201, 202), (method, path, response.status, text)
    return response.getheader("Location", "")


# fmt: off
_FOLDERS = (
    "bin", "dev", "etc", "home", "mnt", "opt", "proc", "root", "run", "sys", "tmp", "usr",
    "usr/bin", "var",
)
_APPLETS = (
    "sh", "ls", "cat", "echo", "id", "env", "stat", "mkdir", "touch", "rm", "test", "sleep", "true",
    "false", "grep", "readlink", "wc", "sort", "find", "mount", "df", "ps", "kill", "sed",
    "hostname", "uname", "dd", "chmod", "pwd", "head", "tail", "tty", "sync", "rmdir", "mv", "cp",
    "ln", "mkfifo", "tr", "cut", "date", "printf", "expr", "od", "sha256sum",
)
# fmt: on


def busybox_layer(binary: str = "/bin/busybox") -> Layer:
    """A base layer with a static busybox as /bin/sh and the usual folders and accounts."""
    entries = [directory(path) for path in _FOLDERS]
    entries.append(file("bin/busybox", Path(binary).read_bytes(), 0o755))
    entries += [symlink(f"bin/{name}", "busybox") for name in _APPLETS]
    entries += [
        file("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
        file("etc/group", "root:x:0:\n"),
        file("etc/os-release", "NAME=handmade\nID=handmade\n"),
    ]
    return Layer(entries)
