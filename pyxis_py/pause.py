"""The smallest program there is: it stops, and sleeps for ever if somebody continues it.

It is the first process of a step's container: what the image's command script executes when it has
set everything up. That it has stopped says so, and its environment and working directory are those
that the script left. The images bring nothing for it: no shell need be there, no loader, no libc.

Source: elf(5); the system call numbers are those of linux/unistd.h.
"""

from __future__ import annotations

_BASE = 0x400000
_HEADERS = 64 + 56
_READ_EXECUTE, _EXEC = 5, 2

# kill(getpid(), SIGSTOP), then pause() in a loop
_X86_64 = (
    b"\xb8\x27\x00\x00\x00"  # mov eax, 39 (getpid)
    b"\x0f\x05"
    b"\x89\xc7"  # mov edi, eax
    b"\xbe\x13\x00\x00\x00"  # mov esi, 19 (SIGSTOP)
    b"\xb8\x3e\x00\x00\x00"  # mov eax, 62 (kill)
    b"\x0f\x05"
    b"\xb8\x22\x00\x00\x00"  # mov eax, 34 (pause)
    b"\x0f\x05"
    b"\xeb\xf7"  # jmp to the line above the last syscall
)
_AARCH64 = (
    b"\x88\x15\x80\xd2"  # mov x8, #172 (getpid)
    b"\x01\x00\x00\xd4"  # svc #0
    b"\x61\x02\x80\xd2"  # mov x1, #19 (SIGSTOP)
    b"\x28\x10\x80\xd2"  # mov x8, #129 (kill)
    b"\x01\x00\x00\xd4"
    b"\x00\x00\x80\xd2"  # mov x0, #0: ppoll(NULL, 0, NULL, NULL), as there is no pause
    b"\x01\x00\x80\xd2"
    b"\x02\x00\x80\xd2"
    b"\x03\x00\x80\xd2"
    b"\x28\x09\x80\xd2"  # mov x8, #73 (ppoll)
    b"\x01\x00\x00\xd4"
    b"\xfa\xff\xff\x17"  # b six instructions back
)
_PPC64LE = (
    b"\x14\x00\x00\x38"  # li r0, 20 (getpid)
    b"\x02\x00\x00\x44"  # sc
    b"\x13\x00\x80\x38"  # li r4, 19 (SIGSTOP)
    b"\x25\x00\x00\x38"  # li r0, 37 (kill)
    b"\x02\x00\x00\x44"
    b"\x1d\x00\x00\x38"  # li r0, 29 (pause)
    b"\x02\x00\x00\x44"
    b"\xf8\xff\xff\x4b"  # b two instructions back
)
_PROGRAMS: dict[str, tuple[int, int, bytes]] = {
    # machine: (e_machine, e_flags, code)
    "x86_64": (62, 0, _X86_64),
    "aarch64": (183, 0, _AARCH64),
    "ppc64le": (21, 2, _PPC64LE),
}


def pause_program(machine: str) -> bytes:
    """Return the program as an ELF file.

    Args:
        machine: as `uname -m` prints it.

    Raises:
        KeyError: for a machine that containers cannot be started on either.
    """
    number, flags, code = _PROGRAMS[machine]
    size = _HEADERS + len(code)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    for value, width in (
        (_EXEC, 2), (number, 2), (1, 4), (_BASE + _HEADERS, 8), (64, 8), (0, 8), (flags, 4),
        (64, 2), (56, 2), (1, 2), (64, 2), (0, 2), (0, 2),
        # the one segment: PT_LOAD, R+X, offset, addresses, sizes, alignment
        (1, 4), (_READ_EXECUTE, 4), (0, 8), (_BASE, 8), (_BASE, 8), (size, 8), (size, 8),
        (1 << 16, 8),
    ):  # fmt: skip
        header += value.to_bytes(width, "little")
    return header + code
