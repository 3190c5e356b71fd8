from __future__ import annotations

import pytest

from enroot_py.plan import mount_options as options
from enroot_py.plan.mount_options import is_mount_option, mount_flags


@pytest.mark.parametrize("name", sorted(options.SET_FLAGS))
def test_an_option_sets_its_flags(name: str) -> None:
    assert mount_flags([name]) == (options.SET_FLAGS[name], "")


@pytest.mark.parametrize("name", sorted(options.CLEAR_FLAGS))
def test_a_negation_clears_what_stood_before_it(name: str) -> None:
    flag = options.CLEAR_FLAGS[name]
    setter = next(key for key, value in options.SET_FLAGS.items() if value == flag)
    assert mount_flags([setter, name]) == (0, "")
    assert mount_flags([name, setter]) == (flag, "")


@pytest.mark.parametrize("name", sorted(options.NO_FLAGS))
def test_an_option_for_people_or_for_us_is_not_passed_on(name: str) -> None:
    assert mount_flags(["ro", name]) == (options.MS_RDONLY, "")


def test_unknown_options_become_data_in_order() -> None:
    assert mount_flags(["mode=755", "ro", "size=1m", "", "rw"]) == (0, "mode=755,size=1m")


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("bind", True),
        ("x-create=dir", True),
        ("x-move", True),
        ("a,b", True),
        ("devpts", False),
        ("mode=755", False),
        ("none", False),
        ("", False),
    ],
)
def test_a_word_reads_as_options_if_known_or_a_list(word: str, answer: bool) -> None:
    assert is_mount_option(word) is answer


def test_the_tables_do_not_overlap() -> None:
    names = [*options.SET_FLAGS, *options.CLEAR_FLAGS, *options.NO_FLAGS]
    assert len(names) == len(set(names))


HEADER = {
    "MS_RDONLY": 1, "MS_NOSUID": 2, "MS_NODEV": 4, "MS_NOEXEC": 8, "MS_SYNCHRONOUS": 16,
    "MS_REMOUNT": 32, "MS_MANDLOCK": 64, "MS_DIRSYNC": 128, "MS_NOATIME": 1024,
    "MS_NODIRATIME": 2048, "MS_BIND": 4096, "MS_MOVE": 8192, "MS_REC": 16384, "MS_SILENT": 32768,
    "MS_UNBINDABLE": 1 << 17, "MS_PRIVATE": 1 << 18, "MS_SLAVE": 1 << 19, "MS_SHARED": 1 << 20,
    "MS_RELATIME": 1 << 21, "MS_I_VERSION": 1 << 23, "MS_STRICTATIME": 1 << 24,
    "MS_LAZYTIME": 1 << 25,
}  # fmt: skip


@pytest.mark.parametrize("name", HEADER)
def test_flags_have_the_kernels_values(name: str) -> None:
    assert getattr(options, name) == HEADER[name]
