"""Write small shared objects, byte by byte: no compiler needed, any machine, loadable by glibc.

A stub has a SONAME, dependencies, functions of a few instructions each, and notes if asked for.
"""

from __future__ import annotations

import struct
from pathlib import Path

MACHINES = {"x86_64": (62, 64), "i386": (3, 32), "aarch64": (183, 64)}
_PAGE = 0x1000


def returns(value: int, machine: str = "x86_64") -> bytes:
    """Code of a function that returns `value`."""
    if machine == "aarch64":
        return struct.pack("<II", 0x52800000 | (value & 0xFFFF) << 5, 0xD65F03C0)
    return b"\xb8" + struct.pack("<I", value) + b"\xc3"


def stores(value: int, *, argument: int = 2) -> bytes:
    """Code (x86-64) of a function that stores an int where its argument points; returns 0."""
    register = {1: b"\xc7\x07", 2: b"\xc7\x06", 3: b"\xc7\x02"}[argument]
    return register + struct.pack("<I", value) + b"\x31\xc0\xc3"


def stores_text(text: str) -> bytes:
    """Code (x86-64) of a function that copies `text` where its second argument points."""
    raw = text.encode() + b"\0"
    copied = b"".join(b"\xc6\x46" + bytes([place, byte]) for place, byte in enumerate(raw))
    return copied + b"\x31\xc0\xc3"


HANGS = b"\xeb\xfe"
"""Code (x86) of a function that never returns."""


def compat_note(payload: str) -> bytes:
    """The note by which NVIDIA's forward-compatible libcuda describes itself."""
    owner = b"NVIDIA Corporation\0"
    body = payload.encode()
    return struct.pack("<III", len(owner), len(body), 1) + _padded(owner) + _padded(body)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def write_stub(
    path: Path,
    soname: str,
    *,
    machine: str = "x86_64",
    functions: dict[str, bytes] | None = None,
    needed: tuple[str, ...] = (),
    note: bytes = b"",
    marker: str = "",
) -> None:
    """Write a shared object; `marker` is text that can be found in it."""
    number, bits = MACHINES[machine]
    functions = functions if functions is not None else {"cuInit": returns(42, machine)}
    strings = b"\0"
    places: dict[str, int] = {}
    for text in (soname, *needed, *functions):
        places[text] = len(strings)
        strings += text.encode() + b"\0"
    wide = bits == 64
    head, entry = (64, 56) if wide else (52, 32)
    count = 5 if note else 4
    offset = head + entry * count
    symbol_size = 24 if wide else 16
    symbols_at = offset = offset + (-offset % 8)
    names = list(functions)
    strings_at = symbols_at + symbol_size * (len(names) + 1)
    hash_at = strings_at + len(strings) + (-(strings_at + len(strings)) % 8)
    chain = [0, *[n + 2 if n + 1 < len(names) else 0 for n in range(len(names))]]
    table = struct.pack(f"<{3 + len(chain)}I", 1, len(chain), 1 if names else 0, *chain)
    note_at = hash_at + len(table) + (-(hash_at + len(table)) % 8)
    code_at = note_at + len(note) + (-(note_at + len(note)) % 16)
    code, addresses = b"", {}
    for name in names:
        addresses[name] = code_at + len(code)
        code += functions[name] + b"\x90" * (-len(functions[name]) % 16)
    text_end = code_at + len(code)
    dynamic_at = (text_end + _PAGE - 1) // _PAGE * _PAGE
    tags = [(14, places[soname])] if soname else []
    tags += [(1, places[name]) for name in needed]
    tags += [(4, hash_at), (5, strings_at), (6, symbols_at), (10, len(strings)), (11, symbol_size)]
    dynamic = b"".join(struct.pack("<qQ" if wide else "<iI", *tag) for tag in (*tags, (0, 0)))

    def segment(kind: int, flags: int, at: int, size: int, align: int) -> bytes:
        if wide:
            return struct.pack("<IIQQQQQQ", kind, flags, at, at, at, size, size, align)
        return struct.pack("<IIIIIIII", kind, at, at, at, size, size, flags, align)

    segments = segment(1, 5, 0, text_end, _PAGE)
    segments += segment(1, 6, dynamic_at, len(dynamic), _PAGE)
    segments += segment(2, 6, dynamic_at, len(dynamic), 8)
    segments += segment(0x6474E551, 6, 0, 0, 16)  # a stack that is not executable
    if note:
        segments += segment(4, 4, note_at, len(note), 4)
    ident = b"\x7fELF" + bytes([2 if wide else 1, 1, 1, 0]) + b"\0" * 8
    layout = "<HHIQQQIHHHHHH" if wide else "<HHIIIIIHHHHHH"
    elf = ident + struct.pack(layout, 3, number, 1, 0, head, 0, 0, head, entry, count, 0, 0, 0)
    image = bytearray(dynamic_at)
    image[: len(elf)] = elf
    image[head : head + len(segments)] = segments
    for n, name in enumerate(names):
        at = symbols_at + symbol_size * (n + 1)
        if wide:
            symbol = struct.pack("<IBBHQQ", places[name], 0x12, 0, 1, addresses[name], 16)
        else:
            symbol = struct.pack("<IIIBBH", places[name], addresses[name], 16, 0x12, 0, 1)
        image[at : at + symbol_size] = symbol
    for at, part in ((strings_at, strings), (hash_at, table), (note_at, note), (code_at, code)):
        image[at : at + len(part)] = part
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(image) + dynamic + marker.encode())
    path.chmod(0o755)
