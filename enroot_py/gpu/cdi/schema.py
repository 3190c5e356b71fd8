"""Check a parsed CDI document strictly, and turn it into records. Pure.

An unknown field, a number where text belongs, or a feature newer than the declared version makes
the whole file invalid, as in the reference implementation; messages name the place in the file.

Source: Container Device Interface specification 1.1.0; its library's specs.go and validate code.
"""

from __future__ import annotations

from enroot_py.errors import DeviceSpecError
from enroot_py.gpu.cdi.records import (
    CdiDevice,
    CdiSpec,
    ContainerEdits,
    HookEdit,
    MountEdit,
    NodeEdit,
)

VERSIONS = (
    "0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0",
)  # fmt: skip
HOOK_NAMES = (
    "prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop",
)  # fmt: skip

_TOP = ("cdiVersion", "kind", "annotations", "devices", "containerEdits")
_DEVICE = ("name", "annotations", "containerEdits")
_EDITS = ("env", "deviceNodes", "netDevices", "mounts", "hooks", "intelRdt", "additionalGids")
_NODE = ("path", "hostPath", "type", "major", "minor", "fileMode", "permissions", "uid", "gid")
_MOUNT = ("hostPath", "containerPath", "options", "type")
_HOOK = ("hookName", "path", "args", "env", "timeout")
_NET = ("hostInterfaceName", "name")
_RDT = {
    "closID": str, "l3CacheSchema": str, "memBwSchema": str, "enableCMT": bool, "enableMBM": bool,
    "schemata": list, "enableMonitoring": bool,
}  # fmt: skip
_NODE_TYPES = ("", "b", "c", "u", "p")
_MAX_ANNOTATIONS = 256 << 10


def parse_spec(document: object, path: str, priority: int = 0) -> CdiSpec:
    """Check a document and return its records.

    Args:
        document: what the YAML or JSON file holds.
        path: the file's absolute path, for messages.
        priority: position of its folder.

    Raises:
        DeviceSpecError: naming the file, the place in it and what is wrong there.
    """
    return _Checker(path).spec(document, priority)


def split_name(text: str) -> tuple[str, str]:
    """Split a qualified device name, `vendor/class=name`, into kind and name.

    Raises:
        DeviceSpecError: if it is none.
    """
    kind, equals, name = text.partition("=")
    vendor, slash, class_ = kind.partition("/")
    if not (equals and slash and _word(vendor, "_-.") and _word(class_, "_-.")):
        raise DeviceSpecError(f'cdi: "{text}" is no device name', hint="expected vendor/class=name")
    if not _device_name(name):
        raise DeviceSpecError(f'cdi: "{text}" is no device name: "{name}" is not valid')
    return kind, name


def _word(text: str, inside: str) -> bool:
    """Tell whether text is a vendor or class: a letter first, alphanumeric last."""
    return (
        text.isascii()
        and text[:1].isalpha()
        and text[-1:].isalnum()
        and all(letter.isalnum() or letter in inside for letter in text)
    )


def _device_name(text: str) -> bool:
    return (
        text.isascii()
        and text[:1].isalnum()
        and text[-1:].isalnum()
        and all(letter.isalnum() or letter in "_-.:" for letter in text)
    )


class _Checker:
    """Checks one file; `need` collects the oldest version that has every feature used."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.need = ("0.3.0", "")

    def fail(self, place: str, what: str, hint: str = "") -> DeviceSpecError:
        where = f" {place}:" if place else ""
        return DeviceSpecError(f"cdi: {self.path}:{where} {what}", hint=hint)

    def require(self, version: str, feature: str) -> None:
        if VERSIONS.index(version) > VERSIONS.index(self.need[0]):
            self.need = (version, feature)

    def mapping(self, value: object, place: str, fields: tuple[str, ...]) -> dict[str, object]:
        if not isinstance(value, dict):
            raise self.fail(place, "expected an object")
        for key in value:
            if key not in fields:
                known = ", ".join(fields)
                raise self.fail(place, f'unknown field "{key}"', hint=f"known here: {known}")
        return value

    def items(self, value: object, place: str) -> list[object]:
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.fail(place, "expected a list")
        return value

    def text(self, owner: dict[str, object], field: str, place: str, *, need: bool = False) -> str:
        value = owner.get(field)
        if value is None or value == "":
            if need:
                raise self.fail(place, f"{field} is missing")
            return ""
        if not isinstance(value, str):
            raise self.fail(f"{place}.{field}".lstrip("."), "expected text", "put it in quotes")
        return value

    def texts(self, value: object, place: str) -> tuple[str, ...]:
        items = self.items(value, place)
        for number, item in enumerate(items):
            if not isinstance(item, str):
                raise self.fail(f"{place}[{number}]", "expected text", "put it in quotes")
        return tuple(str(item) for item in items)

    def absolute(self, path: str, place: str) -> None:
        if path and (not path.startswith("/") or ".." in path.split("/")):
            raise self.fail(place, f'"{path}" is not an absolute path without ".."')

    def number(self, owner: dict[str, object], field: str, place: str, default: int = -1) -> int:
        value = owner.get(field)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
            raise self.fail(f"{place}.{field}", "expected a number, 0 or more")
        return value

    def spec(self, document: object, priority: int) -> CdiSpec:
        top = self.mapping(document, "", _TOP)
        version = self.text(top, "cdiVersion", "", need=True)
        version = version[1:] if version.startswith("v") else version
        if version not in VERSIONS:
            raise self.fail("cdiVersion", f'unknown version "{version}"')
        kind = self.text(top, "kind", "", need=True)
        vendor, slash, class_ = kind.partition("/")
        if not slash or not _word(vendor, "_-.") or not _word(class_, "_-."):
            raise self.fail("kind", f'"{kind}" is no vendor/class')
        if "." in class_:
            self.require("0.6.0", "a class with a dot")
        self.annotations(top, "")
        edits = self.edits(top.get("containerEdits"), "containerEdits")
        devices = self.devices(top.get("devices"))
        if VERSIONS.index(version) < VERSIONS.index(self.need[0]) and self.need[1]:
            raise self.fail(
                "cdiVersion", f"{version} is too old for {self.need[1]}, which needs {self.need[0]}"
            )
        return CdiSpec(self.path, priority, version, kind, devices, edits)

    def devices(self, value: object) -> tuple[CdiDevice, ...]:
        found: dict[str, CdiDevice] = {}
        for number, item in enumerate(self.items(value, "devices")):
            place = f"devices[{number}]"
            device = self.mapping(item, place, _DEVICE)
            name = self.text(device, "name", place, need=True)
            if not _device_name(name):
                raise self.fail(f"{place}.name", f'"{name}" is no device name')
            if name[0].isdigit():
                self.require("0.5.0", "a device name that starts with a digit")
            if name in found:
                raise self.fail(f"{place}.name", f'there are two devices "{name}"')
            self.annotations(device, place)
            edits = self.edits(device.get("containerEdits"), f"{place}.containerEdits")
            if edits == ContainerEdits():
                raise self.fail(place, f'device "{name}" has no edits')
            found[name] = CdiDevice(name, edits)
        if not found:
            raise self.fail("devices", "there are none")
        return tuple(found.values())

    def annotations(self, owner: dict[str, object], place: str) -> None:
        value = owner.get("annotations")
        if value is None:
            return
        where = f"{place}.annotations".lstrip(".")
        if not isinstance(value, dict):
            raise self.fail(where, "expected an object")
        self.require("0.6.0", "annotations")
        size = 0
        for key, text in value.items():
            if not isinstance(key, str) or not isinstance(text, str):
                raise self.fail(where, "keys and values are texts", "put them in quotes")
            prefix, _, name = key.rpartition("/")
            if not _device_name(name) or len(name) > 63 or ":" in name or len(prefix) > 253:
                raise self.fail(where, f'"{key}" is no annotation key')
            size += len(key) + len(text)
        if size > _MAX_ANNOTATIONS:
            raise self.fail(where, f"more than {_MAX_ANNOTATIONS} bytes")

    def edits(self, value: object, place: str) -> ContainerEdits:
        if value is None:
            return ContainerEdits()
        owner = self.mapping(value, place, _EDITS)
        env = self.texts(owner.get("env"), f"{place}.env")
        for number, text in enumerate(env):
            if text.find("=") < 1:
                raise self.fail(f"{place}.env[{number}]", f'"{text}" is no NAME=value')
        nodes = self.items(owner.get("deviceNodes"), f"{place}.deviceNodes")
        mounts = self.items(owner.get("mounts"), f"{place}.mounts")
        hooks = self.items(owner.get("hooks"), f"{place}.hooks")
        return ContainerEdits(
            env=env,
            device_nodes=tuple(
                self.node(node, f"{place}.deviceNodes[{n}]") for n, node in enumerate(nodes)
            ),
            mounts=tuple(
                self.mount(mount, f"{place}.mounts[{n}]") for n, mount in enumerate(mounts)
            ),
            hooks=tuple(self.hook(hook, f"{place}.hooks[{n}]") for n, hook in enumerate(hooks)),
            net_devices=self.net_devices(owner.get("netDevices"), f"{place}.netDevices"),
            additional_gids=self.gids(owner.get("additionalGids"), f"{place}.additionalGids"),
            intel_rdt=self.rdt(owner.get("intelRdt"), f"{place}.intelRdt"),
        )

    def node(self, value: object, place: str) -> NodeEdit:
        owner = self.mapping(value, place, _NODE)
        node = NodeEdit(
            path=self.text(owner, "path", place, need=True),
            host_path=self.text(owner, "hostPath", place),
            type=self.text(owner, "type", place),
            major=self.number(owner, "major", place),
            minor=self.number(owner, "minor", place),
            file_mode=self.number(owner, "fileMode", place),
            permissions=self.text(owner, "permissions", place),
            uid=self.number(owner, "uid", place),
            gid=self.number(owner, "gid", place),
        )
        for path in (node.path, node.host_path):
            self.absolute(path, place)
        if node.host_path:
            self.require("0.5.0", "hostPath of a device node")
        if node.type not in _NODE_TYPES:
            raise self.fail(f"{place}.type", f'unknown type "{node.type}"', "expected b, c, u or p")
        if node.permissions != "none" and set(node.permissions) - set("rwm"):
            raise self.fail(f"{place}.permissions", f'"{node.permissions}" is not of r, w and m')
        return node

    def mount(self, value: object, place: str) -> MountEdit:
        owner = self.mapping(value, place, _MOUNT)
        mount = MountEdit(
            host_path=self.text(owner, "hostPath", place, need=True),
            container_path=self.text(owner, "containerPath", place, need=True),
            options=self.texts(owner.get("options"), f"{place}.options"),
            type=self.text(owner, "type", place),
        )
        self.absolute(mount.container_path, place)
        if mount.type in ("", "none", "bind"):
            self.absolute(mount.host_path, place)
        if mount.type:
            self.require("0.4.0", "type of a mount")
        return mount

    def hook(self, value: object, place: str) -> HookEdit:
        owner = self.mapping(value, place, _HOOK)
        hook = HookEdit(
            hook_name=self.text(owner, "hookName", place, need=True),
            path=self.text(owner, "path", place, need=True),
            args=self.texts(owner.get("args"), f"{place}.args"),
            env=self.texts(owner.get("env"), f"{place}.env"),
            timeout=self.number(owner, "timeout", place, 0),
        )
        self.absolute(hook.path, place)
        if hook.hook_name not in HOOK_NAMES:
            known = ", ".join(HOOK_NAMES)
            raise self.fail(f"{place}.hookName", f'unknown hook "{hook.hook_name}"', known)
        for text in hook.env:
            if text.find("=") < 1:
                raise self.fail(f"{place}.env", f'"{text}" is no NAME=value')
        return hook

    def net_devices(self, value: object, place: str) -> tuple[tuple[str, str], ...]:
        found: list[tuple[str, str]] = []
        for number, item in enumerate(self.items(value, place)):
            owner = self.mapping(item, f"{place}[{number}]", _NET)
            host = self.text(owner, "hostInterfaceName", f"{place}[{number}]", need=True)
            name = self.text(owner, "name", f"{place}[{number}]", need=True)
            if any(host == pair[0] or name == pair[1] for pair in found):
                raise self.fail(f"{place}[{number}]", "an interface is named twice")
            found.append((host, name))
        if found:
            self.require("1.1.0", "netDevices")
        return tuple(found)

    def gids(self, value: object, place: str) -> tuple[int, ...]:
        items = self.items(value, place)
        for number, item in enumerate(items):
            if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < 1 << 32:
                raise self.fail(f"{place}[{number}]", "expected a group number")
        if items:
            self.require("0.7.0", "additionalGids")
        return tuple(item for item in items if isinstance(item, int) and item)

    def rdt(self, value: object, place: str) -> bool:
        if value is None:
            return False
        owner = self.mapping(value, place, tuple(_RDT))
        self.require("0.7.0", "intelRdt")
        for field, item in owner.items():
            if not isinstance(item, _RDT[field]):
                raise self.fail(f"{place}.{field}", f"expected {_RDT[field].__name__}")
        if "schemata" in owner or "enableMonitoring" in owner:
            self.require("1.1.0", "intelRdt.schemata and enableMonitoring")
        closid = str(owner.get("closID", ""))
        if closid in (".", "..") or "/" in closid or "\n" in closid or len(closid) >= 4096:
            raise self.fail(f"{place}.closID", f'"{closid}" is no class of service')
        return True
