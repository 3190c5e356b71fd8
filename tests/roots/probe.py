"""A program that loads libraries inside containers and says what became of it.

It needs a C library of any version from 2.2.5 on: it is linked against stand-ins that carry the old
symbol versions, and starts without this machine's start-up files.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

_SOURCE = """
extern int printf(const char *, ...);
extern int fflush(void *);
extern void _exit(int);
extern void *dlopen(const char *, int);
extern void *dlsym(void *, const char *);
extern char *dlerror(void);

void run(long *stack)
{
    long count = *stack;
    char **words = (char **)(stack + 1);
    for (long i = 1; i < count; i++) {
        void *library = dlopen(words[i], 2);
        if (!library) {
            printf("%s FAILED %s\\n", words[i], dlerror());
            continue;
        }
        int (*answer)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
        printf("%s ok %d\\n", words[i], answer ? answer(0) : -1);
    }
    fflush(0);
    _exit(0);
}
__asm__(".globl _start\\n_start: xor %rbp, %rbp\\n mov %rsp, %rdi\\n"
        " and $-16, %rsp\\n call run\\n");
"""

_STANDINS = {
    "libc.so.6": ("printf", "fflush", "_exit"),
    "libdl.so.2": ("dlopen", "dlsym", "dlerror"),
}


def build_probe(folder: Path) -> Path:
    """Compile the probe (x86-64) in `folder`."""
    return link_program(folder, "probe", _SOURCE)


def link_program(folder: Path, name: str, source: str) -> Path:
    """Compile a program whose only symbols from outside are those of the stand-ins."""
    folder.mkdir(parents=True, exist_ok=True)
    libraries = []
    for soname, names in _STANDINS.items():
        script = folder / f"{soname}.map"
        script.write_text("GLIBC_2.2.5 { global: *; };\n")
        body = "".join(f"void {name}(void) {{}}\n" for name in names)
        library = folder / soname
        _compile(
            body, "-shared", "-fPIC", "-fno-builtin", f"-Wl,-soname,{soname}",
            f"-Wl,--version-script={script}", "-o", str(library),
        )  # fmt: skip
        libraries.append(str(library))
    program = folder / name
    _compile(
        source, "-O1", "-fno-stack-protector", "-no-pie", "-fno-builtin", "-o", str(program),
        "-Wl,--dynamic-linker=/lib64/ld-linux-x86-64.so.2", "-Wl,--no-as-needed", "-x", "none",
        *libraries,
    )  # fmt: skip
    return program


def _compile(source: str, *arguments: str) -> None:
    subprocess.run(
        ["gcc", "-w", "-nostdlib", "-nostartfiles", "-x", "c", "-", *arguments],
        input=source, text=True, check=True,
    )  # fmt: skip
