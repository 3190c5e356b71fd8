"""Manifests as YAML, and notes as text: what `render` prints.

Strings that another YAML parser than this one might take for numbers (`1e3`, `0o7`) or for truth
values (`n`) are quoted: kubectl's parser is Go's, with other ideas of both.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import yaml

from pyxis_py.kubernetes.pod.context import Manifest
from pyxis_py.kubernetes.render.validate import pod_templates
from pyxis_py.kubernetes.spec.notes import Note

_LIKE_A_NUMBER = frozenset("0123456789.+-~")
_LIKE_A_TRUTH_VALUE = frozenset("yYnN")
_ORDER = ("refused", "approximated", "warning", "ignored", "rendered")


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, lists indented, and no aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    style = None
    if "\n" in value:
        style = "|"
    elif value[:1] in _LIKE_A_NUMBER or value in _LIKE_A_TRUTH_VALUE:
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def dump_manifests(manifests: Sequence[Manifest]) -> str:
    """Return manifests as one YAML stream, the same bytes for the same manifests."""
    return "".join(
        "---\n"
        + yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
        for manifest in manifests
    )


def explain(notes: Iterable[Note], manifests: Sequence[Manifest] = ()) -> str:
    """Return one line for each note, the worst first, and the resources that a queue must cover."""
    rows = sorted(notes, key=lambda note: (_ORDER.index(note.kind), note.line, note.option))
    lines = []
    for note in rows:
        place = f"line {note.line}" if note.line else "-"
        code = f" [{note.code}]" if note.code else ""
        lines.append(f"{note.kind:12} {place:9} {note.option or '-'}: {note.text}{code}")
        if note.way_out:
            lines.append(f"{'':22} way out: {note.way_out}")
    resources = requested_resources(manifests)
    if resources:
        lines.append("The queue has to cover: " + ", ".join(resources))
    return "\n".join(lines) + "\n"


def requested_resources(manifests: Sequence[Manifest]) -> list[str]:
    """Return the names of all resources that pods request, and the device classes they claim."""
    names: dict[str, None] = {}
    for manifest in manifests:
        for _, template in pod_templates(manifest):
            for container in template["spec"]["containers"]:
                names.update(dict.fromkeys(container["resources"]["requests"]))
        if manifest["kind"] == "ResourceClaimTemplate":
            requests: list[dict[str, Any]] = manifest["spec"]["spec"]["devices"]["requests"]
            names.update((f"device class {row['exactly']['deviceClassName']}", None)
                         for row in requests)  # fmt: skip
    return sorted(names)
