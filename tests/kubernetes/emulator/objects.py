"""What the emulated cluster has: ConfigMaps, Secrets, Services, and pods as data.

Pure. Source: Kubernetes API, core/v1.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Manifest = dict[str, Any]
KEY = re.compile(r"(?!\.\.?\Z)(?!\.\.)[-._a-zA-Z0-9]{1,253}\Z")
"""What the API server takes for a key of a ConfigMap or a Secret."""


class EmulatorError(Exception):
    """A manifest that the API server, a controller or the kubelet would not carry out."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as a controller creates it.

    Attributes:
        index: the completion index or the index in the task.
        attempt: how often the job was restarted before.
        hostname: bare; `subdomain` is the headless Service's name, "" for none.
        environ: variables that controllers put into every container.
        files: files that controllers mount, by their path in the container.
    """

    name: str
    uid: str
    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    hostname: str
    subdomain: str
    index: int
    attempt: int
    spec: Manifest
    environ: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


class Objects:
    """The objects of one namespace, as they were applied."""

    def __init__(self, manifests: Iterable[Manifest]) -> None:
        """Take in manifests in their order; the last one is usually the job.

        Raises:
            EmulatorError: if something occurs twice, or lacks what every object has.
        """
        self._found: dict[tuple[str, str], Manifest] = {}
        for manifest in manifests:
            try:
                key = manifest["kind"], manifest["metadata"]["name"]
            except (KeyError, TypeError) as error:
                raise EmulatorError("a manifest without kind or name") from error
            if key in self._found:
                raise EmulatorError(f"{key[0]} {key[1]} exists already")
            self._found[key] = manifest

    def of_kind(self, *kinds: str) -> list[Manifest]:
        """All objects of these kinds, in order."""
        return [manifest for (kind, _), manifest in self._found.items() if kind in kinds]

    def config_map(self, name: str) -> dict[str, bytes] | None:
        """A ConfigMap's keys and values; None if there is none."""
        manifest = self._found.get(("ConfigMap", name))
        if manifest is None:
            return None
        data = {key: text.encode() for key, text in manifest.get("data", {}).items()}
        return _checked({**data, **_decode(manifest.get("binaryData", {}), f"ConfigMap {name}")})

    def secret(self, name: str) -> dict[str, bytes] | None:
        """A Secret's keys and values; None if there is none."""
        manifest = self._found.get(("Secret", name))
        if manifest is None:
            return None
        data = _decode(manifest.get("data", {}), f"Secret {name}")
        text = {key: value.encode() for key, value in manifest.get("stringData", {}).items()}
        return _checked({**data, **text})

    def headless_service(self, name: str, labels: Mapping[str, str]) -> Manifest | None:
        """The Service by that name, if it is headless and selects pods with these labels."""
        manifest = self._found.get(("Service", name))
        if manifest is None or manifest["spec"].get("clusterIP") != "None":
            return None
        selector = manifest["spec"].get("selector", {})
        chosen = selector and selector.items() <= labels.items()
        return manifest if chosen else None


def _decode(data: Mapping[str, str], origin: str) -> dict[str, bytes]:
    try:
        return {key: base64.b64decode(text, validate=True) for key, text in data.items()}
    except (binascii.Error, ValueError) as error:
        raise EmulatorError(f"{origin} has data that is not base64") from error


def _checked(data: dict[str, bytes]) -> dict[str, bytes]:
    for key in data:
        if not KEY.match(key):
            raise EmulatorError(f"not a key: {key!r}")
    return data


_serial = itertools.count(1)


def new_suffix() -> str:
    """The five characters behind a pod's name, another five each time."""
    letters = "bcdfghjklmnpqrstvwxz2456789"
    number, text = next(_serial), ""
    for _ in range(5):
        number, digit = divmod(number, len(letters))
        text = letters[digit] + text
    return text
