"""Volumes as the kubelet lays them out, and what must not get out of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.emulator.environment import Place
from tests.kubernetes.emulator.objects import EmulatorError, Objects, Pod
from tests.kubernetes.emulator.volumes import (
    Storage,
    Volume,
    container_mounts,
    prepare_volumes,
)

OBJECTS = Objects([
    {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "text"},
     "binaryData": {"b": "AAH/"}},
    {"kind": "ConfigMap", "metadata": {"name": "more"}, "data": {"a": "later"}},
    {"kind": "Secret", "metadata": {"name": "s"}, "stringData": {"token": "hidden"}},
])  # fmt: skip


def prepare(folder: Path, *rows: dict[str, Any], **storage: Any) -> dict[str, Volume]:
    spec = {"volumes": list(rows), "containers": [
        {"name": "main", "resources": {"limits": {"memory": "1Gi"}}}
    ]}  # fmt: skip
    pod = Pod(
        name="p", uid="u", namespace="n", labels={"x": "1", "w": "2"}, annotations={},
        hostname="h", subdomain="", index=0, attempt=0, spec=spec,
    )  # fmt: skip
    place = Place("10.244.0.2", "worker-1", "192.0.2.1")
    return prepare_volumes(pod, place, OBJECTS, Storage(**storage), folder)


def contents(volume: Volume) -> dict[str, bytes]:
    return {
        str(path.relative_to(volume.folder)): path.read_bytes()
        for path in sorted(volume.folder.rglob("*"))
        if path.is_file() and not path.relative_to(volume.folder).parts[0].startswith("..")
    }


def mode(volume: Volume, name: str) -> int:
    return os.stat(volume.folder / name).st_mode & 0o7777


def test_a_config_map_is_files_behind_links(tmp_path: Path) -> None:
    volume = prepare(tmp_path, {"name": "v", "configMap": {"name": "c", "defaultMode": 0o555}})["v"]
    assert contents(volume) == {"a": b"text", "b": b"\x00\x01\xff"}
    assert os.readlink(volume.folder / "a") == "..data/a"
    assert (mode(volume, "a"), volume.read_only) == (0o555, True)


def test_items_choose_keys_paths_and_modes(tmp_path: Path) -> None:
    items = [{"key": "token", "path": "deep/er/t", "mode": 0o400}]
    volume = prepare(tmp_path, {"name": "v", "secret": {"secretName": "s", "items": items}})["v"]
    assert contents(volume) == {}  # behind a link to a folder
    assert (volume.folder / "deep/er/t").read_bytes() == b"hidden"
    assert mode(volume, "deep/er/t") == 0o400


def test_a_projected_volume_puts_sources_together(tmp_path: Path) -> None:
    items = [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
        {"path": "memory", "resourceFieldRef": {
            "containerName": "main", "resource": "limits.memory", "divisor": "1Mi"}},
    ]  # fmt: skip
    sources = [
        {"configMap": {"name": "c"}}, {"secret": {"name": "s"}},
        {"configMap": {"name": "more"}}, {"configMap": {"name": "absent", "optional": True}},
        {"downwardAPI": {"items": items}},
    ]  # fmt: skip
    volume = prepare(tmp_path, {"name": "v", "projected": {"sources": sources}})["v"]
    assert contents(volume) == {
        "a": b"later", "b": b"\x00\x01\xff", "token": b"hidden",
        "labels": b'w="2"\nx="1"', "name": b"p", "memory": b"1024",
    }  # fmt: skip
    assert mode(volume, "a") == 0o644


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"configMap": {"name": "absent"}}, "no configMap absent"),
        ({"secret": {"secretName": "absent"}}, "no secret absent"),
        ({"configMap": {"name": "c", "items": [{"key": "z", "path": "z"}]}}, "no key z"),
        ({"configMap": {"name": "c", "items": [{"key": "a", "path": "../z"}]}}, "not a path"),
        ({"configMap": {"name": "c", "items": [{"key": "a", "path": "/z"}]}}, "not a path"),
        ({"configMap": {"name": "c", "items": [{"key": "a", "path": "..data"}]}}, "not a path"),
        ({"projected": {"sources": [{"serviceAccountToken": {}}]}}, "unknown source"),
        ({"persistentVolumeClaim": {"claimName": "absent"}}, "nothing stands for"),
        ({"hostPath": {"path": "/etc"}}, "nothing stands for"),
        ({"hostPath": {"path": "/data/../etc"}}, "nothing stands for"),
        ({"hostPath": {"path": "/data/absent"}}, "not what hostPath says"),
        ({"hostPath": {"path": "/data/file", "type": "Directory"}}, "not what hostPath says"),
        ({"glusterfs": {}}, "unknown kind of volume"),
        ({}, "0 sources"),
        ({"emptyDir": {}, "nfs": {}}, "2 sources"),
        ({"emptyDir": {"sizeLimit": "1GB"}}, "not a quantity"),
    ],
)
def test_what_no_kubelet_would_mount(tmp_path: Path, source: dict[str, Any], said: str) -> None:
    (tmp_path / "node").mkdir()
    (tmp_path / "node/file").touch()
    with pytest.raises(EmulatorError, match=said):
        prepare(tmp_path / "v", {"name": "v", **source}, nodes={"/data": tmp_path / "node"})


def test_folders_stand_for_storage(tmp_path: Path) -> None:
    for name in ("claim", "export", "node", "node/deep"):
        (tmp_path / name).mkdir()
    volumes = prepare(
        tmp_path / "v",
        {"name": "claim", "persistentVolumeClaim": {"claimName": "lustre", "readOnly": True}},
        {"name": "nfs", "nfs": {"server": "s", "path": "/home"}},
        {"name": "node", "hostPath": {"path": "/data/deep", "type": "Directory"}},
        {"name": "made", "hostPath": {"path": "/data/new", "type": "DirectoryOrCreate"}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {"name": "own", "ephemeral": {"volumeClaimTemplate": {}}},
        claims={"lustre": tmp_path / "claim"}, exports={"s:/home": tmp_path / "export"},
        nodes={"/": tmp_path, "/data": tmp_path / "node"},
    )  # fmt: skip
    assert volumes["claim"] == Volume(tmp_path / "claim", read_only=True)
    assert volumes["nfs"] == Volume(tmp_path / "export")
    assert volumes["node"] == Volume(tmp_path / "node/deep")
    assert volumes["made"].folder.is_dir()
    assert volumes["shm"].memory == 1 << 20
    assert volumes["own"].folder.is_dir()


def test_mounts_come_outer_ones_first(tmp_path: Path) -> None:
    volumes = {"v": Volume(tmp_path), "r": Volume(tmp_path, read_only=True)}
    rows = [
        {"name": "v", "mountPath": "/a/b/", "subPath": "new/one"},
        {"name": "r", "mountPath": "/a"},
        {"name": "v", "mountPath": "/c", "readOnly": True},
    ]
    found = container_mounts({"volumeMounts": rows}, volumes)
    assert [(m.target, m.source, m.read_only) for m in found] == [
        ("/a", tmp_path, True), ("/c", tmp_path, True), ("/a/b", tmp_path / "new/one", False),
    ]  # fmt: skip
    assert (tmp_path / "new/one").is_dir()


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"name": "absent"}, "no volume absent"),
        ({"name": "v", "subPath": "../x"}, "not a subPath"),
        ({"name": "v", "subPath": "/etc"}, "not a subPath"),
        ({"name": "v", "subPath": "out"}, "leads out"),
        ({"name": "v", "subPath": "out/deeper"}, "leads out"),
        ({"name": "v", "mountPath": "/taken"}, "two mounts"),
    ],
)
def test_what_must_not_be_mounted(tmp_path: Path, row: dict[str, Any], said: str) -> None:
    (tmp_path / "v").mkdir()
    (tmp_path / "v/out").symlink_to("/etc")
    rows = [{"name": "v", "mountPath": "/taken"}, {"mountPath": "/m", **row}]
    with pytest.raises(EmulatorError, match=said):
        container_mounts({"volumeMounts": rows}, {"v": Volume(tmp_path / "v")})
    assert not Path("/etc/deeper").exists()
