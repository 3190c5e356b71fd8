"""Volumes as folders, and what of them is mounted where in a container.

ConfigMaps and Secrets are laid out as the kubelet does: a folder for each version, the link
`..data` to it, and a link for each key.

Source: Kubernetes API, Volume and VolumeMount; kubelet, AtomicWriter and subpath.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.kubernetes.emulator.environment import Place, field_value, resource_value
from tests.kubernetes.emulator.objects import EmulatorError, Manifest, Objects, Pod
from tests.kubernetes.emulator.quantities import parse_quantity

_VERSION = "..2026_01_01_00_00_00.1"
_DEFAULT_MODE = 0o644


@dataclass(frozen=True, slots=True)
class Storage:
    """What stands for the storage of a cluster: folders of this machine.

    Attributes:
        claims: folders of PersistentVolumeClaims.
        exports: folders of NFS exports, by `SERVER:PATH`; of CSI volumes and images, by
            `DRIVER` and reference.
        nodes: folders of paths of the nodes, by path; nothing else of a node can be mounted.
    """

    claims: Mapping[str, Path] = field(default_factory=dict)
    exports: Mapping[str, Path] = field(default_factory=dict)
    nodes: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Volume:
    """A prepared volume.

    Attributes:
        folder: where it is; a file for `hostPath` of a file.
        read_only: whether containers cannot write to it whatever they ask for.
        memory: bytes of a tmpfs that has to be mounted on the folder; 0 for no limit, None for
            a volume on disk.
    """

    folder: Path
    read_only: bool = False
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class BindMount:
    """A mount of a container."""

    source: Path
    target: str
    read_only: bool


def prepare_volumes(
    pod: Pod, place: Place, objects: Objects, storage: Storage, folder: Path
) -> dict[str, Volume]:
    """Make a pod's volumes in `folder`.

    Raises:
        EmulatorError: if the kubelet could not set one up.
    """
    volumes: dict[str, Volume] = {}
    for row in pod.spec.get("volumes", ()):
        name = row["name"]
        if name in volumes:
            raise EmulatorError(f"two volumes {name}")
        kinds = [kind for kind in row if kind != "name"]
        if len(kinds) != 1:
            raise EmulatorError(f"volume {name} has {len(kinds)} sources")
        target = folder / name
        source = row[kinds[0]]
        if kinds[0] in _STORED:
            volumes[name] = _stored(kinds[0], source, storage)
            continue
        target.mkdir(parents=True)
        if kinds[0] == "emptyDir":
            volumes[name] = _empty(source, target)
        elif kinds[0] == "ephemeral":
            target.chmod(0o777)
            volumes[name] = Volume(target)
        else:
            files = _projected(_sources(kinds[0], source), pod, place, objects)
            _write_files(target, files, int(source.get("defaultMode", _DEFAULT_MODE)))
            volumes[name] = Volume(target, read_only=True)
    return volumes


_STORED = ("persistentVolumeClaim", "nfs", "csi", "image", "hostPath")


def _stored(kind: str, source: Manifest, storage: Storage) -> Volume:
    if kind == "hostPath":
        return Volume(_node_path(source, storage))
    if kind == "persistentVolumeClaim":
        found, name = storage.claims.get(source["claimName"]), source["claimName"]
    else:
        name = {"nfs": "{server}:{path}", "csi": "{driver}", "image": "{reference}"}[kind]
        name = name.format(**source)
        found = storage.exports.get(name)
    if found is None:
        raise EmulatorError(f"nothing stands for {kind} {name}")
    return Volume(found, read_only=kind == "image" or bool(source.get("readOnly")))


def _node_path(source: Manifest, storage: Storage) -> Path:
    path = posixpath.normpath(source["path"])
    known = [top for top in storage.nodes if path == top or path.startswith(top.rstrip("/") + "/")]
    if not known:
        raise EmulatorError(f"nothing stands for the node's path {path}")
    top = max(known, key=len)
    found = storage.nodes[top] / posixpath.relpath(path, top)
    kind = source.get("type", "")
    if kind == "DirectoryOrCreate":
        found.mkdir(parents=True, exist_ok=True)
    checks = {"Directory": found.is_dir(), "File": found.is_file(), "": found.exists(),
              "DirectoryOrCreate": True}  # fmt: skip
    if not checks.get(kind, False):
        raise EmulatorError(f"the node's path {path} is not what hostPath says: {kind or 'there'}")
    return found


def _empty(source: Manifest, folder: Path) -> Volume:
    folder.chmod(0o777)
    size = int(parse_quantity(source["sizeLimit"])) if "sizeLimit" in source else 0
    if source.get("medium") == "Memory":
        return Volume(folder, memory=size)
    return Volume(folder)


def _sources(kind: str, source: Manifest) -> list[Manifest]:
    """The sources of a volume of files, all in the form of a projected one's."""
    if kind == "projected":
        return list(source["sources"])
    if kind == "configMap" or kind == "downwardAPI":
        return [{kind: source}]
    if kind == "secret":
        return [{kind: {**source, "name": source["secretName"]}}]
    raise EmulatorError(f"unknown kind of volume: {kind}")


@dataclass(frozen=True, slots=True)
class _File:
    data: bytes
    mode: int | None


def _projected(
    sources: list[Manifest], pod: Pod, place: Place, objects: Objects
) -> dict[str, _File]:
    files: dict[str, _File] = {}
    for source in sources:
        ((kind, row),) = source.items()
        if kind == "downwardAPI":
            found = {item["path"]: _downward(item, pod, place) for item in row["items"]}
        elif kind in ("configMap", "secret"):
            found = _keys(kind, row, objects)
        else:
            raise EmulatorError(f"unknown source of a projected volume: {kind}")
        for path, file in found.items():
            _check_path(path)
            files[path] = file
    return files


def _keys(kind: str, row: Manifest, objects: Objects) -> dict[str, _File]:
    data = objects.config_map(row["name"]) if kind == "configMap" else objects.secret(row["name"])
    optional = bool(row.get("optional"))
    if data is None:
        if optional:
            return {}
        raise EmulatorError(f"no {kind} {row['name']}")
    if "items" not in row:
        return {key: _File(value, None) for key, value in data.items()}
    found = {}
    for item in row["items"]:
        if item["key"] in data:
            found[item["path"]] = _File(data[item["key"]], item.get("mode"))
        elif not optional:
            raise EmulatorError(f"no key {item['key']} in {kind} {row['name']}")
    return found


def _downward(item: Manifest, pod: Pod, place: Place) -> _File:
    if "fieldRef" in item:
        path = item["fieldRef"]["fieldPath"]
        rows = {"metadata.labels": pod.labels, "metadata.annotations": pod.annotations}.get(path)
        if rows is not None:
            text = "\n".join(f'{key}="{value}"' for key, value in sorted(rows.items()))
        else:
            text = field_value(path, pod, place)
    else:
        reference = item["resourceFieldRef"]
        containers = {c["name"]: c for c in pod.spec["containers"]}
        text = resource_value(reference, containers.get(reference["containerName"], {}))
    return _File(text.encode(), item.get("mode"))


def _check_path(path: str) -> None:
    parts = path.split("/")
    if path.startswith("/") or ".." in parts or parts[0].startswith("..") or not path:
        raise EmulatorError(f"not a path of a projected file: {path!r}")


def _write_files(folder: Path, files: Mapping[str, _File], mode: int) -> None:
    version = folder / _VERSION
    version.mkdir()
    (folder / "..data").symlink_to(_VERSION)
    for path, file in files.items():
        (version / path).parent.mkdir(parents=True, exist_ok=True)
        (version / path).write_bytes(file.data)
        (version / path).chmod(mode if file.mode is None else file.mode)
    for top in sorted({path.split("/")[0] for path in files}):
        (folder / top).symlink_to(f"..data/{top}")


def container_mounts(container: Manifest, volumes: Mapping[str, Volume]) -> list[BindMount]:
    """Return a container's mounts, outer ones first.

    Raises:
        EmulatorError: if a mount's volume is not there, or its subPath leads out of the volume.
    """
    found: dict[str, BindMount] = {}
    for row in container.get("volumeMounts", ()):
        target = posixpath.normpath(row["mountPath"])
        if row["name"] not in volumes:
            raise EmulatorError(f"{target}: no volume {row['name']}")
        if target in found:
            raise EmulatorError(f"two mounts at {target}")
        volume = volumes[row["name"]]
        source = _sub_path(volume, row["subPath"]) if row.get("subPath") else volume.folder
        read_only = volume.read_only or bool(row.get("readOnly"))
        found[target] = BindMount(source, target, read_only)
    return sorted(found.values(), key=lambda mount: mount.target.count("/"))


def _sub_path(volume: Volume, path: str) -> Path:
    if path.startswith("/") or ".." in path.split("/"):
        raise EmulatorError(f"not a subPath: {path!r}")
    if volume.memory is not None:
        raise EmulatorError("a subPath of a volume in memory is not emulated")
    source = Path(os.path.realpath(volume.folder / path))
    if not source.is_relative_to(os.path.realpath(volume.folder)):
        raise EmulatorError(f"subPath {path!r} leads out of its volume")
    if not source.exists():
        source.mkdir(parents=True)
    return source
