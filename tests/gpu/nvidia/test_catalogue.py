"""Driver capabilities."""

from __future__ import annotations

import pytest

from enroot_py.errors import UsageError
from enroot_py.gpu.nvidia.catalogue import (
    CAPABILITIES,
    LIBRARIES,
    NEVER,
    capability_of,
    known_libraries,
    library_capabilities,
    parse_capabilities,
)


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("", {"compute", "utility"}),
        (" , ", {"compute", "utility"}),
        ("utility", {"utility"}),
        ("Compute, VIDEO ,compute", {"compute", "video"}),
        ("none", set()),
        ("none,compute", {"compute"}),
        ("all", set(CAPABILITIES)),
        ("bogus,all", set(CAPABILITIES)),
    ],
)
def test_lists(text: str, chosen: set[str]) -> None:
    assert parse_capabilities(text) == chosen


@pytest.mark.parametrize("word", ["cuda", "computer", "ngx2"])
def test_an_unknown_word_is_named_with_the_valid_ones(word: str) -> None:
    with pytest.raises(UsageError, match=word) as caught:
        parse_capabilities(f"compute,{word}")
    assert "ngx" in caught.value.hint and "all" in caught.value.hint


def test_implications() -> None:
    assert library_capabilities(frozenset({"video"})) == {"video", "compute"}
    assert library_capabilities(frozenset({"display"})) == {"display", "graphics"}
    assert library_capabilities(frozenset({"utility"})) == {"utility"}


def test_vendor_neutral_loaders_are_in_no_table() -> None:
    assert not known_libraries() & NEVER
    assert set(LIBRARIES) | {"compat32"} == set(CAPABILITIES)


def test_the_reason_of_a_library() -> None:
    assert capability_of("libnvidia-allocator", frozenset({"graphics"})) == "graphics"
    assert capability_of("libnvidia-allocator", frozenset(CAPABILITIES)) == "compute"
    assert capability_of("libnvidia-new", frozenset({"compute"})) == "compute"
