"""Device cgroups for tests: deny some devices to the processes of a group.

On cgroup version 2 a small BPF program decides, as in Slurm; on version 1 the devices controller.
Both need real root.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_V1 = Path("/sys/fs/cgroup/devices")
_BPF = {"x86_64": 321, "aarch64": 280, "ppc64le": 361}
_PROG_LOAD, _PROG_ATTACH = 5, 8
_TYPE_CGROUP_DEVICE, _ATTACH_CGROUP_DEVICE = 15, 6


def unified_root() -> Path:
    """Where cgroup version 2 is mounted."""
    for line in Path("/proc/mounts").read_text().splitlines():
        fields = line.split()
        if fields[2] == "cgroup2":
            return Path(fields[1])
    raise RuntimeError("no cgroup2 is mounted")


@contextmanager
def denied_devices(name: str, denied: list[tuple[int, int]], *, version: int) -> Iterator[Path]:
    """Make a group whose processes may not use some character devices; yields its folder."""
    group = (_V1 if version == 1 else unified_root()) / f"pyxis-enroot-{name}-{os.getpid()}"
    group.mkdir()
    try:
        if version == 1:
            for major, minor in denied:
                (group / "devices.deny").write_text(f"c {major}:{minor} rwm")
        else:
            _attach(group, denied)
        yield group
    finally:
        group.rmdir()


def versions() -> list[int]:
    """The versions that this machine offers."""
    return [1, 2] if (_V1 / "devices.deny").exists() else [2]


def _instruction(code: int, registers: int, offset: int, value: int) -> bytes:
    return struct.pack("<BBhi", code, registers, offset, value)


def _program(denied: list[tuple[int, int]]) -> bytes:
    """r1 points to {access_type, major, minor}; 0 denies, 1 allows."""
    code = _instruction(0x61, 0x12, 4, 0)  # r2 = major
    code += _instruction(0x61, 0x13, 8, 0)  # r3 = minor
    for major, minor in denied:
        code += _instruction(0x55, 0x02, 3, major)  # if r2 != major skip three
        code += _instruction(0x55, 0x03, 2, minor)  # if r3 != minor skip two
        code += _instruction(0xB7, 0x00, 0, 0)  # r0 = 0
        code += _instruction(0x95, 0x00, 0, 0)  # exit
    return code + _instruction(0xB7, 0x00, 0, 1) + _instruction(0x95, 0x00, 0, 0)


def _bpf(command: int, attributes: bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    result = int(libc.syscall(_BPF[os.uname().machine], command, buffer, len(attributes)))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), "bpf")
    return result


def _attach(group: Path, denied: list[tuple[int, int]]) -> None:
    code = _program(denied)
    body = ctypes.create_string_buffer(code, len(code))
    licence = ctypes.create_string_buffer(b"Apache-2.0")
    program = _bpf(
        _PROG_LOAD,
        struct.pack(
            "<IIQQIIQII", _TYPE_CGROUP_DEVICE, len(code) // 8, ctypes.addressof(body),
            ctypes.addressof(licence), 0, 0, 0, 0, 0,
        ).ljust(128, b"\0"),
    )  # fmt: skip
    folder = os.open(group, os.O_RDONLY | os.O_DIRECTORY)
    try:
        attributes = struct.pack("<IIII", folder, program, _ATTACH_CGROUP_DEVICE, 0)
        _bpf(_PROG_ATTACH, attributes.ljust(128, b"\0"))
    finally:
        os.close(folder)
        os.close(program)
