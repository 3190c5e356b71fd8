"""A flag given more than once reaches a node whole, though Slurm passes its last value only."""

from __future__ import annotations

import pytest

from pyxis_py.args import RawValue
from pyxis_py.options import OPTIONS, find_option
from pyxis_py.protocol.request import expand_repeated

MOUNTS, ENV = find_option("container-mounts"), find_option("container-env")
assert MOUNTS is not None and ENV is not None
KEPT = {f"SLURM_PYXIS_REPEATED_{OPTIONS.index(MOUNTS)}": "/a:/a\x1e/b:/b"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["/b:/b"], ["/a:/a", "/b:/b"]),
        # At the command line all are there already.
        (["/a:/a", "/b:/b"], ["/a:/a", "/b:/b"]),
        # The variable is that of another command line.
        (["/c:/c"], ["/c:/c"]),
        ([], []),
    ],
)
def test_values_that_slurm_drops_are_put_back(given: list[str], expected: list[str]) -> None:
    assert MOUNTS is not None
    values = [RawValue(MOUNTS, text) for text in given]
    assert [value.argument for value in expand_repeated(values, KEPT)] == expected


def test_other_flags_stay_as_they_are() -> None:
    assert MOUNTS is not None and ENV is not None
    values = [RawValue(ENV, "A"), RawValue(MOUNTS, "/b:/b"), RawValue(ENV, "B")]
    expanded = expand_repeated(values, KEPT)
    assert [value.argument for value in expanded] == ["A", "/a:/a", "/b:/b", "B"]
