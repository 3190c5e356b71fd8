"""The system call filter of a container: ownership cannot change, and that is no error.

A user namespace with one user knows no other owner, so `chown` and `setuid` would fail with EINVAL
where package managers and servers call them; the filter makes them succeed and do nothing. And no
process of a container may type into the terminal that it was started from (ioctl TIOCSTI and
TIOCLINUX): that would run commands outside.

Numbers are those of the kernel's unistd.h, compared with it by tests/linux/test_seccomp.py. The
machine's own system calls are filtered and, on x86_64, those of its 32-bit programs; on the others
32-bit programs run unfiltered.

Source: seccomp(2); enroot 4.1.2 bin/enroot-nsenter.c, filter[].
"""

from __future__ import annotations

import struct

from enroot_py.errors import UnsupportedError

NUMBERS: dict[str, dict[str, int]] = {
    "x86_64": {
        "chown": 92, "fchown": 93, "lchown": 94, "fchownat": 260, "setuid": 105, "setgid": 106,
        "setreuid": 113, "setregid": 114, "setgroups": 116, "setresuid": 117, "setresgid": 119,
        "setfsuid": 122, "setfsgid": 123, "ioctl": 16,
    },
    "x32": {
        "chown": 92 + (1 << 30), "fchown": 93 + (1 << 30), "lchown": 94 + (1 << 30),
        "fchownat": 260 + (1 << 30), "setuid": 105 + (1 << 30), "setgid": 106 + (1 << 30),
        "setreuid": 113 + (1 << 30), "setregid": 114 + (1 << 30), "setgroups": 116 + (1 << 30),
        "setresuid": 117 + (1 << 30), "setresgid": 119 + (1 << 30), "setfsuid": 122 + (1 << 30),
        "setfsgid": 123 + (1 << 30), "ioctl": 514 + (1 << 30),
    },
    "i386": {
        "lchown": 16, "setuid": 23, "setgid": 46, "setreuid": 70, "setregid": 71, "setgroups": 81,
        "fchown": 95, "setfsuid": 138, "setfsgid": 139, "setresuid": 164, "setresgid": 170,
        "chown": 182, "lchown32": 198, "setreuid32": 203, "setregid32": 204, "setgroups32": 206,
        "fchown32": 207, "setresuid32": 208, "setresgid32": 210, "chown32": 212, "setuid32": 213,
        "setgid32": 214, "setfsuid32": 215, "setfsgid32": 216, "fchownat": 298, "ioctl": 54,
    },
    "aarch64": {
        "fchownat": 54, "fchown": 55, "setregid": 143, "setgid": 144, "setreuid": 145,
        "setuid": 146, "setresuid": 147, "setresgid": 149, "setfsuid": 151, "setfsgid": 152,
        "setgroups": 159, "ioctl": 29,
    },
    "ppc64le": {
        "lchown": 16, "setuid": 23, "setgid": 46, "setreuid": 70, "setregid": 71, "setgroups": 81,
        "fchown": 95, "setfsuid": 138, "setfsgid": 139, "setresuid": 164, "setresgid": 169,
        "chown": 181, "fchownat": 289, "ioctl": 54,
    },
}  # fmt: skip
"""Interface, system call, number."""

# <linux/audit.h>: the machine of the ELF header, flagged as 64 bits and little-endian.
_AUDIT_ARCH = {
    "x86_64": 0xC000003E,
    "i386": 0x40000003,
    "aarch64": 0xC00000B7,
    "ppc64le": 0xC0000015,
}
_INTERFACES: dict[str, dict[str, tuple[str, ...]]] = {
    # machine: for each architecture that the kernel reports, the tables of its system calls
    "x86_64": {"x86_64": ("x86_64", "x32"), "i386": ("i386",)},
    "aarch64": {"aarch64": ("aarch64",)},
    "ppc64le": {"ppc64le": ("ppc64le",)},
}

_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

# <linux/bpf_common.h> and <linux/seccomp.h>
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
_NUMBER_AT, _ARCH_AT, _FIRST_AT, _SECOND_AT = 0, 4, 16, 24  # struct seccomp_data
_EPERM = 1

TYPE_CHECKING = False
if TYPE_CHECKING:
    _Instruction = tuple[int, int, str, str]
    """(code, operand, label where equal, label where not); "" is the next instruction."""


def filter_program(machine: str) -> bytes:
    """Return the filter for a machine, as `Kernel.set_seccomp_filter` takes it.

    Raises:
        UnsupportedError: for a machine that has no table.
    """
    if machine not in _INTERFACES:
        raise UnsupportedError(
            f"No system call filter for {machine}", hint="supported: " + ", ".join(_INTERFACES)
        )
    code: list[_Instruction | str] = [(_LOAD, _ARCH_AT, "", "")]
    architectures = _INTERFACES[machine]
    code += [(_JUMP_EQUAL, _AUDIT_ARCH[name], name, "") for name in architectures]
    code.append((_RETURN, _ALLOW, "", ""))
    for name, tables in architectures.items():
        code += [name, (_LOAD, _NUMBER_AT, "", "")]
        for table in tables:
            code += [
                (_JUMP_EQUAL, number, _outcome(call), "") for call, number in NUMBERS[table].items()
            ]
        code.append((_RETURN, _ALLOW, "", ""))
    return _assemble(code + _OUTCOMES)


def _outcome(call: str) -> str:
    if call == "ioctl":
        return "ioctl"
    return "query" if call.startswith("setfs") else "succeed"


_OUTCOMES: list[_Instruction | str] = [
    # setfsuid(-1) changes nothing and tells the current id: let it.
    "query",
    (_LOAD, _FIRST_AT, "", ""),
    (_JUMP_EQUAL, 0xFFFFFFFF, "allow", "succeed"),
    # The kernel looks at the lower half of an ioctl's number alone, hence so does the filter.
    "ioctl",
    (_LOAD, _SECOND_AT, "", ""),
    (_JUMP_EQUAL, _TIOCSTI, "refuse", ""),
    (_JUMP_EQUAL, _TIOCLINUX, "refuse", "allow"),
    "allow",
    (_RETURN, _ALLOW, "", ""),
    "succeed",
    (_RETURN, _FAIL, "", ""),
    "refuse",
    (_RETURN, _FAIL | _EPERM, "", ""),
]


def _assemble(code: list[_Instruction | str]) -> bytes:
    """Turn labels into distances; a label stands before the instruction that it names."""
    labels: dict[str, int] = {}
    instructions: list[_Instruction] = []
    for item in code:
        if isinstance(item, str):
            labels[item] = len(instructions)
        else:
            instructions.append(item)
    program = bytearray()
    for at, (operation, operand, equal, other) in enumerate(instructions, start=1):
        distances = [labels[label] - at if label else 0 for label in (equal, other)]
        program += struct.pack("=HBBI", operation, *distances, operand)
    return bytes(program)
