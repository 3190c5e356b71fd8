"""The objects of the stub API server: versions, labels, events for watchers, owners, deletion.

What controllers would do is done by the tests, through `store` and `remove`; garbage is collected
whenever a request comes in, unless `drained` says that pods still hold on.
"""

from __future__ import annotations

import base64
import copy
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.kubernetes.cluster.kinds import BUILT_IN, Kind

Object = dict[str, Any]


class Key(NamedTuple):
    """Where an object is."""

    group_version: str
    plural: str
    namespace: str
    name: str


class RefusalError(Exception):
    """An answer that is no success: HTTP status, reason and message of a Status."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message


class ObjectStore:
    """All objects, by key. Every change has a number, the resourceVersion."""

    def __init__(self) -> None:
        self.objects: dict[Key, Object] = {}
        self.events: list[tuple[int, str, Key, Object]] = []
        self.changed = threading.Condition(threading.RLock())
        self.drained: Callable[[Object], bool] = lambda job: True
        self._version = 100

    def create(self, kind: Kind, namespace: str, manifest: Object, *, dry_run: bool) -> Object:
        """Add an object; 409 if there is one of its name."""
        with self.changed:
            made = copy.deepcopy(manifest)
            metadata = made["metadata"]
            if "name" not in metadata and "generateName" in metadata:
                metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
            key = Key(kind.group_version, kind.plural, namespace, metadata["name"])
            if key in self.objects:
                raise _exists(kind, metadata["name"])
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            metadata.update(namespace=namespace, uid=str(uuid.uuid4()), creationTimestamp=stamp)
            metadata["generation"] = 1
            if made["kind"] == "Secret" and "stringData" in made:
                made["data"] = {
                    name: base64.b64encode(value.encode()).decode()
                    for name, value in made.pop("stringData").items()
                }
            if "spec" in made and kind.group in BUILT_IN:
                made.setdefault("status", {})
            if not dry_run:
                self._set("ADDED", key, made)
            return copy.deepcopy(made)

    def get(self, key: Key) -> Object:
        """A copy of an object; 404 if there is none."""
        with self.changed:
            if key not in self.objects:
                raise missing(key)
            return copy.deepcopy(self.objects[key])

    def list(
        self, kind: Kind, namespace: str, selector: str = "", fields: str = ""
    ) -> list[Object]:
        """Copies of the objects of a kind, in one namespace or in all ("")."""
        with self.changed:
            return [
                copy.deepcopy(found)
                for key, found in self.objects.items()
                if (key.group_version, key.plural) == (kind.group_version, kind.plural)
                and namespace in ("", key.namespace)
                and matches(found, selector, fields)
            ]

    def update(self, key: Key, made: Object, *, dry_run: bool = False) -> Object:
        """Replace an object; 409 if it names a version that is not the current one."""
        with self.changed:
            if key not in self.objects:
                raise missing(key)
            current = self.objects[key]
            self.check_version(key, made)
            made = copy.deepcopy(made)
            for name in ("uid", "creationTimestamp", "namespace", "name"):
                made["metadata"][name] = current["metadata"][name]
            if not dry_run:
                self._set("MODIFIED", key, made)
            return copy.deepcopy(made)

    def check_version(self, key: Key, made: Object) -> None:
        """409 if an object names a version that is not the current one."""
        asked = made["metadata"].get("resourceVersion")
        if asked and asked != self.objects[key]["metadata"]["resourceVersion"]:
            text = (
                f'Operation cannot be fulfilled on {key.plural} "{key.name}": the object has '
                "been modified; please apply your changes to the latest version and try again"
            )
            raise RefusalError(409, "Conflict", text)

    def store(self, key: Key, **parts: Any) -> None:
        """Merge `spec` into an object or replace its `status`, as a controller would."""
        with self.changed:
            made = self.get(key)
            for name, value in parts.items():
                made[name] = {**made.get(name, {}), **value} if name == "spec" else value
            self._set("MODIFIED", key, made)

    def remove(self, key: Key) -> None:
        """Take an object away at once, and what it alone owns."""
        with self.changed:
            gone = self.objects.pop(key)
            self._note("DELETED", key, gone)
            self._release(gone["metadata"]["uid"], orphan=False)

    def delete(self, key: Key, propagation: str, *, dry_run: bool = False) -> Object:
        """Delete as DeleteOptions say; an object deleted in the foreground stays until drained."""
        with self.changed:
            found = self.get(key)
            if dry_run:
                return found
            if propagation == "Foreground":
                made = self.objects[key]
                made = copy.deepcopy(made)
                stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                made["metadata"].update(deletionTimestamp=stamp, finalizers=["foregroundDeletion"])
                self._set("MODIFIED", key, made)
            elif propagation == "Orphan":
                self._release(found["metadata"]["uid"], orphan=True)
                self._note("DELETED", key, self.objects.pop(key))
            else:
                self.remove(key)
            return found

    def collect(self) -> None:
        """Finish deletions whose pods are gone."""
        with self.changed:
            for key, found in list(self.objects.items()):
                ending = "deletionTimestamp" in found["metadata"] and self.drained(found)
                if ending and key in self.objects:
                    self.remove(key)

    def since(self, version: int) -> Iterator[tuple[int, str, Key, Object]]:
        """Events after a version."""
        with self.changed:
            return iter([event for event in self.events if event[0] > version])

    @property
    def version(self) -> int:
        """The number of the latest change."""
        return self._version

    def _set(self, event: str, key: Key, made: Object) -> None:
        self._version += 1
        made["metadata"]["resourceVersion"] = str(self._version)
        self.objects[key] = made
        self.events.append((self._version, event, key, copy.deepcopy(made)))
        self.changed.notify_all()

    def _note(self, event: str, key: Key, gone: Object) -> None:
        self._version += 1
        self.events.append((self._version, event, key, copy.deepcopy(gone)))
        self.changed.notify_all()

    def _release(self, uid: str, *, orphan: bool) -> None:
        """Take an owner away from its dependents; one without owners left goes too."""
        for key, found in list(self.objects.items()):
            owners = found["metadata"].get("ownerReferences", [])
            left = [owner for owner in owners if owner["uid"] != uid]
            if len(left) == len(owners) or key not in self.objects:
                continue
            found["metadata"]["ownerReferences"] = left
            if not left and not orphan:
                self.remove(key)


def missing(key: Key) -> RefusalError:
    """404 for an object."""
    group = key.group_version.rpartition("/")[0]
    name = f"{key.plural}.{group}" if group else key.plural
    return RefusalError(404, "NotFound", f'{name} "{key.name}" not found')


def _exists(kind: Kind, name: str) -> RefusalError:
    plural = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
    return RefusalError(409, "AlreadyExists", f'{plural} "{name}" already exists')


def matches(found: Object, selector: str, fields: str = "") -> bool:
    """Whether an object has the labels of a selector and the name of a field selector."""
    labels = found["metadata"].get("labels", {})
    for term in fields.split(",") if fields else ():
        path, _, value = term.partition("=")
        if path != "metadata.name":
            raise RefusalError(400, "BadRequest", f"field label not supported: {path}")
        if found["metadata"]["name"] != value.lstrip("="):
            return False
    return all(_holds(labels, term) for term in _terms(selector))


def _terms(selector: str) -> list[str]:
    terms, depth = [""], 0
    for character in selector:
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            terms.append("")
        else:
            terms[-1] += character
    return [term.strip() for term in terms if term.strip()]


def _holds(labels: dict[str, str], term: str) -> bool:
    for word in (" notin ", " in "):
        if word in term:
            name, _, values = term.partition(word)
            inside = labels.get(name) in [
                value.strip() for value in values.strip().strip("()").split(",")
            ]
            return inside if word == " in " else not inside
    if "!=" in term:
        name, _, value = term.partition("!=")
        return labels.get(name) != value
    if "=" in term:
        name, _, value = term.partition("=")
        return labels.get(name) == value.lstrip("=")
    return term.lstrip("!") not in labels if term.startswith("!") else term in labels
