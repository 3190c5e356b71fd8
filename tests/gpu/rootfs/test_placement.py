"""Where an injection goes in each kind of root file system."""

from __future__ import annotations

import pytest

from enroot_py.gpu.injection import Bind, Device, Injection, Library, Link, Program, Text
from enroot_py.gpu.loader.cache import (
    FLAG_I386,
    FLAG_X86_64,
    CacheEntry,
    LoaderCache,
    build_cache,
    parse_cache,
    sort_entries,
)
from enroot_py.gpu.rootfs.facts import FILE, FOLDER, MISSING, SAME, VOLATILE, RootfsFacts
from enroot_py.gpu.rootfs.placement import Placement, place, plan_dev

OWN = "/run/enroot/gpu"
IMAGE = LoaderCache(
    sort_entries(
        [
            CacheEntry(FLAG_X86_64, "libc.so.6", "/lib/libc.so.6"),
            CacheEntry(FLAG_X86_64, "libcuda.so.1", "/opt/libcuda.so.1"),
        ]
    ),
    ("x86-64-v3",),
    "image",
)
CUDA = Library("/h/libcuda.so.580", "libcuda.so.1", "compute", ("libcuda.so.580", "libcuda.so"))
SMI = Program("/h/nvidia-smi", "/usr/bin/nvidia-smi", "driver program")
READ_ONLY = RootfsFacts(cache=build_cache(IMAGE))
WRITABLE = READ_ONLY._replace(
    writable=True, conf=("/etc/ld.so.conf.d/x86_64-linux-gnu.conf", b"/usr/lib\n")
)
EPHEMERAL = READ_ONLY._replace(ephemeral=True)


def put(facts: RootfsFacts, environ: dict[str, str] | None = None, **parts: object) -> Placement:
    return place(Injection(**parts), facts, environ or {}, "x86_64")  # type: ignore[arg-type]


def entries(data: bytes) -> list[tuple[str, str]]:
    return [(entry.soname, entry.path) for entry in parse_cache(data).entries]


def test_libraries_lie_under_their_sonames_in_our_folder() -> None:
    placement = put(READ_ONLY, libraries=(CUDA,))
    assert [(b.source, b.target) for b in placement.own_binds] == [
        ("/h/libcuda.so.580", "lib64/libcuda.so.1")
    ]
    assert [(link.path, link.target) for link in placement.own_links] == [
        ("lib64/libcuda.so.580", "libcuda.so.1"), ("lib64/libcuda.so", "libcuda.so.1"),
    ]  # fmt: skip


def test_a_read_only_rootfs_gets_an_extended_cache_bound_over_its_own() -> None:
    placement = put(READ_ONLY, libraries=(CUDA,))
    (file,) = placement.own_files
    (bind,) = placement.binds
    assert (bind.source, bind.target, bind.required) == (
        "own:etc/ld.so.cache",
        "/etc/ld.so.cache",
        True,
    )
    assert placement.writes == () and placement.environ == ()
    cache = parse_cache(file.content)
    assert (cache.hwcaps, cache.generator) == (IMAGE.hwcaps, IMAGE.generator)
    assert entries(file.content) == [
        ("libcuda.so.580", f"{OWN}/lib64/libcuda.so.580"),
        ("libcuda.so.1", f"{OWN}/lib64/libcuda.so.1"),
        ("libcuda.so.1", "/opt/libcuda.so.1"),
        ("libcuda.so", f"{OWN}/lib64/libcuda.so"),
        ("libc.so.6", "/lib/libc.so.6"),
    ]


def test_a_writable_rootfs_gets_it_written_and_a_line_for_ldconfig() -> None:
    placement = put(WRITABLE, libraries=(CUDA,))
    (write,) = placement.writes
    assert write.path == "/etc/ld.so.cache"
    assert ("libcuda.so.1", f"{OWN}/lib64/libcuda.so.1") in entries(write.content)
    (file,) = placement.own_files
    assert file.content == f"/usr/lib\n\n{OWN}/lib64\n".encode()
    (bind,) = placement.binds
    assert (bind.source, bind.target) == (
        "own:etc/ld.so.conf",
        "/etc/ld.so.conf.d/x86_64-linux-gnu.conf",
    )


def test_without_a_drop_in_ldconfig_would_forget_so_the_path_is_set_too() -> None:
    placement = put(WRITABLE._replace(conf=None), libraries=(CUDA,))
    assert placement.writes
    assert dict(placement.environ)["LD_LIBRARY_PATH"] == f"{OWN}/lib64"


def test_entries_of_a_start_before_are_replaced_not_repeated() -> None:
    first = put(WRITABLE, libraries=(CUDA,)).writes[0].content
    again = put(WRITABLE._replace(cache=first), libraries=(CUDA,)).writes[0].content
    assert entries(again) == entries(first)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (READ_ONLY._replace(cache=None), "no loader cache"),
        (READ_ONLY._replace(cache=b"junk"), "damaged"),
        (WRITABLE._replace(cache=None), "no loader cache"),
        (READ_ONLY._replace(libc="musl"), "musl"),
    ],
)
def test_where_a_cache_cannot_help_the_search_path_does(facts: RootfsFacts, reason: str) -> None:
    placement = put(facts, {"LD_LIBRARY_PATH": "/a:/b"}, libraries=(CUDA,))
    assert dict(placement.environ)["LD_LIBRARY_PATH"] == f"{OWN}/lib64:/a:/b"
    assert any(reason in note for note in placement.notes)
    assert placement.writes == () and placement.binds == ()


def test_musl_is_warned_of() -> None:
    placement = put(READ_ONLY._replace(libc="musl"), libraries=(CUDA,))
    assert any("musl" in text and "glibc" in text for text in placement.warnings)


def test_an_ephemeral_rootfs_without_a_cache_gets_one() -> None:
    placement = put(EPHEMERAL._replace(cache=None), libraries=(CUDA,))
    assert len(entries(placement.writes[0].content)) == 3
    assert placement.environ == ()


def test_32_bit_libraries_have_a_folder_and_flags_of_their_own() -> None:
    small = CUDA._replace(bits=32, source="/h32/libcuda.so.580")
    placement = put(READ_ONLY, libraries=(CUDA, small))
    assert [bind.target for bind in placement.own_binds] == [
        "lib64/libcuda.so.1", "lib32/libcuda.so.1",
    ]  # fmt: skip
    flags = {
        entry.path: entry.flags for entry in parse_cache(placement.own_files[0].content).entries
    }
    assert flags[f"{OWN}/lib32/libcuda.so.1"] == FLAG_I386
    assert flags[f"{OWN}/lib64/libcuda.so.1"] == FLAG_X86_64


def test_libraries_with_a_folder_of_their_own_are_found_both_ways() -> None:
    vdpau = Library("/h/libvdpau", "libvdpau_nvidia.so.1", "video", folder="vdpau")
    placement = put(READ_ONLY, libraries=(vdpau,))
    assert [(link.path, link.target) for link in placement.own_links] == [
        ("lib64/vdpau/libvdpau_nvidia.so.1", "../libvdpau_nvidia.so.1")
    ]


def test_programs_go_where_nothing_stays_behind() -> None:
    placement = put(READ_ONLY, {"PATH": "/usr/bin"}, programs=(SMI,))
    assert [bind.target for bind in placement.own_binds] == ["bin/nvidia-smi"]
    assert dict(placement.environ)["PATH"] == f"/usr/bin:{OWN}/bin"
    there = READ_ONLY._replace(existing=((SMI.target, FILE),))
    assert [bind.target for bind in put(there, programs=(SMI,)).binds] == [SMI.target]
    assert [bind.target for bind in put(EPHEMERAL, programs=(SMI,)).binds] == [SMI.target]


def test_a_path_that_has_our_folder_already_stays() -> None:
    placement = put(READ_ONLY, {"PATH": f"{OWN}/bin:/usr/bin"}, programs=(SMI,))
    assert "PATH" not in dict(placement.environ)


def test_login_shells_that_set_path_anew_are_told() -> None:
    facts = READ_ONLY._replace(profile=b"PATH=/bin\n")
    placement = put(facts, programs=(SMI,))
    assert [(bind.source, bind.target) for bind in placement.binds] == [
        ("own:etc/profile", "/etc/profile")
    ]
    content = placement.own_files[0].content
    assert content.startswith(b"PATH=/bin\n") and f"{OWN}/bin".encode() in content
    assert put(READ_ONLY._replace(profile=b"umask 022\n"), programs=(SMI,)).binds == ()


@pytest.mark.parametrize(
    ("kind", "bound"),
    [(SAME, False), (FILE, True), (VOLATILE, True), (FOLDER, False), (MISSING, False)],
)
def test_a_socket_is_bound_where_there_is_a_place(kind: str, bound: bool) -> None:
    socket = Bind("/h/s", "/run/s", "daemon socket", "socket", ("nosuid",))
    placement = put(READ_ONLY._replace(existing=(("/run/s", kind),)), binds=(socket,))
    assert [bind.target for bind in placement.binds] == (["/run/s"] if bound else [])


@pytest.mark.parametrize(
    ("target", "variable", "value"),
    [
        (
            "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
            "__EGL_VENDOR_LIBRARY_DIRS",
            f"{OWN}/usr/share/glvnd/egl_vendor.d:/etc/glvnd/egl_vendor.d:/usr/share/glvnd/egl_vendor.d",
        ),
        (
            "/etc/vulkan/icd.d/nvidia_icd.json",
            "VK_ADD_DRIVER_FILES",
            f"{OWN}/etc/vulkan/icd.d/nvidia_icd.json",
        ),
        ("/etc/OpenCL/vendors/nvidia.icd", "OCL_ICD_FILENAMES", "libnvidia-opencl.so.1"),
    ],
)
def test_configuration_without_a_place_is_announced(target: str, variable: str, value: str) -> None:
    bind = Bind("/h/x", target, "configuration")
    placement = put(READ_ONLY, binds=(bind,))
    assert dict(placement.environ)[variable] == value
    assert [b.target for b in placement.own_binds] == [target[1:]]
    assert [b.target for b in put(EPHEMERAL, binds=(bind,)).binds] == [target]


def test_what_has_neither_place_nor_variable_is_noted() -> None:
    binds = (
        Bind("/h/gsp", "/lib/firmware/nvidia/1/gsp.bin", "firmware"),
        Bind("/h/opt", "/usr/share/nvidia/nvoptix.bin", "configuration"),
    )
    texts = (Text("/etc/nvidia/x.conf", "x", "graphics"),)
    links = (Link("/usr/lib/x", "y", "z"),)
    placement = put(READ_ONLY, binds=binds, texts=texts, links=links)
    assert placement.binds == () and placement.links == ()
    for target in ("gsp.bin", "nvoptix.bin", "x.conf", "/usr/lib/x"):
        assert any(target in note for note in placement.notes), target
    full = put(EPHEMERAL, binds=binds, texts=texts, links=links)
    assert {b.target for b in full.binds} == {binds[0].target, binds[1].target, texts[0].path}
    assert full.links == links


def test_binds_come_by_depth() -> None:
    binds = tuple(Bind("/h", path, "x", required=True) for path in ("/a/b/c", "/a", "/a/b"))
    assert [bind.target for bind in put(READ_ONLY, binds=binds).binds] == ["/a", "/a/b", "/a/b/c"]


def test_the_folder_of_libcuda_is_named_inside() -> None:
    placement = place(
        Injection(
            libraries=(CUDA,), environ=(("NVIDIA_CTK_LIBCUDA_DIR", "/usr/lib64"), ("A", "b"))
        ),
        READ_ONLY._replace(folder="/tmp/enroot/gpu"),
        {},
        "x86_64",
    )
    assert dict(placement.environ) == {
        "NVIDIA_CTK_LIBCUDA_DIR": "/tmp/enroot/gpu/lib64",
        "A": "b",
    }


NODES = (
    Device("/dev/nvidia0", "/dev/nvidia0", "GPU 0"),
    Device("/dev/nvidiactl", "/dev/nvidiactl", "driver"),
)
BOTH = frozenset({"/dev/nvidia0", "/dev/nvidiactl"})


@pytest.mark.parametrize(
    ("shared", "there", "hidden", "rebuild", "added"),
    [
        # the host's own /dev has everything: it is looked at, and left alone
        (True, BOTH, (), False, 0),
        # … unless something has to be absent, and is there
        (True, BOTH | {"/dev/nvidia1"}, ("/dev/nvidia1",), True, 0),
        (True, BOTH, ("/dev/nvidia1",), False, 0),
        # … or missing: the host's /dev is never written
        (True, frozenset({"/dev/nvidiactl"}), (), True, 1),
        # a /dev of the container's own takes nodes
        (False, frozenset(), (), False, 2),
        (False, BOTH | {"/dev/nvidia1"}, ("/dev/nvidia1",), True, 0),
    ],
)
def test_dev(
    shared: bool, there: frozenset[str], hidden: tuple[str, ...], rebuild: bool, added: int
) -> None:
    facts = READ_ONLY._replace(shared_dev=shared, devices=there)
    plan = plan_dev(Injection(devices=NODES, hidden=hidden), facts)
    assert (plan.rebuild, len(plan.nodes)) == (rebuild, added)
    assert plan.hidden == (hidden if rebuild else ())
