"""Every validation rule of CDI has one document that breaks it."""

from __future__ import annotations

from pathlib import Path

import pytest

from enroot_py.errors import DeviceSpecError
from enroot_py.gpu.cdi.records import ContainerEdits
from enroot_py.gpu.cdi.registry import read_spec
from enroot_py.gpu.cdi.schema import VERSIONS, parse_spec, split_name
from tests.gpu.cdi.specs import FULL, MINIMAL, changed

DEVICE = ("devices", 0)
EDITS = ("containerEdits",)


def test_the_smallest_and_the_fullest_document() -> None:
    spec = parse_spec(MINIMAL, "/etc/cdi/x.yaml", 1)
    assert (spec.kind, spec.version, spec.priority) == ("vendor.com/device", "0.5.0", 1)
    assert spec.devices[0].edits == ContainerEdits(env=("A=b",))
    full = parse_spec(FULL, "/x")
    node = full.devices[0].edits.device_nodes[0]
    assert (node.path, node.host_path, node.major, node.gid) == ("/dev/x", "/dev/null", 1, 44)
    assert full.devices[0].edits.additional_gids == (44,)
    assert full.edits.net_devices == (("eth7", "eth0"),) and full.edits.intel_rdt
    assert full.edits.hooks[0].timeout == 3 and full.edits.mounts[0].type == "none"


@pytest.mark.parametrize("version", [*VERSIONS, "v1.0.0"])
def test_every_version(version: str) -> None:
    document = changed(MINIMAL, "cdiVersion", value=version)
    assert parse_spec(document, "/x").version == version.removeprefix("v")


BROKEN = {
    "no object": ([], "expected an object"),
    "unknown field": (changed(MINIMAL, "extra", value=1), 'unknown field "extra"'),
    "no version": (changed(MINIMAL, "cdiVersion", value=...), "cdiVersion is missing"),
    "unknown version": (changed(MINIMAL, "cdiVersion", value="0.9.0"), "unknown version"),
    "version is a number": (changed(MINIMAL, "cdiVersion", value=1.0), "expected text"),
    "no kind": (changed(MINIMAL, "kind", value=...), "kind is missing"),
    "kind without a class": (changed(MINIMAL, "kind", value="vendor.com"), "no vendor/class"),
    "vendor starts with a digit": (changed(MINIMAL, "kind", value="1v/c"), "no vendor/class"),
    "vendor ends with a dot": (changed(MINIMAL, "kind", value="v./c"), "no vendor/class"),
    "vendor has a space": (changed(MINIMAL, "kind", value="v x/c"), "no vendor/class"),
    "class is empty": (changed(MINIMAL, "kind", value="v/"), "no vendor/class"),
    "class has a slash": (changed(MINIMAL, "kind", value="v/c/d"), "no vendor/class"),
    "class is not ASCII": (changed(MINIMAL, "kind", value="v/\u00e9"), "no vendor/class"),
    "no devices": (changed(MINIMAL, "devices", value=...), "there are none"),
    "empty devices": (changed(MINIMAL, "devices", value=[]), "there are none"),
    "devices are no list": (changed(MINIMAL, "devices", value={}), "expected a list"),
    "a device is no object": (changed(MINIMAL, "devices", value=["x"]), "expected an object"),
    "a device has no name": (changed(MINIMAL, *DEVICE, "name", value=...), "name is missing"),
    "a name is a number": (changed(MINIMAL, *DEVICE, "name", value=0), "expected text"),
    "a name starts with a dash": (changed(MINIMAL, *DEVICE, "name", value="-a"), "no device name"),
    "a name ends with a colon": (changed(MINIMAL, *DEVICE, "name", value="a:"), "no device name"),
    "a name has a slash": (changed(MINIMAL, *DEVICE, "name", value="a/b"), "no device name"),
    "a device without edits": (changed(MINIMAL, *DEVICE, "containerEdits", value={}), "no edits"),
    "a device twice": (
        changed(MINIMAL, "devices", value=[{"name": "a", "containerEdits": {"env": ["A=b"]}}] * 2),
        'two devices "a"',
    ),
    "edits are a list": (changed(MINIMAL, "containerEdits", value=[]), "expected an object"),
    "unknown edit": (changed(MINIMAL, "containerEdits", value={"x": 1}), 'unknown field "x"'),
    "env without a name": (changed(FULL, *EDITS, "env", value=["=x"]), "no NAME=value"),
    "env without a value": (changed(FULL, *EDITS, "env", value=["x"]), "no NAME=value"),
    "env is a number": (changed(FULL, *EDITS, "env", value=[1]), "expected text"),
    "a node without a path": (
        changed(FULL, *DEVICE, "containerEdits", "deviceNodes", 0, "path", value=""),
        "path is missing",
    ),
    "a node with a relative path": (
        changed(FULL, *DEVICE, "containerEdits", "deviceNodes", 0, "hostPath", value="null"),
        "absolute path",
    ),
    "a mount that climbs": (
        changed(FULL, *EDITS, "mounts", 0, "hostPath", value="/run/../etc/shadow"), "absolute path",
    ),
    "a mount on a relative path": (
        changed(FULL, *EDITS, "mounts", 0, "containerPath", value="m"), "absolute path",
    ),
    "a hook with a relative path": (
        changed(FULL, *EDITS, "hooks", 0, "path", value="hook"), "absolute path",
    ),
    "a node of unknown type": (
        changed(FULL, *DEVICE, "containerEdits", "deviceNodes", 0, "type", value="x"),
        "unknown type",
    ),
    "a node with permissions": (
        changed(FULL, *DEVICE, "containerEdits", "deviceNodes", 0, "permissions", value="rx"),
        "r, w",
    ),
    "a node with a text as major": (
        changed(FULL, *DEVICE, "containerEdits", "deviceNodes", 0, "major", value="1"), "a number",
    ),
    "a node with a negative minor": (
        changed(FULL, *DEVICE, "containerEdits", "deviceNodes", 0, "minor", value=-1), "a number",
    ),
    "a node with a truth value": (
        changed(FULL, *DEVICE, "containerEdits", "deviceNodes", 0, "uid", value=True), "a number",
    ),
    "a mount without a host path": (
        changed(FULL, *EDITS, "mounts", 0, "hostPath", value=...), "hostPath is missing",
    ),
    "a mount without a container path": (
        changed(FULL, *EDITS, "mounts", 0, "containerPath", value=...), "containerPath is missing",
    ),
    "mount options are a text": (
        changed(FULL, *EDITS, "mounts", 0, "options", value="ro"), "expected a list",
    ),
    "a hook of an unknown stage": (
        changed(FULL, *EDITS, "hooks", 0, "hookName", value="preStart"), "unknown hook",
    ),
    "a hook without a path": (
        changed(FULL, *EDITS, "hooks", 0, "path", value=...), "path is missing",
    ),
    "a hook with a bad variable": (
        changed(FULL, *EDITS, "hooks", 0, "env", value=["x"]), "no NAME=value",
    ),
    "a hook with a negative timeout": (
        changed(FULL, *EDITS, "hooks", 0, "timeout", value=-1), "a number",
    ),
    "an interface without a name": (
        changed(FULL, *EDITS, "netDevices", 0, "name", value=""), "name is missing",
    ),
    "an interface twice": (
        changed(FULL, *EDITS, "netDevices", value=[
            {"hostInterfaceName": "a", "name": "x"}, {"hostInterfaceName": "a", "name": "y"},
        ]), "named twice",
    ),
    "a group that is a text": (
        changed(FULL, *DEVICE, "containerEdits", "additionalGids", value=["44"]), "group number",
    ),
    "resource control with an unknown field": (
        changed(FULL, *EDITS, "intelRdt", value={"x": 1}), "unknown field",
    ),
    "resource control of a bad class": (
        changed(FULL, *EDITS, "intelRdt", "closID", value="a/b"), "class of service",
    ),
    "resource control of a wrong type": (
        changed(FULL, *EDITS, "intelRdt", "enableMonitoring", value="yes"), "expected bool",
    ),
    "annotations are a list": (changed(FULL, "annotations", value=[]), "expected an object"),
    "an annotation is a number": (changed(FULL, "annotations", value={"a": 1}), "are texts"),
    "an annotation without a name": (
        changed(FULL, "annotations", value={"a/": "x"}), "annotation key",
    ),
    "annotations without end": (
        changed(FULL, "annotations", value={"a": "x" * (257 << 10)}), "more than",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("document", "what"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_named_with_the_file(document: object, what: str) -> None:
    with pytest.raises(DeviceSpecError) as caught:
        parse_spec(document, "/etc/cdi/broken.yaml")
    assert "/etc/cdi/broken.yaml" in str(caught.value)
    assert what in str(caught.value)


def test_the_place_in_the_file_is_named() -> None:
    with pytest.raises(DeviceSpecError, match=r"devices\[0\]\.name: expected text") as caught:
        parse_spec(changed(MINIMAL, *DEVICE, "name", value=0), "/x")
    assert "quotes" in caught.value.hint


def with_edits(**edits: object) -> dict[str, object]:
    return changed(MINIMAL, *DEVICE, "containerEdits", value=edits)


NODE = {"path": "/dev/x", "hostPath": "/dev/y"}
MOUNT = {"hostPath": "/a", "containerPath": "/b", "type": "bind"}
NEEDS = {
    "type of a mount": ("0.4.0", with_edits(mounts=[MOUNT])),
    "host path of a node": ("0.5.0", with_edits(deviceNodes=[NODE])),
    "name that starts with a digit": ("0.5.0", changed(MINIMAL, *DEVICE, "name", value="0")),
    "annotations": ("0.6.0", changed(MINIMAL, "annotations", value={"a": "b"})),
    "annotations of a device": (
        "0.6.0",
        changed(MINIMAL, *DEVICE, "annotations", value={"a": "b"}),
    ),
    "class with a dot": ("0.6.0", changed(MINIMAL, "kind", value="v/c.d")),
    "groups": ("0.7.0", with_edits(additionalGids=[44])),
    "resource control": ("0.7.0", with_edits(intelRdt={"closID": "x"})),
    "interfaces": ("1.1.0", with_edits(netDevices=[{"hostInterfaceName": "a", "name": "b"}])),
    "schemata": ("1.1.0", with_edits(intelRdt={"schemata": []})),
    "monitoring": ("1.1.0", with_edits(intelRdt={"enableMonitoring": True})),
}


@pytest.mark.parametrize(("version", "document"), NEEDS.values(), ids=NEEDS)
def test_a_feature_needs_its_version(version: str, document: dict[str, object]) -> None:
    place = VERSIONS.index(version)
    parse_spec({**document, "cdiVersion": version}, "/x")
    with pytest.raises(DeviceSpecError, match="too old"):
        parse_spec({**document, "cdiVersion": VERSIONS[place - 1]}, "/x")


@pytest.mark.parametrize(
    ("text", "parts"),
    [("nvidia.com/gpu=0", ("nvidia.com/gpu", "0")), ("a/b=c:d", ("a/b", "c:d"))],
)
def test_names(text: str, parts: tuple[str, str]) -> None:
    assert split_name(text) == parts


@pytest.mark.parametrize(
    "text", ["", "a", "a/b", "a/b=", "=c", "/b=c", "a/=c", "1/b=c", "a/b=-c", "a/b=c/d"]
)
def test_malformed_names(text: str) -> None:
    with pytest.raises(DeviceSpecError, match="no device name"):
        split_name(text)


def test_the_samples_that_are_shipped_are_valid() -> None:
    folder = Path(__file__).parents[3] / "share/enroot/extra/cdi"
    samples = sorted(folder.glob("*.yaml"))
    assert samples
    for sample in samples:
        assert read_spec(str(sample)).devices
