"""The C table of the system call filter is the one that Python has."""

from __future__ import annotations

from pathlib import Path

from pyxis_py.plugin.seccomp_header import emit_seccomp_c

HEADER = Path(__file__).resolve().parents[2] / "spank_shim/seccomp_filter.h"


def test_the_header_is_what_make_options_would_write() -> None:
    assert HEADER.read_text() == emit_seccomp_c()
