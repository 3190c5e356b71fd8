"""Whether slurmd has the plugin."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pyxis_py.plugin.node_daemon import Daemon, _libraries, _start_time, note_on

LIBRARY = "/usr/local/lib/slurm/spank_pyxis.so"


@pytest.mark.parametrize(
    ("libraries", "started", "said"),
    [
        (frozenset({"/usr/lib/libc.so.6", LIBRARY}), 100.0, ""),
        (frozenset({"/usr/lib/libc.so.6"}), 300.0, "runs without the plugin: restart it"),
        (None, 100.0, "started before"),
        (None, 300.0, ""),
    ],
)
def test_what_is_said_of_a_slurmd(
    tmp_path: Path, libraries: frozenset[str] | None, started: float, said: str
) -> None:
    plugstack = tmp_path / "plugstack.conf"
    plugstack.touch()
    os.utime(plugstack, (200.0, 200.0))
    note = note_on(Daemon(7, started, libraries), LIBRARY, plugstack)
    assert said in note
    assert bool(note) == bool(said)
    if libraries is None:
        assert note_on(Daemon(7, started, None), LIBRARY, tmp_path / "nosuch") == ""


def test_a_library_behind_a_link_counts(tmp_path: Path) -> None:
    (tmp_path / "real.so").touch()
    (tmp_path / "link.so").symlink_to("real.so")
    daemon = Daemon(7, 0.0, frozenset({str(tmp_path / "real.so")}))
    assert note_on(daemon, str(tmp_path / "link.so"), tmp_path / "nosuch") == ""


def test_this_process_is_read_as_a_slurmd_would_be() -> None:
    libraries = _libraries(os.getpid())
    assert libraries is not None
    assert any("/libc" in path for path in libraries)
    assert time.time() - 24 * 3600 < _start_time(os.getpid()) <= time.time() + 1
    assert _start_time(2**22 + 1) == 0.0
    assert _libraries(2**22 + 1) is None
