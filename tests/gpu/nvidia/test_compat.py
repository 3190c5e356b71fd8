"""CUDA forward compatibility: when the image's newer libcuda serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from enroot_py.gpu.injection import Injection, Library
from enroot_py.gpu.nvidia.compat import (
    CompatLibrary,
    CompatNote,
    decide_compat,
    find_compat,
)
from enroot_py.gpu.nvidia.compat_plan import compat_injection
from tests.roots.shared_objects import compat_note, write_stub

FOLDER = "usr/local/cuda-13.1/compat"
NOTE = '{"Format":1,"CUDA Version":"13.1","Driver":[535,550,580],"Device":[]}'


def image(tmp_path: Path, version: str = "590.44.01", note: str = NOTE) -> Path:
    folder = tmp_path / FOLDER
    body = compat_note(note) if note else b""
    write_stub(folder / f"libcuda.so.{version}", "libcuda.so.1", note=body)
    write_stub(folder / f"libnvidia-ptxjitcompiler.so.{version}", "libnvidia-ptxjitcompiler.so.1")
    write_stub(folder / f"libnvidia-ml.so.{version}", "libnvidia-ml.so.1")
    (folder / "libcuda.so.1").symlink_to(f"libcuda.so.{version}")
    (folder / "README").write_text("x")
    (tmp_path / "usr/local/cuda").symlink_to("/usr/local/cuda-13.1")
    return tmp_path


def test_the_candidate_and_its_note(tmp_path: Path) -> None:
    found = find_compat(str(image(tmp_path)))
    assert found.version == "590.44.01"
    assert found.note == CompatNote("13.1", (535, 550, 580))
    assert {library.soname for library in found.libraries} == {
        "libcuda.so.1", "libnvidia-ptxjitcompiler.so.1", "libnvidia-ml.so.1",
    }  # fmt: skip


def test_images_without_one(tmp_path: Path) -> None:
    assert find_compat(str(tmp_path)) == CompatLibrary()
    (tmp_path / "usr/local/cuda/compat").mkdir(parents=True)
    assert find_compat(str(tmp_path)) == CompatLibrary()


def test_links_are_followed_inside_the_rootfs_only(tmp_path: Path) -> None:
    outside = image(tmp_path / "outside")
    rootfs = tmp_path / "rootfs"
    (rootfs / "usr/local/cuda").mkdir(parents=True)
    (rootfs / "usr/local/cuda/compat").symlink_to(outside / FOLDER)
    assert find_compat(str(rootfs)) == CompatLibrary()


def test_two_candidates_are_none(tmp_path: Path) -> None:
    image(tmp_path)
    write_stub(tmp_path / FOLDER / "libcuda.so.580.1.2", "libcuda.so.1")
    found = find_compat(str(tmp_path))
    assert found.version == "" and "several libcuda" in found.warning


def test_a_candidate_that_is_no_library(tmp_path: Path) -> None:
    image(tmp_path)
    (tmp_path / FOLDER / "libcuda.so.590.44.01").write_text("text")
    assert "not a library" in find_compat(str(tmp_path)).warning


@pytest.mark.parametrize("note", ["not json", "[]", '{"driver": "x"}', "{"])
def test_malformed_notes(tmp_path: Path, note: str) -> None:
    found = find_compat(str(image(tmp_path, note=note)))
    assert found.version == "590.44.01"
    assert found.note in (None, CompatNote("", ()))


LISTED = CompatNote("13.1", (535, 580))


@pytest.mark.parametrize(
    ("note", "candidate", "driver", "use"),
    [
        # the note lists the host's branch
        (LISTED, "590.44.01", "535.1.1", True),
        (LISTED, "590.44.01", "580.95.05", True),
        (LISTED, "580.95.05", "580.95.05", False),
        (LISTED, "580.10.1", "580.95.05", False),
        (LISTED, "580.105.8", "580.95.05", True),
        # … or does not
        (LISTED, "590.44.01", "550.1.1", False),
        (LISTED, "590.44.01", "590.44.01", False),
        (CompatNote("13.1", ()), "590.44.01", "535.1.1", False),
        # no note: a newer branch
        (None, "590.44.01", "580.95.05", True),
        (None, "580.105.8", "580.95.05", False),
        (None, "570.1.1", "580.95.05", False),
        (None, "1000.1", "999.1", True),
        # the driver's version is unknown
        (None, "590.44.01", "", False),
        (LISTED, "590.44.01", "", False),
    ],
)
def test_when_it_is_used(note: CompatNote | None, candidate: str, driver: str, use: bool) -> None:
    library = CompatLibrary("/c", candidate, note)
    decision = decide_compat(library, mode="auto", driver=driver, driver_cuda="", models=())
    assert decision.use == use and decision.reason
    off = decide_compat(library, mode="off", driver=driver, driver_cuda="", models=())
    assert not off.use
    assert decide_compat(library, mode="force", driver=driver, driver_cuda="", models=()).use


@pytest.mark.parametrize(("cuda", "use"), [("13.0", True), ("13.1", False), ("13.2", False)])
def test_with_only_the_cuda_version_known(cuda: str, use: bool) -> None:
    library = CompatLibrary("/c", "590.44.01", LISTED)
    assert decide_compat(library, mode="auto", driver="", driver_cuda=cuda, models=()).use == use


@pytest.mark.parametrize(
    ("model", "use"),
    [("NVIDIA H200", True), ("NVIDIA GeForce RTX 4090", False), ("NVIDIA TITAN V", False),
     ("NVIDIA RTX A6000", False), ("Tesla V100", True)],
)  # fmt: skip
def test_consumer_gpus_do_not_support_it(model: str, use: bool) -> None:
    library = CompatLibrary("/c", "590.44.01", LISTED)
    decision = decide_compat(
        library, mode="auto", driver="580.1.1", driver_cuda="", models=("NVIDIA H200", model)
    )
    assert decision.use == use


HOST = Injection(
    libraries=(
        Library("/h/libcuda.so.580", "libcuda.so.1", "compute", ("libcuda.so.580", "libcuda.so")),
        Library("/h/libnvidia-ml.so.580", "libnvidia-ml.so.1", "utility"),
        Library("/h/32/libcuda.so.580", "libcuda.so.1", "compute", bits=32),
    )
)


def test_the_images_libraries_take_the_hosts_place(tmp_path: Path) -> None:
    found = find_compat(str(image(tmp_path)))
    decision = decide_compat(found, mode="auto", driver="580.1.1", driver_cuda="", models=())
    result = compat_injection(HOST, found, decision, "", "580.1.1")
    by_key = {(lib.soname, lib.bits): lib for lib in result.libraries}
    cuda = by_key["libcuda.so.1", 64]
    assert cuda.source == f"{tmp_path}/{FOLDER}/libcuda.so.590.44.01"
    assert cuda.names == ("libcuda.so.590.44.01", "libcuda.so")
    assert by_key["libnvidia-ml.so.1", 64].source == "/h/libnvidia-ml.so.580"
    assert by_key["libcuda.so.1", 32].source == "/h/32/libcuda.so.580"
    assert ("libnvidia-ptxjitcompiler.so.1", 64) in by_key


@pytest.mark.parametrize(
    ("search", "warned"),
    [("", False), ("/usr/local/cuda/compat", True), ("/x:/usr/local/cuda/compat/lib/", True),
     ("/usr/local/cuda/compat2", False)],
)  # fmt: skip
def test_a_rejected_one_in_the_search_path_is_warned_of(search: str, warned: bool) -> None:
    found = CompatLibrary("/usr/local/cuda/compat", "570.1.1", None)
    decision = decide_compat(found, mode="auto", driver="580.1.1", driver_cuda="", models=())
    result = compat_injection(HOST, found, decision, search, "580.1.1")
    assert result.libraries == HOST.libraries
    assert any("error 803" in text for text in result.warnings) == warned
