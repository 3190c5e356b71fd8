"""CDI specification files: find them, read them, and resolve device names.

A file that is malformed is reported and passed over; the others still count. Of two definitions of
one device the one in the folder of higher priority wins; two in the same folder make the device
unresolvable.
"""

from __future__ import annotations

import os

from enroot_py.errors import DeviceSpecError, NotFoundError
from enroot_py.gpu.cdi.records import CdiDevice, CdiSpec, ContainerEdits
from enroot_py.gpu.cdi.schema import parse_spec, split_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_SIZE = 8 << 20
"""Bytes of the largest specification that is read."""

_SUFFIXES = (".json", ".yaml")


class Registry:
    """The specifications of some folders.

    Attributes:
        specs: those that are valid, in order of folder and file name.
        errors: messages about the others.
        folders: where was looked for them.
    """

    def __init__(
        self, specs: Iterable[CdiSpec], errors: Iterable[str] = (), *, folders: Iterable[str] = ()
    ) -> None:
        self.folders = tuple(folders)
        self.specs = tuple(specs)
        self.errors = tuple(errors)
        self._devices: dict[str, tuple[CdiSpec, CdiDevice]] = {}
        self._conflicts: dict[str, list[str]] = {}
        for spec in self.specs:
            for device in spec.devices:
                self._add(spec, device)

    def _add(self, spec: CdiSpec, device: CdiDevice) -> None:
        name = f"{spec.kind}={device.name}"
        known = self._devices.get(name)
        if known is None or known[0].priority < spec.priority:
            self._devices[name] = (spec, device)
            self._conflicts.pop(name, None)
        elif known[0].priority == spec.priority:
            self._conflicts.setdefault(name, [known[0].path]).append(spec.path)

    def names(self, kind: str = "") -> tuple[str, ...]:
        """Return the qualified names that resolve, of one kind or of all."""
        return tuple(
            name
            for name in self._devices
            if name not in self._conflicts and (not kind or name.startswith(kind + "="))
        )

    def resolve(self, names: Iterable[str]) -> tuple[tuple[str, ContainerEdits], ...]:
        """Return the edits that the devices need, in order, each file's own edits once.

        Returns:
            Pairs of (kind, edits).

        Raises:
            DeviceSpecError: if a name is malformed.
            NotFoundError: if any name does not resolve; then nothing is to be applied.
        """
        wanted = tuple(names)
        kinds = {name: split_name(name)[0] for name in wanted}
        missing = [n for n in wanted if n not in self._devices or n in self._conflicts]
        if missing:
            raise self._unresolvable(missing, kinds)
        used: set[str] = set()
        edits = []
        for name in wanted:
            spec, device = self._devices[name]
            if spec.path not in used:
                used.add(spec.path)
                edits.append((spec.kind, spec.edits))
            edits.append((spec.kind, device.edits))
        return tuple(edits)

    def _unresolvable(self, missing: list[str], kinds: dict[str, str]) -> NotFoundError:
        parts = [f"cdi: unresolvable CDI devices {', '.join(missing)}"]
        for name in missing:
            if name in self._conflicts:
                files = " and ".join(self._conflicts[name])
                parts.append(f"{name} is defined in both {files}")
        known = [name for kind in dict.fromkeys(kinds.values()) for name in self.names(kind)]
        parts.append(f"known of that kind: {', '.join(known) or 'none'}")
        parts += [f"unusable file: {error}" for error in self.errors]
        hint = "`enroot gpu list` shows the names that there are"
        if not self.specs:
            hint = f"no specification is in {' or '.join(self.folders) or 'any folder'}"
            hint += " (ENROOT_CDI_DIRS)"
        return NotFoundError("; ".join(parts), hint=hint)


def load_registry(folders: Iterable[str]) -> Registry:
    """Read every specification of the folders, the later folder having the higher priority."""
    specs: list[CdiSpec] = []
    errors: list[str] = []
    folders = tuple(folders)
    for priority, folder in enumerate(folders):
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(_SUFFIXES) and not os.path.isdir(path):
                try:
                    specs.append(read_spec(path, priority))
                except DeviceSpecError as error:
                    errors.append(str(error))
    return Registry(specs, errors, folders=folders)


def read_spec(path: str, priority: int = 0) -> CdiSpec:
    """Read one specification file.

    Raises:
        DeviceSpecError: if it cannot be read or is not valid.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            data = file.read(MAX_SIZE + 1)
    except OSError as error:
        raise DeviceSpecError(f"cdi: {path}: {error.strerror}") from error
    if len(data) > MAX_SIZE:
        raise DeviceSpecError(f"cdi: {path}: more than {MAX_SIZE} bytes")
    document = _parse_json(data, path) if path.endswith(".json") else _parse_yaml(data, path)
    return parse_spec(document, path, priority)


def _parse_json(data: bytes, path: str) -> object:
    import json

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) != len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise DeviceSpecError(f'cdi: {path}: the key "{twice}" stands twice in one object')
        return found

    try:
        document: object = json.loads(data, object_pairs_hook=unique)
        return document
    except RecursionError as error:
        raise DeviceSpecError(f"cdi: {path}: nested too deeply") from error
    except ValueError as error:
        raise DeviceSpecError(f"cdi: {path}: {error}") from error


def _parse_yaml(data: bytes, path: str) -> object:
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise DeviceSpecError(
            f"cdi: {path}: PyYAML is not installed for this interpreter", hint="pip install pyyaml"
        ) from error

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        """Rejects keys that stand twice, which the plain loader takes silently."""

    def mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[object, object]:
        found: dict[object, object] = {}
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is not text", key_node.start_mark
                )
            if key in found:
                raise yaml.constructor.ConstructorError(
                    None, None, f'the key "{key}" stands twice', key_node.start_mark
                )
            found[key] = loader.construct_object(value_node, deep=True)
        return found

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    try:
        document: object = yaml.load(data, Loader)
        return document
    except RecursionError as error:
        raise DeviceSpecError(f"cdi: {path}: nested too deeply") from error
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}:" if mark is not None else ""
        what = getattr(error, "problem", None) or str(error).split("\n")[0]
        raise DeviceSpecError(f"cdi: {path}:{line} {what}") from error
