"""NVIDIA's hooks: recognised by program and subcommand, whatever the style of the options."""

from __future__ import annotations

import pytest

from enroot_py.gpu.cdi.nvidia_hooks import subcommand, understand
from enroot_py.gpu.cdi.records import HookEdit

HOOK = "/usr/bin/nvidia-cdi-hook"


def hook(*args: str, path: str = HOOK) -> HookEdit:
    return HookEdit("createContainer", path, (path.rpartition("/")[2], *args))


@pytest.mark.parametrize(
    ("edit", "command", "options"),
    [
        (hook("update-ldcache", "--folder", "/a"), "update-ldcache", (("folder", "/a"),)),
        (hook("update-ldcache", "--folder=/a"), "update-ldcache", (("folder", "/a"),)),
        (hook("update-ldcache", "-folder", "/a"), "update-ldcache", (("folder", "/a"),)),
        (hook("hook", "chmod", "--mode", "755", path="/x/nvidia-ctk"), "chmod", (("mode", "755"),)),
        (hook("--debug", "update-ldcache", "--folder=/a"), "update-ldcache", (("folder", "/a"),)),
        (hook("--log-level", "debug", "chmod"), "chmod", ()),
        (hook("create-symlinks", "--link", "a::/b", "--link=c::/d"), "create-symlinks",
         (("link", "a::/b"), ("link", "c::/d"))),
        (hook("new-command"), "", ()),
        (hook(), "", ()),
        (hook("update-ldcache", path="/usr/bin/other"), "", ()),
    ],
)  # fmt: skip
def test_recognition(edit: HookEdit, command: str, options: tuple[tuple[str, str], ...]) -> None:
    assert subcommand(edit) == (command, options)


def test_meaning() -> None:
    other = hook("x", path="/opt/hook")
    meaning = understand(
        (
            hook("create-symlinks", "--link", "libcuda.so.1::/usr/lib/libcuda.so", "--link", "bad"),
            hook(
                "enable-cuda-compat",
                "--host-driver-version=580.95.05",
                "--host-cuda-version",
                "13.0",
                "--cuda-compat-container-root=/opt/compat",
            ),
            hook("update-ldcache", "--folder", "/usr/lib64/", "--folder", "/usr/lib64/vdpau"),
            hook("disable-device-node-modification"),
            hook("update-application-profile"),
            hook("chmod", "--mode", "755", "--path", "/dev/dri"),
            other,
        )  # fmt: skip
    )
    assert meaning.links == (("libcuda.so.1", "/usr/lib/libcuda.so"),)
    assert meaning.folders == ("/usr/lib64", "/usr/lib64/vdpau")
    assert meaning.compat and meaning.compat_driver == "580.95.05"
    assert meaning.compat_cuda == "13.0" and meaning.compat_folder == "/opt/compat"
    assert meaning.no_modification and meaning.profile
    assert meaning.unknown == (other,)
    assert "bad" in meaning.notes[0]
