"""Platforms of images: names of architectures, and which image suits which. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from enroot_py.errors import UsageError
from enroot_py.log import printable

_ARCHITECTURES = {
    "x86_64": ("amd64", ""),
    "amd64": ("amd64", ""),
    "x64": ("amd64", ""),
    "aarch64": ("arm64", ""),
    "arm64": ("arm64", ""),
    "arm64v8": ("arm64", ""),
    "ppc64le": ("ppc64le", ""),
    "ppc64el": ("ppc64le", ""),
    "s390x": ("s390x", ""),
    "riscv64": ("riscv64", ""),
    "loongarch64": ("loong64", ""),
    "loong64": ("loong64", ""),
    "i386": ("386", ""),
    "i686": ("386", ""),
    "386": ("386", ""),
    "arm": ("arm", ""),
    "armv7l": ("arm", "v7"),
    "armhf": ("arm", "v7"),
    "armv6l": ("arm", "v6"),
    "armel": ("arm", "v5"),
}
"""uname's, Debian's and Go's names, to Go's (architecture, variant).

Source: enroot 4.1.2 src/common.sh, common::debarch(); OCI image-spec 1.1, image-index.md.
"""

# A machine runs older variants of its architecture; the first is the one that needs no name.
_DEFAULT_VARIANT = {"amd64": "v1", "arm64": "v8", "arm": "v7"}


@dataclass(frozen=True, slots=True)
class Platform:
    """What an image runs on, in the image specification's (Go's) words.

    Attributes:
        os: "linux".
        architecture: "amd64", "arm64", "ppc64le", …
        variant: "v7", "v8", … or "" for the usual one.
    """

    os: str
    architecture: str
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)


def parse_platform(arch: str) -> Platform:
    """Parse an architecture's name as uname, Debian or Go spell it, or `OS/ARCH[/VARIANT]`.

    Raises:
        UsageError: if the name is not known.
    """
    parts = arch.lower().split("/")
    if parts[0] == "linux" and len(parts) > 1:
        del parts[0]
    known = _ARCHITECTURES.get(parts[0])
    if known is None or len(parts) > 2 or "" in parts:
        raise UsageError(
            f"Unsupported architecture: {printable(arch)}",
            hint="known are x86_64, aarch64 and ppc64le (or amd64, arm64, linux/arm64/v8, …)",
        )
    architecture, variant = known
    return Platform("linux", architecture, parts[1] if len(parts) > 1 else variant)


def suitability(wanted: Platform, offered: Platform) -> int:
    """Return how well an image for `offered` suits: 0 for not at all, more for better.

    The same variant is best; an older one will do (an arm v7 machine runs v6). A newer one will
    not: `linux/amd64/v3` is chosen only by those who ask for it.
    """
    if (wanted.os, wanted.architecture) != (offered.os, offered.architecture):
        return 0
    want, offer = _variant_number(wanted), _variant_number(offered)
    if want == offer:
        return 1000
    if offer is None or want is None or offer > want:
        return 0
    return 100 + offer


def _variant_number(platform: Platform) -> int | None:
    variant = platform.variant or _DEFAULT_VARIANT.get(platform.architecture, "v1")
    digits = variant.removeprefix("v")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 4 else None
