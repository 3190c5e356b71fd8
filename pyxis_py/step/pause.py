"""The smallest programs there are: one that stops, and one that waits for the end of a line.

The first is the first process of a step's container: what the image's command script executes when
it has set everything up. That it has stopped says so, and its environment and working directory are
those that the script left; if somebody continues it, it sleeps for ever. The images bring nothing
for it: no shell need be there, no loader, no libc.

The second is what the keeper becomes once it has nothing left to do but be there.

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
# read(5, stack, 1) until it returns 0 or fails, but for EINTR; then exit(0)
_WAIT_X86_64 = (
    b"\x31\xc0"  # xor eax, eax (read)
    b"\xbf\x05\x00\x00\x00"  # mov edi, 5
    b"\x48\x8d\x74\x24\xf8"  # lea rsi, [rsp-8]
    b"\xba\x01\x00\x00\x00"  # mov edx, 1
    b"\x0f\x05"
    b"\x48\x85\xc0"  # test rax, rax
    b"\x7f\xe8"  # jg to the start
    b"\x48\x83\xf8\xfc"  # cmp rax, -4 (EINTR)
    b"\x74\xe2"  # je to the start
    b"\x31\xff"  # xor edi, edi
    b"\xb8\x3c\x00\x00\x00"  # mov eax, 60 (exit)
    b"\x0f\x05"
)
_WAIT_AARCH64 = (
    b"\xa0\x00\x80\xd2"  # mov x0, #5
    b"\xe1\x43\x00\xd1"  # sub x1, sp, #16
    b"\x22\x00\x80\xd2"  # mov x2, #1
    b"\xe8\x07\x80\xd2"  # mov x8, #63 (read)
    b"\x01\x00\x00\xd4"  # svc #0
    b"\x1f\x00\x00\xf1"  # cmp x0, #0
    b"\x4c\xff\xff\x54"  # b.gt to the start
    b"\x1f\x10\x00\xb1"  # cmn x0, #4 (EINTR)
    b"\x00\xff\xff\x54"  # b.eq to the start
    b"\x00\x00\x80\xd2"  # mov x0, #0
    b"\xa8\x0b\x80\xd2"  # mov x8, #93 (exit)
    b"\x01\x00\x00\xd4"
)
_WAIT_PPC64LE = (
    b"\x03\x00\x00\x38"  # li r0, 3 (read)
    b"\x05\x00\x60\x38"  # li r3, 5
    b"\xf0\xff\x81\x38"  # addi r4, r1, -16
    b"\x01\x00\xa0\x38"  # li r5, 1
    b"\x02\x00\x00\x44"  # sc
    b"\x10\x00\x83\x41"  # bso four instructions on: r3 is an error's number
    b"\x00\x00\x23\x2c"  # cmpdi r3, 0
    b"\xe4\xff\x81\x41"  # bgt to the start
    b"\x0c\x00\x00\x48"  # b three instructions on
    b"\x04\x00\x23\x2c"  # cmpdi r3, 4 (EINTR)
    b"\xd8\xff\x82\x41"  # beq to the start
    b"\x01\x00\x00\x38"  # li r0, 1 (exit)
    b"\x00\x00\x60\x38"  # li r3, 0
    b"\x02\x00\x00\x44"
)
_PROGRAMS: dict[str, tuple[int, int, bytes, bytes]] = {
    # machine: (e_machine, e_flags, code that stops, code that waits)
    "x86_64": (62, 0, _X86_64, _WAIT_X86_64),
    "aarch64": (183, 0, _AARCH64, _WAIT_AARCH64),
    "ppc64le": (21, 2, _PPC64LE, _WAIT_PPC64LE),
}


def pause_program(machine: str) -> bytes:
    """Return the program that stops, as an ELF file.

    Args:
        machine: as `uname -m` prints it.

    Raises:
        KeyError: for a machine that containers cannot be started on either.
    """
    number, flags, code, _ = _PROGRAMS[machine]
    return _elf_file(number, flags, code)


def waiting_program(machine: str) -> bytes:
    """Return the program that reads descriptor 5 up to its end and exits, as an ELF file.

    Args, raises: as `pause_program`.
    """
    number, flags, _, code = _PROGRAMS[machine]
    return _elf_file(number, flags, code)


def _elf_file(number: int, flags: int, code: bytes) -> bytes:
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
