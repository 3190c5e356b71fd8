"""The site profile: the template, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from enroot_py import NotFoundError, SettingsError
from pyxis_py.kubernetes.profile.reader import parse_profile, read_profile
from pyxis_py.kubernetes.profile.site import NodeShape, Profile
from pyxis_py.kubernetes.profile.template import TEMPLATE
from pyxis_py.kubernetes.shapes.language import ListOf, MapOf, Record, Shape
from pyxis_py.kubernetes.shapes.profile_shape import PROFILE
from tests.kubernetes.samples import SCRIPT, render


def test_the_template_is_a_profile_that_renders_the_training_job() -> None:
    profile = parse_profile(TEMPLATE, origin="template")
    assert profile.partitions["h100"].node == NodeShape(176, 1843200, 8)
    assert profile.partitions["h100"].max_time == 604800
    assert render(SCRIPT, profile=profile).manifests[-1]["kind"] == "JobSet"


def test_the_template_shows_every_section_and_nearly_every_field() -> None:
    missing = {name for name in _names(PROFILE) if name not in TEMPLATE}
    assert missing <= {"deviceClass", "operator", "effect", "value", "tolerationSeconds", "key",
                       "fsType", "privileged"}  # fmt: skip


def _names(shape: Shape) -> set[str]:
    if isinstance(shape, Record):
        return set(shape.fields).union(*(_names(below) for below in shape.fields.values()))
    if isinstance(shape, ListOf):
        return _names(shape.item)
    return _names(shape.value) if isinstance(shape, MapOf) else set()


def test_an_empty_profile_has_the_defaults() -> None:
    assert parse_profile("version: 1", origin="x") == Profile(strict=True)


@pytest.mark.parametrize(("text", "message"), [
    ("", "x: (document): not an object"),
    ("[]", "(document): not an object"),
    ("{", "not YAML"),
    ("!!python/object:os.system {}", "not YAML"),
    ("{}", "version: missing"),
    ("version: 2", "version: not between 1 and 1"),
    ("{version: 1, clusters: {}}", "clusters: unknown field"),
    ("{version: 1, cluster: {target: kube}}", "cluster.target: 'kube' is none of kueue,"),
    ("{version: 1, cluster: {partition: x}}", "cluster.partition: there is no partition 'x'"),
    ("{version: 1, partitions: {p: {}}}", "partitions[p].queue: missing"),
    ("{version: 1, partitions: {p: {queue: Q}}}", "partitions[p].queue: not the name"),
    ("{version: 1, partitions: {p: {queue: q, node: {cpus: 0, memory: 1Gi}}}}", "cpus: not"),
    ("{version: 1, partitions: {p: {queue: q, node: {cpus: 1, memory: 1 G}}}}", "not a quantity"),
    ("{version: 1, partitions: {p: {queue: q, maxTime: soon}}}", "not a time limit"),
    ("{version: 1, partitions: {p: {queue: q, topology: {levels: []}}}}", "fewer than 1 items"),
    ("{version: 1, partitions: {p: {queue: q, topology: {levels: [a], segment: b}}}}",
     "topology.segment: 'b' is none of the levels"),
    ("{version: 1, partitions: {p: {queue: q, nodeSelector: {a: yes}}}}", "not a string: True"),
    ("{version: 1, qos: {high: {graceSeconds: -1}}}", "graceSeconds: not between 0"),
    ("{version: 1, mounts: [{path: /a, name: a}]}", "exactly one of pvc, nfs,"),
    ("{version: 1, mounts: [{path: /a, name: a, pvc: x, hostPath: /y}]}", "exactly one of"),
    ("{version: 1, mounts: [{path: a, name: a, pvc: x}]}", "mounts[0].path: not an absolute path"),
    ("{version: 1, mounts: [{path: /a, name: a, pvc: x}, {path: /a, name: b, pvc: y}]}",
     "mounts[1]: a second one with path /a"),
    ("{version: 1, mounts: [{path: /a, name: shm, pvc: x}]}", "shm is taken by every pod"),
    ("{version: 1, mounts: [{path: /a, name: host-0, pvc: x}]}", "host-0 is taken by every pod"),
    ("{version: 1, mounts: [{path: /a, name: a, pvc: x}, {path: /b, name: a, pvc: y}]}",
     "mounts[1].name: a has another source already"),
    ("{version: 1, gres: {nic: {}}}", "gres.nic: neither resource nor deviceClass"),
    ("{version: 1, fabric: {kind: magic}}", "fabric.kind: 'magic' is none of"),
    ("{version: 1, fabric: {kind: shared, resources: {rdma/a: 1}}}", "not a string: 1"),
    ("{version: 1, features: {x: {label: a, values: []}}}", "fewer than 1 items"),
    ("{version: 1, accounts: {x: {namespace: A_b}}}", "namespace: not a DNS label"),
    ("{version: 1, ? [1] : 2}", "not YAML"),
    ("{version: 1, 5: {}}", "5: unknown field"),
    ("version: 1\nmounts: []\nmounts: []\n", "not YAML: mounts is there twice"),
    ("{version: 1, partitions: {p: {queue: q, queue: r}}}", "queue is there twice"),
    ("{version: 1, mounts: [{<<: {pvc: x}, name: a, path: /a, name: b}]}", "name is there twice"),
    ("{version: 1, qos: {=: {}, =: {}}}", "= is there twice"),
    ("{version: 1, qos: {=: {}}}", "qos: not a valid key: '='"),
    ("&a {? *a : 1}", "not YAML"),
])  # fmt: skip
def test_what_is_wrong_is_named_with_its_place(text: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_profile(text, origin="x")
    assert message in str(caught.value)
    assert str(caught.value).startswith("x: ")


@pytest.mark.parametrize("text", [
    "mounts:\n- &m {path: /data, name: d, pvc: dd}\n- {<<: *m, path: /scratch, name: s}\n",
    # Merged before the section that brings it, which merges itself, is looked at.
    ("partitions: {p: {queue: q, topology: &t {<<: {levels: [a]}, levels: [b]}}, "
     "r: {queue: q, topology: {<<: *t, switches: b}}}\n"),
    "accounts: {a: &a {namespace: x}, b: {<<: [*a, {namespace: y}]}, c: {<<: *a, <<: *a}}\n",
])  # fmt: skip
def test_merge_keys_are_taken(text: str) -> None:
    parse_profile(f"version: 1\n{text}", origin="x")


def test_a_key_wins_over_one_that_is_merged() -> None:
    text = "version: 1\nmounts:\n- &m {path: /data, name: d, pvc: dd}\n- {<<: *m, path: /s}\n"
    assert [rule.path for rule in parse_profile(text, origin="x").mounts] == ["/data", "/s"]


def test_a_time_that_yaml_takes_for_a_number() -> None:
    text = "version: 1\npartitions: {p: {queue: q, maxTime: 24:00:00}}"
    with pytest.raises(SettingsError, match=r"p\]\.maxTime: not a string: 86400") as caught:
        parse_profile(text, origin="x")
    assert "quotes make a string" in caught.value.hint
    quoted = parse_profile(text.replace("24:00:00", "'24:00:00'"), origin="x")
    assert quoted.partitions["p"].max_time == 86400


def test_every_mistake_is_reported_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        parse_profile("{version: 1, a: 1, b: 2}", origin="x")
    assert len(str(caught.value).splitlines()) == 2


def test_a_profile_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="Cannot read the profile"):
        read_profile(str(tmp_path / "none.yaml"))
    (tmp_path / "latin").write_bytes(b"version: 1 # \xe9")
    with pytest.raises(SettingsError, match="not UTF-8"):
        read_profile(str(tmp_path / "latin"))
