"""Whether this runs in a pod."""

from __future__ import annotations

from pathlib import Path

from pyxis_py.kubernetes.access.pod_account import pod_namespace


def test_the_namespace_of_a_pod(tmp_path: Path) -> None:
    (tmp_path / "namespace").write_text("training\n")
    assert pod_namespace(str(tmp_path / "namespace")) == "training"
    assert pod_namespace(str(tmp_path / "none")) == ""
