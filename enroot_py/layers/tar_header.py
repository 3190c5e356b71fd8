"""The records of a tar archive: numbers, checksums, PAX headers, maps of sparse files.

Where two sources disagree about a member, one rule holds: a PAX header wins over the ustar header.
A member that has a GNU long name and a different PAX path is refused, because programs differ on
which counts.

Pure: bytes in, values out.

Source: POSIX.1-2017 XCU pax (ustar and pax formats); GNU tar manual, appendix "Tar Internals"
(old GNU headers, sparse formats 0.0, 0.1 and 1.0).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from urllib.parse import unquote_to_bytes
from zlib import adler32

from enroot_py.errors import LayerError
from enroot_py.layers.entry import OVERLAY_XATTRS, quoted

BLOCK = 512
"""Bytes of a header, and the unit that members are padded to."""

MAX_HEADER_BYTES = 1 << 20
"""Most bytes of a PAX header or a GNU long name."""

MAX_EXTENTS = 1 << 20
"""Most extents of one sparse file."""

_MAX_INT64 = (1 << 63) - 1
_MAX_ID = (1 << 32) - 1
_CHECKSUM = slice(148, 156)


def has_valid_checksum(header: bytes) -> bool:
    """Tell whether a block is a tar header.

    The checksum is the sum of the block's bytes, its own field taken as spaces; some old programs
    summed signed bytes.
    """
    if len(header) != BLOCK:
        return False
    field = header[_CHECKSUM].strip(b" \0")
    try:
        expected = int(field, 8)
    except ValueError:
        return False
    # The low half of an Adler-32 is 1 + the sum of the bytes modulo 65521, and 256 bytes sum up to
    # less than that. This is a tenth of the time of sum(), for every member of every layer.
    total = (adler32(header[:256]) & 0xFFFF) + (adler32(header[256:]) & 0xFFFF) - 2
    total += 256 - sum(header[_CHECKSUM])
    if total == expected:
        return True
    return total - 256 * sum(byte > 127 for byte in header) == expected


def parse_number(field: bytes, what: str) -> int:
    """Parse a number of a header: octal digits, or big-endian binary if the first bit is set.

    Raises:
        LayerError: naming `what`, if it is neither, or does not fit in 64 bits with sign.
    """
    if field and field[0] & 0x80:
        value = int.from_bytes(field, "big", signed=True)
        if field[0] == 0x80:
            value = int.from_bytes(field[1:], "big")
        elif field[0] != 0xFF:
            raise LayerError(f"{what} is malformed: {field!r}")
    else:
        # Leading spaces and anything that follows the first NUL are found in archives of old.
        digits = field.partition(b"\0")[0].strip(b" ")
        if not digits:
            return 0
        if not digits.isdigit():
            raise LayerError(f"{what} is malformed: {field!r}")
        value = parse_octal(digits, what)
    if not -_MAX_INT64 <= value <= _MAX_INT64:
        raise LayerError(f"{what} is out of range: {value}")
    return value


def parse_octal(digits: bytes, what: str) -> int:
    """Parse digits, of which none is 8 or 9; raises LayerError naming `what` if one is."""
    try:
        return int(digits, 8)
    except ValueError:
        raise LayerError(f"{what} is malformed: {digits!r}") from None


def parse_owner(field: bytes) -> tuple[int, int, int]:
    """Parse the three adjacent fields mode, uid and gid of a header; returns them in this order.

    Raises:
        LayerError: one is malformed, or an id is not within 0 and 2^32-1.
    """
    mode = parse_number(field[:8], "mode")
    return (
        mode & 0o7777,
        check_id(parse_number(field[8:16], "uid")),
        check_id(parse_number(field[16:24], "gid")),
    )


def check_id(value: int) -> int:
    """Return `value` if it can be a user or group id; raises LayerError otherwise."""
    if not 0 <= value <= _MAX_ID:
        raise LayerError(f"a user or group id is out of range: {value}")
    return value


def parse_pax(data: bytes, into: dict[bytes, bytes]) -> None:
    """Parse the records of a PAX header: `LENGTH KEY=VALUE\\n`, LENGTH counting all of it.

    Later records replace earlier ones, and an empty value takes back what a global header said.
    The repeated records of a version 0.0 sparse map are gathered under `GNU.sparse.map`.

    Raises:
        LayerError: a record is malformed.
    """
    sparse: list[bytes] = []
    position = 0
    while position < len(data):
        space = data.find(b" ", position, position + 20)
        digits = data[position:space] if space > 0 else b""
        end = position + int(digits) if digits.isdigit() else 0
        equals = data.find(b"=", space, end)
        if equals <= space + 1 or end > len(data) or data[end - 1] != 10:
            raise LayerError(f"a PAX record is malformed: {data[position : position + 60]!r}")
        key, value = data[space + 1 : equals], data[equals + 1 : end - 1]
        if key in (b"GNU.sparse.offset", b"GNU.sparse.numbytes"):
            if len(sparse) % 2 != (key == b"GNU.sparse.numbytes"):
                raise LayerError("a sparse map is malformed: offsets and sizes do not alternate")
            sparse.append(value)
        elif value:
            into[key] = value
        else:
            into.pop(key, None)
        position = end
    if sparse:
        into[b"GNU.sparse.map"] = b",".join(sparse)


def parse_decimal(value: bytes, what: str) -> int:
    """Parse a PAX number, of which the fraction is dropped, downwards as `floor` does.

    Raises:
        LayerError: naming `what`, if it is malformed or does not fit in 64 bits with sign.
    """
    whole, dot, fraction = value.partition(b".")
    negative = whole.startswith(b"-")
    digits = whole[negative:]
    if not digits.isdigit() or len(digits) > 19 or (dot and not fraction.isdigit() and fraction):
        raise LayerError(f"{what} is malformed: {value[:60]!r}")
    number = int(digits)
    if negative:
        number = -number - (1 if fraction.strip(b"0") else 0)
    if not -_MAX_INT64 <= number <= _MAX_INT64:
        raise LayerError(f"{what} is out of range: {value!r}")
    return number


def parse_xattrs(pax: dict[bytes, bytes]) -> dict[bytes, bytes] | None:
    """Return the extended attributes of PAX records, None if there are none.

    Both spellings are understood, `SCHILY.xattr.NAME` and libarchive's percent-encoded and
    base64-encoded one. The markers of overlay file systems are left out: they are a means of one
    machine's storage and would hide files where the image becomes a lower layer.

    Raises:
        LayerError: a name or value is malformed.
    """
    xattrs: dict[bytes, bytes] = {}
    for key, value in pax.items():
        if key.startswith(b"SCHILY.xattr."):
            xattrs[key[13:]] = value
        elif key.startswith(b"LIBARCHIVE.xattr."):
            name = unquote_to_bytes(key[17:])
            if b"SCHILY.xattr." + name not in pax:
                try:
                    xattrs[name] = base64.b64decode(value + b"=" * (-len(value) % 4), validate=True)
                except binascii.Error:
                    raise LayerError(
                        f"an extended attribute is malformed: {quoted(name)}"
                    ) from None
    for name in list(xattrs):
        if not 0 < len(name) < 256 or b"\0" in name or b"." not in name:
            raise LayerError(f"the name of an extended attribute is malformed: {quoted(name)}")
        if name.startswith(OVERLAY_XATTRS):
            del xattrs[name]
    return xattrs or None


def parse_old_sparse(block: bytes, start: int, count: int) -> list[tuple[int, int]]:
    """Parse the extents of an old GNU sparse header or of one of its extension blocks.

    Args:
        block: the header or extension block.
        start: where in it the first extent is described.
        count: how many descriptions there is room for; an empty one ends the list.
    """
    extents = []
    for at in range(start, start + 24 * count, 24):
        if not block[at]:
            break
        offset = parse_number(block[at : at + 12], "a sparse map")
        extents.append((offset, parse_number(block[at + 12 : at + 24], "a sparse map")))
    return extents


def parse_sparse_list(value: bytes) -> list[tuple[int, int]]:
    """Parse `offset,size,offset,size…`, the sparse map of versions 0.0 and 0.1."""
    numbers = [parse_decimal(item, "a sparse map") for item in value.split(b",")]
    if len(numbers) % 2:
        raise LayerError("a sparse map is malformed: an offset without a size")
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def read_sparse_blocks(next_block: Callable[[], bytes]) -> list[tuple[int, int]]:
    """Read the sparse map of version 1.0: lines of decimal numbers before the data, in blocks.

    Args:
        next_block: gives the next 512 bytes of the member's data.

    Raises:
        LayerError: the map is malformed.
    """
    text = next_block()

    def line() -> int:
        nonlocal text
        while b"\n" not in text:
            if len(text) > BLOCK:
                raise LayerError("a sparse map is malformed")
            text += next_block()
        head, _, text = text.partition(b"\n")
        return parse_decimal(head, "a sparse map")

    count = line()
    if not 0 <= count <= MAX_EXTENTS:
        raise LayerError(f"a sparse map is malformed: {count} extents")
    return [(line(), line()) for _ in range(count)]


def check_extents(
    extents: Sequence[tuple[int, int]], size: int, stored: int
) -> list[tuple[int, int]]:
    """Return the extents that hold data, having seen that they make sense.

    Args:
        extents: `(offset, length)` pairs as the archive has them.
        size: the file's apparent size.
        stored: bytes that the archive has for it.

    Raises:
        LayerError: they overlap, run backwards or past `size`, or do not add up to `stored`.
    """
    end = total = 0
    for offset, length in extents:
        if offset < end or length < 0 or offset + length > size:
            raise LayerError(f"a sparse map is malformed: extent {offset}+{length} of {size}")
        end = offset + length
        total += length
    if total != stored or size < 0:
        raise LayerError(f"a sparse map is malformed: {total} bytes mapped, {stored} stored")
    return [(offset, length) for offset, length in extents if length]
