"""A CUDA program that needs nothing but libcuda: adds two vectors on the GPU and checks the sums.

It speaks the driver API and carries its kernel as PTX, so it needs no CUDA toolkit to build or run.
Linked like the probe, so that any C library serves.
"""

from __future__ import annotations

from pathlib import Path

from tests.roots.probe import link_program

_PTX = r"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
    .reg .pred %p; .reg .f32 %f<4>; .reg .b32 %r<6>; .reg .b64 %d<8>;
    ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b]; ld.param.u64 %d3, [c];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p, %r5, %r1;
    @%p bra done;
    mul.wide.u32 %d4, %r5, 4;
    add.s64 %d5, %d1, %d4; add.s64 %d6, %d2, %d4; add.s64 %d7, %d3, %d4;
    ld.global.f32 %f1, [%d5]; ld.global.f32 %f2, [%d6];
    add.f32 %f3, %f1, %f2; st.global.f32 [%d7], %f3;
done:
    ret;
}
"""

_SOURCE = """
extern int printf(const char *, ...);
extern int fflush(void *);
extern void _exit(int);
extern void *dlopen(const char *, int);
extern void *dlsym(void *, const char *);
extern char *dlerror(void);

static const char ptx[] = PTX_TEXT;
static float one[1 << 20], two[1 << 20], sum[1 << 20];
static void *library;

static void stop(int code) { fflush(0); _exit(code); }

static long call(const char *name, unsigned long a, unsigned long b, unsigned long c,
                 unsigned long d)
{
    long (*function)(unsigned long, unsigned long, unsigned long, unsigned long) =
        dlsym(library, name);
    if (!function) { printf("no %s\\n", name); stop(3); }
    long status = (int)function(a, b, c, d);
    if (status) { printf("%s answered %ld\\n", name, status); stop(2); }
    return status;
}

#define CALL(name, a, b, c, d) \\
    call(name, (unsigned long)(a), (unsigned long)(b), (unsigned long)(c), (unsigned long)(d))

void run(long *stack)
{
    (void)stack;
    int device = -1, count = 0, bad = 0;
    char text[100];
    void *context, *module, *function;
    unsigned long memory[3];
    unsigned size = 1 << 20;
    library = dlopen("libcuda.so.1", 2);
    if (!library) { printf("%s\\n", dlerror()); stop(1); }
    CALL("cuInit", 0, 0, 0, 0);
    CALL("cuDeviceGetCount", &count, 0, 0, 0);
    CALL("cuDeviceGet", &device, 0, 0, 0);
    CALL("cuDeviceGetName", text, sizeof text, device, 0);
    CALL("cuDevicePrimaryCtxRetain", &context, device, 0, 0);
    CALL("cuCtxSetCurrent", context, 0, 0, 0);
    CALL("cuModuleLoadData", &module, ptx, 0, 0);
    CALL("cuModuleGetFunction", &function, module, "add", 0);
    for (unsigned i = 0; i < size; i++) { one[i] = i % 1000; two[i] = 2 * (i % 1000); }
    for (int i = 0; i < 3; i++)
        CALL("cuMemAlloc_v2", &memory[i], 4 * (unsigned long)size, 0, 0);
    CALL("cuMemcpyHtoD_v2", memory[0], one, 4 * (unsigned long)size, 0);
    CALL("cuMemcpyHtoD_v2", memory[1], two, 4 * (unsigned long)size, 0);
    void *arguments[] = {&memory[0], &memory[1], &memory[2], &size};
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  void *, void **, void **) = dlsym(library, "cuLaunchKernel");
    int status = launch(function, size / 256, 1, 1, 256, 1, 1, 0, 0, arguments, 0);
    if (status) { printf("cuLaunchKernel answered %d\\n", status); stop(2); }
    CALL("cuCtxSynchronize", 0, 0, 0, 0);
    CALL("cuMemcpyDtoH_v2", sum, memory[2], 4 * (unsigned long)size, 0);
    for (unsigned i = 0; i < size; i++) bad += sum[i] != 3.0f * (i % 1000);
    printf("devices=%d name=%s bad=%d %s\\n", count, text, bad, bad ? "WRONG" : "OK");
    stop(bad != 0);
}
__asm__(".globl _start\\n_start: xor %rbp, %rbp\\n mov %rsp, %rdi\\n"
        " and $-16, %rsp\\n call run\\n");
"""


def build_vector_add(folder: Path) -> Path:
    """Compile the program in `folder`."""
    text = "".join(f'"{line}\\n"\n' for line in _PTX.strip().splitlines())
    return link_program(folder, "vector-add", _SOURCE.replace("PTX_TEXT", text))
