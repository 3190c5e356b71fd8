"""An administrator who has only what pip installed: build, install, a step, uninstall."""

from __future__ import annotations

import pytest

from pyxis_py.plugin.build import LIBRARY
from tests.pyxis.plugin.wheel import build_wheel, install_wheel
from tests.slurm.rig import Rig

pytestmark = pytest.mark.slurm

_PLACE = f"/usr/local/lib/slurm/{LIBRARY}"


def test_a_node_gets_the_plugin_from_a_wheel(rig: Rig) -> None:
    """With the library where `install` puts it by itself, on a node that sees its own there."""
    programs = install_wheel(build_wheel(rig.base), rig.base / "from-wheel")
    plugstack = rig.base / "plugstack.conf"
    over = f"{rig.base}/overlay"
    rig.as_root(1, "mkdir", f"{over}/lib", f"{over}/lib-work")
    layers = f"lowerdir=/usr/local/lib,upperdir={over}/lib,workdir={over}/lib-work"
    rig.as_root(1, "mount", "-t", "overlay", "-o", layers, "lib", "/usr/local/lib")
    try:
        with rig.plugstack("# the site's\n"):
            words = (f"runtime_path={rig.base}/local/pyxis", "container_scope=job")
            said = administer(rig, str(programs / "pyxis"), "install", *words)
            line = f"required {_PLACE} {' '.join(words)}"
            assert said.splitlines()[0] == f"{plugstack}: {line}"
            assert "srun shows the flags  yes" in said
            assert "fault:" not in said
            assert line in plugstack.read_text().splitlines()
            assert rig.as_root(1, "stat", "-c", "%a %u", _PLACE).stdout == "755 0\n"
            keeper = f"{rig.base}/from-wheel/lib/python[^/]*/site-packages/pyxis_py/keeper.py"
            rig.as_root(1, "grep", "-q", keeper, _PLACE)
            image = f"--container-image={rig.shared}/image.sqsh"
            assert on_node(rig, "srun", "-w", "node1", image, "cat", "/etc/mark") == "image\n"
            rig.wait_until_idle()  # its epilog needs the line
            # Once more, as for a new release: there is one line, and the library is another file.
            before = rig.as_root(1, "stat", "-c", "%i", _PLACE).stdout
            administer(rig, str(programs / "pyxis"), "install", "--optional", words[0])
            assert rig.as_root(1, "stat", "-c", "%i", _PLACE).stdout != before
            assert plugstack.read_text().count(LIBRARY) == 1
            assert f"optional {_PLACE} {words[0]}\n" in plugstack.read_text()
            assert on_node(rig, "srun", "-w", "node1", image, "cat", "/etc/mark") == "image\n"
            rig.wait_until_idle()
            administer(rig, str(programs / "pyxis"), "uninstall")
            assert plugstack.read_text() == "# the site's\n"
            rig.as_root(1, "test", "-f", _PLACE)
    finally:
        rig.as_root(1, "umount", "/usr/local/lib")
    assert rig.remains() == []


def administer(rig: Rig, *words: str) -> str:
    program, *rest = words
    conf = f"SLURM_CONF={rig.base}/slurm.conf"
    return rig.as_root(1, "env", conf, program, "plugin", *rest).stdout


def on_node(rig: Rig, *words: str) -> str:
    """Run a command as the user where the administrator has installed the plugin."""
    uid, gid = rig.user.pw_uid, rig.user.pw_gid
    user = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--init-groups"]
    environ = [f"{name}={value}" for name, value in rig.environ().items()]
    return rig.as_root(1, *user, "env", "-i", "-C", str(rig.shared), *environ, *words).stdout
