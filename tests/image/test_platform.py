"""Names of architectures, and which image suits which machine."""

from __future__ import annotations

import pytest

from enroot_py.errors import UsageError
from enroot_py.image.platform import Platform, parse_platform, suitability


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("x86_64", "linux/amd64"),
        ("amd64", "linux/amd64"),
        ("AMD64", "linux/amd64"),
        ("aarch64", "linux/arm64"),
        ("arm64", "linux/arm64"),
        ("ppc64le", "linux/ppc64le"),
        ("ppc64el", "linux/ppc64le"),
        ("s390x", "linux/s390x"),
        ("riscv64", "linux/riscv64"),
        ("armv7l", "linux/arm/v7"),
        ("armhf", "linux/arm/v7"),
        ("i686", "linux/386"),
        ("linux/amd64", "linux/amd64"),
        ("linux/arm64/v8", "linux/arm64/v8"),
        ("arm/v6", "linux/arm/v6"),
        ("linux/amd64/v3", "linux/amd64/v3"),
    ],
)
def test_names(name: str, expected: str) -> None:
    assert str(parse_platform(name)) == expected


@pytest.mark.parametrize(
    "name",
    ["", "vax", "x86-64", "linux", "linux/", "windows/amd64", "amd64/", "amd64/v1/x", "a\x1b"],
)
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_platform(name)
    assert caught.value.hint and str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("wanted", "best_first", "refused"),
    [
        ("amd64", ["amd64", "amd64/v1"], ["amd64/v2", "arm64", "386"]),
        ("amd64/v3", ["amd64/v3", "amd64/v2", "amd64"], ["amd64/v4"]),
        ("arm64", ["arm64/v8", "arm64"], ["arm64/v9", "arm/v8"]),
        ("armv7l", ["arm/v7", "arm/v6", "arm/v5"], ["arm/v8", "arm64"]),
        ("arm/v6", ["arm/v6", "arm/v5"], ["arm/v7", "arm"]),
    ],
)
def test_images_for_a_machine(wanted: str, best_first: list[str], refused: list[str]) -> None:
    platform = parse_platform(wanted)
    scores = [suitability(platform, parse_platform(name)) for name in best_first]
    assert scores == sorted(scores, reverse=True) and scores[-1] > 0
    assert not any(suitability(platform, parse_platform(name)) for name in refused)


def test_odd_variants_and_systems_suit_nobody_but_themselves() -> None:
    odd = Platform("linux", "amd64", "vX")
    assert not suitability(parse_platform("amd64"), odd)
    assert suitability(odd, odd)
    assert not suitability(parse_platform("amd64"), Platform("windows", "amd64"))
    assert not suitability(parse_platform("amd64"), Platform("linux", "amd64", "v" + "9" * 5000))
