"""An image whose bytes are known; runs on any Python that has the writer's own libraries."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

from tests.squashfs.trees import Item, write_image


def sample() -> list[Item]:
    """A tree with something of everything, without any chance in it."""
    text = b"".join(b"%d little lines of text\n" % number for number in range(20_000))
    items = [Item(b"d%02d" % n, stat.S_IFDIR, mode=0o755, mtime=n) for n in range(20)]
    for number in range(600):
        folder = b"d%02d" % (number % 20)
        content = text[number * 700 : number * 700 + (number * 37) % 5000]
        items.append(Item(folder + b"/file%03d" % number, content=content, mtime=number))
    xattrs = ((b"security.capability", bytes(20)), (b"user.note", b"a note that is longer"))
    items += [
        Item(b"text", content=text),
        Item(b"text-again", content=text, xattrs=xattrs),
        Item(b"hole", content=text[:1000] + bytes(1_000_000) + text[:1000]),
        Item(b"link", stat.S_IFLNK, target=b"d00/file000"),
        Item(b"second", link=b"text", mode=0o600),
        Item(b"null", stat.S_IFCHR, device=(1, 3)),
        Item(b"fifo", stat.S_IFIFO, xattrs=xattrs[:1]),
    ]
    return items


def digest(folder: Path, options: str, processors: int) -> str:
    image = write_image(folder / "image", sample(), options, processors=processors, mkfs_time=1)
    return hashlib.sha256(image.read_bytes()).hexdigest()
