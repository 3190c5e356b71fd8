"""Read the few facts of a shared object that injection needs, without running anything.

Only the program headers, the dynamic section, its strings and the notes are read; the files are
up to 100 MB large. Everything is bounds-checked: whatever is not a sound ELF file gives None.

Source: System V gABI chapters 4 and 5; elf.h of the GNU C library.
"""

from __future__ import annotations

import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple

EM_386, EM_ARM, EM_X86_64, EM_AARCH64, EM_PPC64, EM_RISCV = 3, 40, 62, 183, 21, 243

_PT_LOAD, _PT_DYNAMIC, _PT_NOTE = 1, 2, 4
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME = 0, 1, 5, 10, 14
_NT_GNU_ABI_TAG = 1
_MAX_HEADERS = 512
_MAX_DYNAMIC = 1 << 16
_MAX_STRINGS = 1 << 24
_MAX_NOTES = 1 << 20
_MAX_NAME = 4096


class ElfNote(NamedTuple):
    """One note: its owner (without the final NUL), its type and its contents."""

    owner: bytes
    type: int
    payload: bytes


class ElfObject(NamedTuple):
    """What a shared object says about itself.

    Attributes:
        bits: 32 or 64.
        machine: the e_machine number (EM_*).
        soname: "" where it has none.
        needed: the SONAMEs it depends on.
        notes: every note, in file order.
    """

    bits: int
    machine: int
    soname: str
    needed: tuple[str, ...]
    notes: tuple[ElfNote, ...]

    @property
    def abi(self) -> tuple[int, int, int]:
        """The oldest kernel its GNU ABI note asks for; (0, 0, 0) where there is no such note."""
        for note in self.notes:
            if note.owner == b"GNU" and note.type == _NT_GNU_ABI_TAG and len(note.payload) >= 16:
                _, major, minor, patch = struct.unpack_from("<4I", note.payload)
                return (major, minor, patch)
        return (0, 0, 0)


def read_elf(path: str, *, notes: bool = False) -> ElfObject | None:
    """Read a shared object; None for anything that is not one, or that cannot be read.

    Args:
        path: absolute host path; followed if it is a symbolic link.
        notes: read the notes too (most callers don't need them).
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return _Reader(descriptor).read(notes)
    except (OSError, struct.error, _MalformedError):
        return None
    finally:
        os.close(descriptor)


class _MalformedError(Exception):
    """An offset or a size lies outside of what is sound."""


class _Reader:
    """Reads one open file. `order` is the struct prefix of its byte order."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.order = "<"
        self.wide = True

    def read(self, with_notes: bool) -> ElfObject:
        head = self._bytes(0, 64, short=True)
        if head[:4] != b"\x7fELF" or head[4:5] not in (b"\1", b"\2") or head[5:6] not in b"\1\2":
            raise _MalformedError
        self.wide = head[4] == 2
        self.order = "<" if head[5] == 1 else ">"
        (machine,) = struct.unpack_from(self.order + "H", head, 18)
        segments = self._segments(head)
        needed, soname = self._dynamic(segments)
        found = self._notes(segments) if with_notes else ()
        return ElfObject(64 if self.wide else 32, machine, soname, needed, found)

    def _bytes(self, offset: int, size: int, *, short: bool = False) -> bytes:
        if offset < 0 or offset >= 1 << 62:
            raise _MalformedError
        data = os.pread(self.descriptor, size, offset)
        if len(data) < size and not short:
            raise _MalformedError
        return data

    def _segments(self, head: bytes) -> list[tuple[int, int, int, int]]:
        """Return (type, file offset, address, size in the file) of every segment."""
        if self.wide:
            (offset,) = struct.unpack_from(self.order + "Q", head, 32)
            entry, count = struct.unpack_from(self.order + "HH", head, 54)
        else:
            (offset,) = struct.unpack_from(self.order + "I", head, 28)
            entry, count = struct.unpack_from(self.order + "HH", head, 42)
        layout = self.order + ("IIQQQQQQ" if self.wide else "IIIIIIII")
        if count > _MAX_HEADERS or entry < struct.calcsize(layout):
            raise _MalformedError
        table = self._bytes(offset, entry * count)
        segments = []
        for index in range(count):
            fields = struct.unpack_from(layout, table, index * entry)
            if self.wide:
                kind, _, start, address, _, size = fields[:6]
            else:
                kind, start, address, _, size = fields[:5]
            segments.append((kind, start, address, size))
        return segments

    def _dynamic(self, segments: list[tuple[int, int, int, int]]) -> tuple[tuple[str, ...], str]:
        """Return (needed SONAMEs, own SONAME)."""
        layout = struct.Struct(self.order + ("qQ" if self.wide else "iI"))
        needed: list[int] = []
        values: dict[int, int] = {}
        for kind, start, _, size in segments:
            if kind != _PT_DYNAMIC:
                continue
            size = min(size, _MAX_DYNAMIC) // layout.size * layout.size
            for tag, value in layout.iter_unpack(self._bytes(start, size)):
                if tag == _DT_NULL:
                    break
                if tag == _DT_NEEDED:
                    needed.append(value)
                else:
                    values.setdefault(tag, value)
        if _DT_STRTAB not in values:
            return (), ""
        base = self._file_offset(segments, values[_DT_STRTAB])
        limit = min(values.get(_DT_STRSZ, _MAX_NAME), _MAX_STRINGS)
        names = tuple(self._string(base, offset, limit) for offset in needed)
        own = values.get(_DT_SONAME)
        return names, "" if own is None else self._string(base, own, limit)

    def _file_offset(self, segments: list[tuple[int, int, int, int]], address: int) -> int:
        for kind, start, low, size in segments:
            if kind == _PT_LOAD and low <= address < low + size:
                return start + address - low
        raise _MalformedError

    def _string(self, base: int, offset: int, limit: int) -> str:
        if offset >= limit:
            raise _MalformedError
        data = self._bytes(base + offset, min(_MAX_NAME, limit - offset), short=True)
        end = data.find(b"\0")
        if end < 0:
            raise _MalformedError
        return os.fsdecode(data[:end])

    def _notes(self, segments: list[tuple[int, int, int, int]]) -> tuple[ElfNote, ...]:
        found = []
        for kind, start, _, size in segments:
            if kind != _PT_NOTE or size > _MAX_NOTES:
                continue
            data = self._bytes(start, size, short=True)
            place = 0
            while place + 12 <= len(data):
                owner_size, size_, type_ = struct.unpack_from(self.order + "III", data, place)
                begin = place + 12 + ((owner_size + 3) & ~3)
                owner = data[place + 12 : place + 12 + owner_size]
                found.append(ElfNote(owner.rstrip(b"\0"), type_, data[begin : begin + size_]))
                place = begin + ((size_ + 3) & ~3)
        return tuple(found)
