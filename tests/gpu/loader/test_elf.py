"""The ELF reader: right about sound files, silent about everything else."""

from __future__ import annotations

import os
import random
import struct
import sys
from pathlib import Path

import pytest

from enroot_py.gpu.loader.elf import EM_386, EM_X86_64, read_elf
from tests.roots.shared_objects import compat_note, write_stub


def test_a_library(tmp_path: Path) -> None:
    path = tmp_path / "liba.so"
    write_stub(path, "liba.so.1", needed=("libc.so.6", "libm.so.6"))
    elf = read_elf(str(path))
    assert elf is not None
    assert (elf.bits, elf.machine, elf.soname) == (64, EM_X86_64, "liba.so.1")
    assert elf.needed == ("libc.so.6", "libm.so.6")
    assert elf.notes == () and elf.abi == (0, 0, 0)


def test_a_32_bit_library(tmp_path: Path) -> None:
    write_stub(tmp_path / "liba.so", "liba.so.1", machine="i386")
    elf = read_elf(str(tmp_path / "liba.so"))
    assert elf is not None
    assert (elf.bits, elf.machine, elf.soname) == (32, EM_386, "liba.so.1")


def test_a_library_without_a_soname(tmp_path: Path) -> None:
    write_stub(tmp_path / "liba.so", "")
    elf = read_elf(str(tmp_path / "liba.so"))
    assert elf is not None and elf.soname == ""


def test_notes_are_read_when_asked_for(tmp_path: Path) -> None:
    write_stub(tmp_path / "liba.so", "liba.so.1", note=compat_note('{"driver":[535]}'))
    elf = read_elf(str(tmp_path / "liba.so"), notes=True)
    assert elf is not None
    assert [(note.owner, note.type) for note in elf.notes] == [(b"NVIDIA Corporation", 1)]
    assert elf.notes[0].payload == b'{"driver":[535]}'


def test_this_interpreter_states_its_abi() -> None:
    elf = read_elf(os.path.realpath(sys.executable), notes=True)
    assert elf is not None
    assert elf.abi >= (2, 6, 0)


@pytest.mark.parametrize(
    "content", [b"", b"\x7fELF", b"text\n" * 40, b"\x7fELF\x03\x01" + b"\0" * 60]
)
def test_other_files_give_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert read_elf(str(path)) is None


def test_missing_files_folders_and_pipes_give_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("missing", "pipe", "."):
        assert read_elf(str(tmp_path / name)) is None


@pytest.mark.parametrize("offset", [1 << 20, 1 << 63])
def test_a_name_beyond_the_strings_is_nothing(tmp_path: Path, offset: int) -> None:
    path = tmp_path / "liba.so"
    write_stub(path, "liba.so.1")
    data = path.read_bytes()
    place = data.index(struct.pack("<qQ", 14, 1))
    path.write_bytes(data[:place] + struct.pack("<qQ", 14, offset) + data[place + 16 :])
    assert read_elf(str(path)) is None


def test_damaged_files_never_raise(tmp_path: Path) -> None:
    path = tmp_path / "liba.so"
    write_stub(path, "liba.so.1", needed=("libc.so.6",), note=compat_note("{}"))
    data = path.read_bytes()
    chance = random.Random(7)
    nothing = 0
    for _ in range(2_000):
        broken = bytearray(data)
        for _ in range(chance.randrange(1, 4)):
            broken[chance.randrange(400)] = chance.randrange(256)
        path.write_bytes(bytes(broken[: chance.randrange(1, len(broken) + 1)]))
        nothing += read_elf(str(path), notes=True) is None
    assert nothing > 0
