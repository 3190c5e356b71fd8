"""Make a program out of an image: one file that unpacks the image and starts it, anywhere.

The machine it runs on needs Python and user namespaces, not this package: the modules of the start
story travel in the archive, below `.enroot/`, beside the hooks, mounts and environment files of the
machine that the bundle was made on.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO, cast

from isal import igzip

from enroot_py import log
from enroot_py.errors import UsageError
from enroot_py.layers.entry import Node
from enroot_py.operations.bundle.header import NO_CHECKSUM, SIZE, make_header
from enroot_py.settings import VERSION, Settings, load_settings, package_share_path
from enroot_py.squashfs.reader import SquashfsImage
from enroot_py.store.workspace import new_file

PACKAGE = Path(__file__).resolve().parents[2]
OWN = ".enroot"
# The start story, and nothing of the import story.
_MODULES = (
    "*.py", "plan/**/*.py", "linux/**/*.py", "enter/**/*.py", "hooks/**/*.py", "gpu/**/*.py",
    "operations/__init__.py", "operations/batch.py", "operations/start.py",
    "operations/start_files.py", "operations/set_up.py",
    "operations/plumbing/**/*.py", "store/__init__.py", "store/containers.py", "store/locks.py",
    "squashfs/__init__.py", "squashfs/superblock.py", "cli/__init__.py", "cli/output.py",
    "cli/plumbing*.py", "cli/system_errors.py",
)  # fmt: skip
_PLUMBING = ("enroot-mount", "enroot-nsenter", "enroot-switchroot")
_CONFIGURATION = ("hooks.d", "mounts.d", "environ.d")


def bundle(
    image: str,
    output: str = "",
    *,
    target: str = "",
    description: str = "",
    include_user_configuration: bool = False,
    checksum: bool = False,
    force: bool = False,
    settings: Settings | None = None,
) -> str:
    """Write the bundle; returns its absolute path. It appears whole or not at all.

    Args:
        image: path of a squashfs image.
        output: the file to write; the image's name with `.run` if empty.
        target: folder that the program's --keep unpacks to; the output's name if empty.
        description: what the program's --help and --info say.
        include_user_configuration: put in the user's hooks, mounts, environment files and ENROOT_*
            settings, as ENROOT_BUNDLE_ALL does.
        checksum: let the program check all of itself first, as ENROOT_BUNDLE_CHECKSUM does.
        force: replace an existing file.
        settings: read from the system if None.

    Raises:
        NotFoundError, SquashfsError: if there is no such image, or it is damaged.
        ExistsError, SpaceError, StoreError: as `store.workspace.new_file`.

    Source: enroot 4.1.2 src/runtime.sh, runtime::bundle().
    """
    settings = settings or load_settings()
    if not image:
        raise UsageError("Nothing to make a bundle of", hint="name an image file")
    image = os.path.realpath(image)
    output = output or os.path.basename(image).removesuffix(".sqsh") + ".run"
    name = os.path.basename(output).removesuffix(".run")
    whole = checksum or settings.bundle_checksum
    with (
        SquashfsImage(image, max_entries=settings.max_image_entries) as reader,
        new_file(
            output, force=force or settings.force_override, mode=0o777,
            stage="writing the bundle", setting="--output",
        ) as new,
    ):  # fmt: skip
        log.info(f"Creating {new.path}...")
        own = list(_own_files(settings, all_of_it=include_user_configuration))
        size = sum(node.size for _, node in reader.walk()) + sum(len(data) for _, _, data in own)
        manifest = {
            "version": VERSION, "description": description, "target": target or name,
            "compression": "gzip", "size": size, "architecture": platform.machine(),
            "checksum": "sha256, of the whole file" if whole else "none",
        }  # fmt: skip
        _write(new.file, reader, own, manifest, whole=whole)
        return new.path


def _write(
    file: BinaryIO,
    reader: SquashfsImage,
    own: list[tuple[str, int, bytes]],
    manifest: dict[str, object],
    *,
    whole: bool,
) -> None:
    runner = Path(__file__).with_name("runner.py").read_bytes()
    text = json.dumps(manifest, sort_keys=True).encode()
    header = make_header(runner_size=len(runner), manifest_size=len(text))
    file.write(header + runner + text)
    zipped = igzip.GzipFile(  # type: ignore[no-untyped-call]
        fileobj=file, mode="wb", compresslevel=2, mtime=0, filename=""
    )
    _write_archive(cast(IO[bytes], zipped), reader, own)
    zipped.close()
    if whole:
        file.seek(0)
        digest = hashlib.sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
        header = make_header(
            runner_size=len(runner), manifest_size=len(text), checksum=digest.hexdigest()
        )
        file.seek(0)
        file.write(header)
    assert len(header) == SIZE
    assert NO_CHECKSUM.encode() not in header or not whole


def _write_archive(
    target: IO[bytes], reader: SquashfsImage, own: list[tuple[str, int, bytes]]
) -> None:
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    fixed = int(epoch) if epoch.isdigit() else None
    names: dict[int, str] = {}
    with tarfile.open(fileobj=target, mode="w|", format=tarfile.PAX_FORMAT, bufsize=1 << 20) as tar:
        for raw, node in reader.walk():
            path = os.fsdecode(raw)
            if path == OWN or path.startswith(OWN + "/"):
                continue  # an image of an unpacked bundle: it gets what this version brings
            member = _member(path, node, names)
            if member is None:
                continue
            member.mtime = node.mtime if fixed is None else fixed
            content = cast(IO[bytes], _Content(reader, node)) if member.isreg() else None
            tar.addfile(member, content)
        made: set[str] = set()
        for path, mode, data in own:
            for parent in reversed(Path(path).parents[:-1]):
                if str(parent) not in made:
                    made.add(str(parent))
                    folder = tarfile.TarInfo(str(parent))
                    folder.type, folder.mode = tarfile.DIRTYPE, 0o755
                    tar.addfile(folder)
            member = tarfile.TarInfo(path)
            member.mode, member.size, member.mtime = mode, len(data), fixed or 0
            tar.addfile(member, io.BytesIO(data))


def _member(path: str, node: Node, names: dict[int, str]) -> tarfile.TarInfo | None:
    """The archive's entry for a node; None for a device, which an ordinary user cannot make."""
    member = tarfile.TarInfo(path)
    member.mode = node.mode
    member.pax_headers = {
        "SCHILY.xattr." + os.fsdecode(key): os.fsdecode(value)
        for key, value in (node.xattrs or {}).items()
        if key.startswith(b"user.")
    }
    if node.kind == stat.S_IFDIR:
        member.type = tarfile.DIRTYPE
    elif node.kind == stat.S_IFLNK:
        member.type, member.linkname = tarfile.SYMTYPE, os.fsdecode(node.target)
    elif node.kind == stat.S_IFIFO:
        member.type = tarfile.FIFOTYPE
    elif node.kind != stat.S_IFREG:
        return None
    elif id(node) in names:
        member.type, member.linkname = tarfile.LNKTYPE, names[id(node)]
    else:
        names[id(node)] = path
        member.size = node.size
    return member


class _Content:
    """A regular file's bytes, as the file object that tarfile copies from."""

    def __init__(self, reader: SquashfsImage, node: Node) -> None:
        self._pieces = reader.read_content(node.content, node.size)
        self._left = b""

    def read(self, size: int) -> bytes:
        parts = []
        while size:
            if not self._left:
                piece = next(self._pieces, b"")
                self._left = bytes(piece) if isinstance(piece, int) else piece
                if not self._left:
                    break
            part, self._left = self._left[:size], self._left[size:]
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def _own_files(settings: Settings, *, all_of_it: bool) -> Iterator[tuple[str, int, bytes]]:
    """Yield `(path, mode, content)` of what goes below `.enroot`."""
    python = f"{OWN}/lib/python/enroot_py"
    for path in bundled_modules():
        yield f"{python}/{path.relative_to(PACKAGE)}", 0o644, path.read_bytes()
    yield from _tree(Path(package_share_path()), f"{OWN}/lib")
    for name in _PLUMBING:
        yield f"{OWN}/bin/{name}", 0o755, _plumbing_script(name)
    system = Path(settings.sysconf_path)
    for name in _CONFIGURATION:
        yield from _tree(system / name, f"{OWN}/etc/system/{name}")
    if all_of_it or settings.bundle_all:
        for name in _CONFIGURATION:
            yield from _tree(Path(settings.config_path) / name, f"{OWN}/etc/user/{name}")
        yield f"{OWN}/etc/system/enroot.conf", 0o644, _settings_file(settings)


def bundled_modules() -> list[Path]:
    """Return the modules of this package that bundles carry."""
    return [path for pattern in _MODULES for path in sorted(PACKAGE.glob(pattern))]


def _tree(folder: Path, name: str) -> Iterator[tuple[str, int, bytes]]:
    """Yield the regular files below a folder, links followed, without its Python caches."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            mode = stat.S_IMODE(path.stat().st_mode) & 0o755 | 0o444
            yield f"{name}/{path.relative_to(folder)}", mode, path.read_bytes()


def _plumbing_script(name: str) -> bytes:
    function = name.removeprefix("enroot-")
    return (
        '#!/bin/sh\nlib=$(dirname "$0")/../lib/python\n'
        'exec python3 -I -S -c "import sys; sys.path.insert(0, sys.argv.pop(1)); '
        f"sys.argv[0] = '{name}'; "
        f'from enroot_py.cli.plumbing import {function}; sys.exit({function}())" "$lib" "$@"\n'
    ).encode()


def _settings_file(settings: Settings) -> bytes:
    """The ENROOT_* settings in force but for the paths, which belong to the machine."""
    lines = []
    for key, value in sorted(settings.environment.items()):
        if key.startswith("ENROOT_") and not key.endswith("_PATH"):
            quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
            quoted = quoted.replace("`", "\\`")
            lines.append(f'{key} "{quoted}"\n')
    return "".join(lines).encode(errors="surrogateescape")
