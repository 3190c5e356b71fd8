"""Digests name files and pieces of URLs: nothing else may pass for one."""

from __future__ import annotations

import hashlib

import pytest

from enroot_py.errors import InvalidReferenceError
from enroot_py.image.digest import Digest, digest_of, parse_digest

HEX = "0123456789abcdef" * 4


@pytest.mark.parametrize("text", [f"sha256:{HEX}", f"sha512:{HEX}{HEX}"])
def test_digests_come_out_as_they_went_in(text: str) -> None:
    assert str(parse_digest(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        HEX,
        "sha256",
        "sha256:",
        f"sha256:{HEX[:-1]}",
        f"sha256:{HEX}0",
        f"sha256:{HEX.upper()}",
        f"SHA256:{HEX}",
        f"sha256:{HEX[:-1]}g",
        f"sha256:{HEX[:-1]}\n",
        f"sha256:{HEX}\n",
        f" sha256:{HEX}",
        "sha256:../../../etc/passwd",
        "sha256:" + "/" * 64,
        f"sha256:{HEX[:-1]}٣",
        f"sha512:{HEX}",
        f"md5:{HEX[:32]}",
        f"sha1:{HEX[:40]}",
        f"sha256+b64:{HEX}",
        "sha256:" + "0" * 100000,
        "\x1b[2J:x",
    ],
)
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidReferenceError) as caught:
        parse_digest(text)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000


def test_matching_and_hashing_agree() -> None:
    data = b"layer"
    found = digest_of(data)
    assert found.matches(data) and not found.matches(data + b"x")
    digest = found.new_hash()
    digest.update(data)
    assert digest.hexdigest() == found.hex
    long = Digest("sha512", hashlib.sha512(data).hexdigest())
    assert long.matches(data)
