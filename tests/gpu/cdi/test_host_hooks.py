"""Hooks that are executed: what they get, and what their failures do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from enroot_py.errors import HookError
from enroot_py.gpu.cdi.host_hooks import run_hooks
from enroot_py.gpu.injection import HostHook


def script(tmp_path: Path, text: str) -> str:
    path = tmp_path / "hook"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def run(tmp_path: Path, hook: HostHook) -> None:
    (tmp_path / "work").mkdir(exist_ok=True)
    run_hooks([hook], rootfs="/the/rootfs", workdir=str(tmp_path / "work"), pid=77)


def test_state_arguments_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD_TEST", "evil")
    out = tmp_path / "out"
    path = script(
        tmp_path, f'cat > {out}.state; echo "$0 $@" > {out}.args; /usr/bin/env > {out}.env'
    )
    run(tmp_path, HostHook("createContainer", path, ("name", "a b", "c"), ("PATH=/bin", "K=v=w")))
    state = json.loads(Path(f"{out}.state").read_text())
    assert (state["pid"], state["status"]) == (77, "creating")
    config = json.loads(Path(state["bundle"], "config.json").read_text())
    assert config["root"] == {"path": "/the/rootfs"}
    assert Path(f"{out}.args").read_text().split(" ", 1)[1] == "a b c\n"
    environ = Path(f"{out}.env").read_text()
    assert "K=v=w" in environ and "LD_PRELOAD_TEST" not in environ


def test_a_failure_is_named_with_status_and_last_line(tmp_path: Path) -> None:
    path = script(tmp_path, "echo first >&2; echo last words >&2; exit 7")
    with pytest.raises(HookError, match="status 7: last words") as caught:
        run(tmp_path, HostHook("createContainer", path, ("hook",)))
    assert caught.value.status == 7 and caught.value.path == path


def test_a_hook_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    path = script(tmp_path, "exec sleep 100")
    with pytest.raises(HookError, match="longer than its 1 s"):
        run(tmp_path, HostHook("createContainer", path, ("hook",), ("PATH=/bin",), 1))


def test_a_missing_hook_is_named(tmp_path: Path) -> None:
    with pytest.raises(HookError, match="No such file"):
        run(tmp_path, HostHook("createContainer", str(tmp_path / "missing"), ("hook",)))
