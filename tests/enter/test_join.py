from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from enroot_py.enter.join import Target, parse_process_environ
from enroot_py.errors import EnrootError, NotFoundError
from enroot_py.linux import processes
from tests.fakes import RecordingKernel


def test_the_environment_of_a_process_is_read_exactly() -> None:
    data = b"A=1\0B=x\ny=z\0C=\0D=\xff\0bad name=1\0nothing\0=x\0A=2\0\0"
    assert parse_process_environ(data) == {"A": "2", "B": "x\ny=z", "C": "", "D": "\udcff"}


def test_a_process_that_is_not_there_is_named() -> None:
    with pytest.raises(NotFoundError, match="4194304"):
        Target(4194304)


def test_namespaces_that_this_process_is_in_already_are_not_joined() -> None:
    kernel = RecordingKernel()
    before = os.getcwd()
    target = Target(os.getpid())
    target.join(kernel)
    target.enter_folder()
    assert kernel.calls == []
    assert os.getcwd() == before
    assert target.environ["PATH"] == parse_process_environ(
        open("/proc/self/environ", "rb").read()
    ).get("PATH")


@pytest.mark.kernel
def test_somebody_elses_process_is_refused_with_a_reason() -> None:
    with pytest.raises(EnrootError) as caught:
        Target(1)
    assert "1" in str(caught.value)
    assert "only the user who started a container" in caught.value.hint


def test_a_process_that_executes_a_program_just_now_has_its_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of it /proc knows none, for a tenth of the time of this chain."""
    monkeypatch.setattr(processes, "EXEC_LIMIT", 60)  # where others have the processors
    chain = tmp_path / "chain"
    chain.write_text('exec sh "$0"\n')
    before = set(os.listdir("/proc/self/fd"))
    with subprocess.Popen(["sh", chain], env={"ITS": "1", "PATH": "/usr/bin:/bin"}) as process:
        try:
            for _ in range(300):
                assert Target(process.pid).environ.get("ITS") == "1"
                for name in set(os.listdir("/proc/self/fd")) - before:
                    with suppress(OSError):  # the listing's own
                        os.close(int(name))
        finally:
            process.kill()
