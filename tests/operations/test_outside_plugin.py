"""What a SPANK plugin other than ours needs of a start: the protocol of NVIDIA's Pyxis 0.24, which
runs the command, waits until the container stops itself, and goes in. docs/nvidia-pyxis.md tells
what was seen with that plugin itself.

Source: pyxis_slurmstepd.c: enroot_create_start_config(), enroot_container_start(),
enroot_container_get(), spank_import_container_env(), container_get_cwd().
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hooks.sandbox import Sandbox, sandbox_in

pytestmark = pytest.mark.kernel

_CONFIGURATION = """\
mounts() {{
\techo "{folder} /mnt/given x-create=auto,bind,ro"
}}
hooks() {{
\techo 'exec "$@"' > ${{ENROOT_ROOTFS}}/etc/rc.local
}}
environ() {{
\t[ -n "${{OF_THE_JOB-}}" ] && echo "OF_THE_JOB=${{OF_THE_JOB}}" || :
\t[ -n "${{NOWHERE-}}" ] && echo "NOWHERE=${{NOWHERE}}" || :
}}
"""


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    with sandbox_in(tmp_path) as sandbox:
        yield sandbox


@contextmanager
def stopped(sandbox: Sandbox, tmp_path: Path, **environ: str) -> Iterator[int]:
    """Start a container as the plugin does, up to where it goes in; gives the process."""
    script = tmp_path / "start.conf"
    script.write_text(_CONFIGURATION.format(folder=sandbox.rootfs / "etc"))
    words = ["start", "--conf", str(script), "box", "sh", "-c", "kill -STOP $$ ; exit 0"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(sandbox.programs / "enroot"), *words], cwd="/", env={**sandbox.environ, **environ},
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        process.returncode = None if os.WIFSTOPPED(status) else status
        assert os.WIFSTOPPED(status), (tmp_path / "log").read_text()
        script.unlink()
        yield process.pid
    finally:
        process.send_signal(signal.SIGCONT)
        assert process.wait(60) == 0, (tmp_path / "log").read_text()


def test_the_stopped_process_shows_all_that_a_plugin_looks_at(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    environ = {"OF_THE_JOB": "a  'b' $c", "ENROOT_ROOTFS_WRITABLE": "y"}
    with stopped(sandbox, tmp_path, **environ) as pid:
        proc = Path(f"/proc/{pid}")
        for kind in ("user", "mnt"):
            assert os.readlink(proc / "ns" / kind) != os.readlink(f"/proc/self/ns/{kind}")
        for kind in ("net", "ipc", "uts"):
            assert os.readlink(proc / "ns" / kind) == os.readlink(f"/proc/self/ns/{kind}")
        variables = (proc / "environ").read_bytes().split(b"\0")
        assert b"OF_THE_JOB=a  'b' $c" in variables
        assert not [word for word in variables if word.startswith(b"NOWHERE=")]
        assert (proc / "root/etc/rc.local").read_text() == 'exec "$@"\n'
        assert " /mnt/given ro" in (proc / "mountinfo").read_text()
        assert os.readlink(proc / "cwd").startswith("/")


@pytest.mark.parametrize("kind", ["net", "ipc", "uts"])
def test_namespaces_asked_for_by_variable(sandbox: Sandbox, tmp_path: Path, kind: str) -> None:
    with stopped(sandbox, tmp_path, **{f"ENROOT_UNSHARE_{kind.upper()}": "y"}) as pid:
        assert os.readlink(f"/proc/{pid}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}")


def test_a_stopped_container_is_found_by_its_row(sandbox: Sandbox, tmp_path: Path) -> None:
    with stopped(sandbox, tmp_path) as pid:
        heading, *rows = sandbox.call("enroot", "list", "-f").stdout.splitlines()
        assert heading.split()[:2] == ["NAME", "PID"]
        assert ["box", str(pid)] in [row.split()[:2] for row in rows]
    _, *rows = sandbox.call("enroot", "list", "-f").stdout.splitlines()
    assert ["box"] in [row.split() for row in rows]


def test_an_epilog_has_no_home(sandbox: Sandbox) -> None:
    """slurm_spank_job_epilog() lists and removes without HOME; the site's file names the folder."""
    environ = {name: value for name, value in sandbox.environ.items() if name != "HOME"}
    for words, wanted in ((["list"], "box\n"), (["remove", "-f", "box"], ""), (["list"], "")):
        done = subprocess.run(
            [str(sandbox.programs / "enroot"), *words], cwd="/", env=environ,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, wanted), done.stderr
