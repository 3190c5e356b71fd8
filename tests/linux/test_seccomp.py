"""The filter, run by an interpreter of the kernel's rules, and its numbers."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from enroot_py.errors import UnsupportedError
from enroot_py.linux import kernel
from enroot_py.linux.kernel import PR_SET_NO_NEW_PRIVS, Kernel
from enroot_py.linux.seccomp import NUMBERS, filter_program

ALLOW, SUCCEED, REFUSE = 0x7FFF0000, 0x00050000, 0x00050000 | errno.EPERM
ARCHITECTURES = {
    "x86_64": 0xC000003E, "x32": 0xC000003E, "i386": 0x40000003,
    "aarch64": 0xC00000B7, "ppc64le": 0xC0000015,
}  # fmt: skip
MACHINE_OF = {"x32": "x86_64", "i386": "x86_64"}
TIOCSTI, TIOCLINUX, TCGETS = 0x5412, 0x541C, 0x5401


def run(program: bytes, arch: int, number: int, *arguments: int) -> int:
    """Evaluate a filter for one system call: classic BPF, the instructions that we use."""
    values = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("=iIQ6Q", _signed(number), arch, 0, *(value % 2**64 for value in values))
    instructions = list(struct.iter_unpack("=HBBI", program))
    accumulator = at = 0
    while True:
        code, equal, other, operand = instructions[at]
        at += 1
        if code == 0x20:
            accumulator = struct.unpack_from("=I", data, operand)[0]
        elif code == 0x15:
            at += equal if accumulator == operand else other
        elif code == 0x06:
            return operand
        else:
            raise AssertionError(f"instruction {code:#x}")


def _signed(number: int) -> int:
    return number - 2**32 if number >= 2**31 else number


TABLES = sorted(NUMBERS)


@pytest.mark.parametrize("table", TABLES)
def test_changing_owners_succeeds_without_doing_anything(table: str) -> None:
    program = filter_program(MACHINE_OF.get(table, table))
    for call, number in NUMBERS[table].items():
        if call.startswith("setfs"):
            assert run(program, ARCHITECTURES[table], number, 5) == SUCCEED
            assert run(program, ARCHITECTURES[table], number, -1) == ALLOW
        elif call != "ioctl":
            assert run(program, ARCHITECTURES[table], number, 5, 5) == SUCCEED, call


@pytest.mark.parametrize("table", TABLES)
def test_typing_into_the_terminal_is_refused(table: str) -> None:
    program = filter_program(MACHINE_OF.get(table, table))
    number, arch = NUMBERS[table]["ioctl"], ARCHITECTURES[table]
    assert run(program, arch, number, 0, TIOCSTI) == REFUSE
    assert run(program, arch, number, 0, TIOCLINUX) == REFUSE
    # The kernel ignores the upper half of the number (CVE-2019-10063 in flatpak).
    assert run(program, arch, number, 0, TIOCSTI | 1 << 32) == REFUSE
    assert run(program, arch, number, 0, TCGETS) == ALLOW


@pytest.mark.parametrize("table", TABLES)
def test_everything_else_is_allowed(table: str) -> None:
    program = filter_program(MACHINE_OF.get(table, table))
    offset = 1 << 30 if table == "x32" else 0
    known = set(NUMBERS[table].values())
    for number in range(offset, offset + 600):
        if number not in known:
            assert run(program, ARCHITECTURES[table], number) == ALLOW
    assert run(program, ARCHITECTURES[table], 2**32 - 1) == ALLOW


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "ppc64le"])
def test_other_architectures_are_allowed(machine: str) -> None:
    program = filter_program(machine)
    for number in NUMBERS[machine].values():
        assert run(program, 0x40000028, number, 1, TIOCSTI) == ALLOW  # 32-bit ARM


def test_an_unknown_machine_has_no_filter() -> None:
    with pytest.raises(UnsupportedError, match="riscv64"):
        filter_program("riscv64")


def header_numbers(path: str) -> dict[str, int]:
    """Return the system call numbers of a kernel header; those of x32 with its bit."""
    numbers = {}
    pattern = r"#define __NR(?:3264)?_(\w+)\s+\(?(?:(__X32_SYSCALL_BIT) \+ )?(\d+)\)?"
    for name, bit, number in re.findall(pattern, Path(path).read_text()):
        numbers.setdefault(name, int(number) + (1 << 30 if bit else 0))
    return numbers


HEADERS = {
    # Debian's linux-libc-dev, and linux-libc-dev-ppc64el-cross
    "x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    "x32": "/usr/include/x86_64-linux-gnu/asm/unistd_x32.h",
    "i386": "/usr/include/x86_64-linux-gnu/asm/unistd_32.h",
    "aarch64": "/usr/include/asm-generic/unistd.h",
    "ppc64le": "/usr/powerpc64le-linux-gnu/include/asm/unistd_64.h",
}
FAMILY = re.compile(r"[lf]?chown(at)?(32)?|set(re|res|fs)?[ug]id(32)?|setgroups(32)?|ioctl")


@pytest.mark.kernel
@pytest.mark.parametrize("table", TABLES)
def test_numbers_are_the_kernels_and_complete(table: str) -> None:
    header = header_numbers(HEADERS[table])
    expected = {name: number for name, number in header.items() if FAMILY.fullmatch(name)}
    assert NUMBERS[table] == expected


@pytest.mark.kernel
@pytest.mark.parametrize("machine", sorted(kernel._NUMBERS))
def test_the_other_calls_numbers_are_the_kernels(machine: str) -> None:
    header = header_numbers(HEADERS[machine])
    names = ("pivot_root", "seccomp", "close_range")
    assert kernel._NUMBERS[machine] == tuple(header[name] for name in names)


def in_child(check: Callable[[], bool]) -> bool:
    """Run a check in a child process, which may restrict itself."""
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            code = 0 if check() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.kernel
def test_the_running_kernel_takes_the_filter(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()

    def check() -> bool:
        own = Kernel()
        own.prctl(PR_SET_NO_NEW_PRIVS, 1)
        own.set_seccomp_filter(filter_program(os.uname().machine))
        os.chown(file, 12345, 12345)
        libc = ctypes.CDLL(None)
        assert libc.setuid(12345) == 0 and libc.setgid(12345) == 0
        assert libc.setfsuid(-1) == os.getuid()
        master, slave = os.openpty()
        try:
            fcntl.ioctl(slave, TIOCSTI, b"x")
        except PermissionError:
            unchanged = (os.getuid(), os.getgid())
            return file.stat().st_uid == os.getuid() and unchanged != (12345, 12345)
        return False

    assert in_child(check)


@pytest.mark.kernel
def test_kernels_without_the_flag_get_the_filter_by_prctl() -> None:
    class OldKernel(Kernel):
        def __init__(self) -> None:
            super().__init__()
            self._seccomp = -1  # ENOSYS

    def check() -> bool:
        own = OldKernel()
        own.prctl(PR_SET_NO_NEW_PRIVS, 1)
        own.set_seccomp_filter(filter_program(os.uname().machine))
        return "Seccomp:\t2\n" in Path("/proc/self/status").read_text()

    assert in_child(check)
