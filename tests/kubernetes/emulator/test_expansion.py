"""`$(NAME)` and the downward API in variables, commands and arguments."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kubernetes.emulator.environment import Place, container_environment
from tests.kubernetes.emulator.expansion import expand
from tests.kubernetes.emulator.objects import EmulatorError, Objects, Pod
from tests.kubernetes.emulator.quantities import in_units_of

PLACE = Place("10.244.0.2", "worker-1", "192.0.2.1")
POD = Pod(
    name="job-0-abcde", uid="u", namespace="team", labels={"a/b": "label"},
    annotations={"c": "note"}, hostname="job-0", subdomain="job", index=0, attempt=0, spec={},
    environ={"JOB_COMPLETION_INDEX": "0", "SEEN": "$(A)"},
)  # fmt: skip
OBJECTS = Objects([
    {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"key": "value", "1st": "x"}},
    {"kind": "Secret", "metadata": {"name": "s"}, "data": {"token": "aGlkZGVu"},
     "stringData": {"plain": "text"}},
])  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)", "one"), ("$$(A)", "$(A)"), ("$$$(A)", "$one"), ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$A ${A} $", "$A ${A} $"), ("$(A", "$(A"), ("$()", "$()"), ("$(A)$(B)", "one$(A)"),
        ("a$$b$$$$", "a$b$$"), ("$($(A))", "$($(A))"), ("", ""),
    ],
)  # fmt: skip
def test_references_are_replaced_once(text: str, expected: str) -> None:
    assert expand(text, {"A": "one", "B": "$(A)"}) == expected


def environment(*rows: dict[str, Any], **container: Any) -> dict[str, str]:
    return container_environment({"env": rows, **container}, POD, PLACE, OBJECTS)


def test_values_refer_to_what_stands_before_them() -> None:
    found = environment(
        {"name": "EARLY", "value": "$(A)"}, {"name": "A", "value": "1"},
        {"name": "LATE", "value": "$(A)$$(A)"}, {"name": "EMPTY"},
    )  # fmt: skip
    assert found == {
        "EARLY": "$(A)", "A": "1", "LATE": "1$(A)", "EMPTY": "",
        "JOB_COMPLETION_INDEX": "0", "SEEN": "1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"fieldRef": {"fieldPath": "metadata.name"}}, "job-0-abcde"),
        ({"fieldRef": {"fieldPath": "metadata.namespace"}}, "team"),
        ({"fieldRef": {"fieldPath": "metadata.labels['a/b']"}}, "label"),
        ({"fieldRef": {"fieldPath": "metadata.annotations['c']"}}, "note"),
        ({"fieldRef": {"fieldPath": "metadata.labels['absent']"}}, ""),
        ({"fieldRef": {"fieldPath": "status.podIP"}}, "10.244.0.2"),
        ({"fieldRef": {"fieldPath": "spec.nodeName"}}, "worker-1"),
        ({"secretKeyRef": {"name": "s", "key": "token"}}, "hidden"),
        ({"configMapKeyRef": {"name": "c", "key": "key"}}, "value"),
        ({"configMapKeyRef": {"name": "c", "key": "absent", "optional": True}}, None),
        ({"secretKeyRef": {"name": "absent", "key": "k", "optional": True}}, None),
        ({"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}, "1536"),
        ({"resourceFieldRef": {"resource": "requests.cpu"}}, "2"),
        ({"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1m"}}, "1500"),
    ],
)  # fmt: skip
def test_values_from_elsewhere(source: dict[str, Any], expected: str | None) -> None:
    resources = {"limits": {"memory": "1.5Gi"}, "requests": {"cpu": "1500m"}}
    found = environment({"name": "X", "valueFrom": source}, resources=resources)
    assert found.get("X") == expected


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"secretKeyRef": {"name": "s", "key": "absent"}}, "no key absent in secret s"),
        ({"configMapKeyRef": {"name": "absent", "key": "k"}}, "no key k in configMap absent"),
        ({"fieldRef": {"fieldPath": "status.phase"}}, "no field"),
        ({"fieldRef": {"fieldPath": "metadata.labels['a'] "}}, "no field"),
        ({"resourceFieldRef": {"resource": "limits.cpu"}}, "no limits.cpu"),
        ({"other": {}}, "unknown source"),
    ],
)
def test_what_is_not_there_is_an_error(source: dict[str, Any], said: str) -> None:
    with pytest.raises(EmulatorError, match=said):
        environment({"name": "X", "valueFrom": source})


def test_a_number_is_not_a_value() -> None:
    with pytest.raises(EmulatorError, match="not a string: 64"):
        environment({"name": "N", "value": 64})


def test_whole_maps_come_first_and_only_with_names_of_variables() -> None:
    found = environment(
        {"name": "key", "value": "own"},
        envFrom=[{"configMapRef": {"name": "c"}}, {"prefix": "S_", "secretRef": {"name": "s"}},
                 {"secretRef": {"name": "absent", "optional": True}}],
    )  # fmt: skip
    del found["JOB_COMPLETION_INDEX"], found["SEEN"]
    assert found == {"key": "own", "S_token": "hidden", "S_plain": "text"}


@pytest.mark.parametrize(
    ("amount", "divisor", "expected"),
    [
        ("64Mi", "1", 64 << 20),
        ("1G", "1Mi", 954),
        ("1e3", "1k", 1),
        ("3", "0", 3),
        (".5", "1m", 500),
    ],
)
def test_quantities(amount: str, divisor: str, expected: int) -> None:
    assert in_units_of(amount, divisor) == expected


@pytest.mark.parametrize("text", ["", "1K", "1GiB", "one", "1 Gi", "0x1", "1e", "--1"])
def test_what_is_not_a_quantity(text: str) -> None:
    with pytest.raises(EmulatorError, match="not a quantity"):
        in_units_of(text, "1")


@pytest.mark.parametrize("key", ["..", "../x", "a/b", "", "..data", "a b"])
def test_keys_cannot_lead_anywhere(key: str) -> None:
    objects = Objects([{"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {key: "x"}}])
    with pytest.raises(EmulatorError, match="not a key"):
        objects.config_map("c")


def test_binary_data_has_to_be_base64() -> None:
    objects = Objects([
        {"kind": "ConfigMap", "metadata": {"name": "c"}, "binaryData": {"k": "%%%%"}}
    ])  # fmt: skip
    with pytest.raises(EmulatorError, match="not base64"):
        objects.config_map("c")
