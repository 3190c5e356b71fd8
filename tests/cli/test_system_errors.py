"""System errors that nothing has caught, in words."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from enroot_py.cli.system_errors import explain
from enroot_py.errors import EnrootError, SpaceError, StoreError, UnsupportedError


@pytest.mark.parametrize(
    "error, kind, message, hint",
    [
        (OSError(errno.ENOSPC, "No space left on device", "/x"), SpaceError,
         "No space left on device: /x", "doctor"),
        (OSError(errno.EDQUOT, "Disk quota exceeded", "/x"), SpaceError,
         "Disk quota exceeded: /x", "quota"),
        (PermissionError(errno.EACCES, "Permission denied", b"/x\xff"), StoreError,
         "Permission denied: /x\udcff", "permissions"),
        (OSError(errno.EXDEV, "Invalid cross-device link", "/a", None, "/b"), StoreError,
         "Invalid cross-device link: /a -> /b", ""),
        (OSError(errno.EMFILE, "Too many open files", 7), StoreError,
         "Too many open files: descriptor 7", "ulimit -n"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), UnsupportedError,
         "Cannot allocate memory", "memory limit"),
        (OSError(errno.EAGAIN, None), UnsupportedError,
         "Resource temporarily unavailable", "processes"),
        (OSError(errno.EFBIG, "File too large"), UnsupportedError, "File too large", "ulimit -f"),
        (OSError("odd"), UnsupportedError, "odd", ""),
    ],
)  # fmt: skip
def test_errors_name_the_file_and_the_remedy(
    error: OSError, kind: type[EnrootError], message: str, hint: str
) -> None:
    found = explain(error)
    assert type(found) is kind
    assert str(found) == message
    assert hint in found.hint
    assert bool(hint) == bool(found.hint)


def test_a_removed_current_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = FileNotFoundError(errno.ENOENT, "No such file or directory")
    assert str(explain(missing)) == "No such file or directory"
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert str(explain(missing)) == "The current folder was removed"
