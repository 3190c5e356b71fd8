"""Write the system call filter down as C, for the plugin: spank_shim/seccomp_filter.h. Pure.

`make options` does so; a test compares the file with what this module returns.
"""

from __future__ import annotations

import struct

from enroot_py import filter_program

_MACHINES = (
    ("x86_64", "defined(__x86_64__) && !defined(__ILP32__)"),
    ("aarch64", "defined(__aarch64__)"),
    ("ppc64le", "defined(__powerpc64__) && defined(__LITTLE_ENDIAN__)"),
)


def emit_seccomp_c() -> str:
    """Return the header: an array `filter` of BPF instructions for the machine compiled for."""
    lines = ["/* Generated from enroot_py/linux/seccomp.py by `make options`. Do not edit. */"]
    for number, (machine, condition) in enumerate(_MACHINES):
        lines += [
            f"#{'elif' if number else 'if'} {condition}",
            "static struct sock_filter filter[] = {",
        ]
        for code, equal, other, operand in struct.iter_unpack("=HBBI", filter_program(machine)):
            lines.append(f"\t{{ 0x{code:02x}, {equal}, {other}, 0x{operand:08x} }},")
        lines.append("};")
    lines += ["#else", "#error no system call filter for this machine", "#endif"]
    return "\n".join(lines) + "\n"
