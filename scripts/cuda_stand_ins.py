#!/usr/bin/env python3
"""Static stand-ins for the CUDA libraries: each function opens its library at its first call.

A program linked with them starts where no CUDA is installed; the first call then returns the library's own code for that.
Linux on x86-64 with gcc.

usage: cuda_stand_ins.py SOURCES_OF_CUDARC OUTPUT_FOLDER
"""

import pathlib
import re
import subprocess
import sys
import tempfile

# name: (folder of cudarc's declarations, file names to open, code that a function returns if there is none)
LIBRARIES = {
    "cuda": ("driver", ["libcuda.so.1"], 100),  # CUDA_ERROR_NO_DEVICE
    "nvrtc": ("nvrtc", ["libnvrtc.so.13", "libnvrtc.so.12"], 11),  # NVRTC_ERROR_INTERNAL_ERROR
    "curand": ("curand", ["libcurand.so.10"], 203),  # CURAND_STATUS_INITIALIZATION_FAILED
    "cublas": ("cublas", ["libcublas.so.13", "libcublas.so.12"], 1),  # CUBLAS_STATUS_NOT_INITIALIZED
    "cublasLt": ("cublaslt", ["libcublasLt.so.13", "libcublasLt.so.12"], 1),
}

FUNCTION = re.compile(r"\bfn ((?:cu[A-Z]|cublas|curand|nvrtc)[A-Za-z0-9_]+)\s*\(")

FINDER = """#include <dlfcn.h>
static int missing(void) {{ return {code}; }}
void *stand_in_{name}(const char *function) {{
    static void *handle;
    static int tried;
    const char *files[] = {{{files}}};
    if (!tried) {{
        for (unsigned i = 0; !handle && i < sizeof files / sizeof *files; i++)
            handle = dlopen(files[i], RTLD_LAZY | RTLD_LOCAL);
        tried = 1;
    }}
    void *found = handle ? dlsym(handle, function) : 0;
    return found ? found : (void *)missing;
}}
"""

# Jumps to the real function, found at the first call; registers that hold arguments are kept.
JUMP = """
.section .text.{function},"ax",@progbits
.globl {function}
.type {function},@function
{function}:
    mov r11, [rip + slot_{function}]
    test r11, r11
    jz 1f
    jmp r11
1:  push rdi; push rsi; push rdx; push rcx; push r8; push r9; push rax
    sub rsp, 64
    movq [rsp], xmm0; movq [rsp+8], xmm1; movq [rsp+16], xmm2; movq [rsp+24], xmm3
    movq [rsp+32], xmm4; movq [rsp+40], xmm5; movq [rsp+48], xmm6; movq [rsp+56], xmm7
    lea rdi, [rip + name_{function}]
    call stand_in_{name}
    mov [rip + slot_{function}], rax
    mov r11, rax
    movq xmm0, [rsp]; movq xmm1, [rsp+8]; movq xmm2, [rsp+16]; movq xmm3, [rsp+24]
    movq xmm4, [rsp+32]; movq xmm5, [rsp+40]; movq xmm6, [rsp+48]; movq xmm7, [rsp+56]
    add rsp, 64
    pop rax; pop r9; pop r8; pop rcx; pop rdx; pop rsi; pop rdi
    jmp r11
.section .rodata.{function},"a",@progbits
name_{function}: .asciz "{function}"
.section .bss.{function},"aw",@nobits
.balign 8
slot_{function}: .zero 8
"""


def functions(folder: pathlib.Path) -> list[str]:
    """Names of the functions that cudarc declares of a library."""
    text = "".join(path.read_text() for path in sorted((folder / "sys").rglob("*.rs")))
    return sorted(set(FUNCTION.findall(text)))


def make(name: str, sources: pathlib.Path, out: pathlib.Path) -> None:
    """Writes libNAME.a."""
    folder, files, code = LIBRARIES[name]
    found = functions(sources / folder)
    if not found:
        sys.exit(f"{sources / folder} declares no functions; is it the source of cudarc?")
    listed = ", ".join(f'"{file}"' for file in files)
    finder = FINDER.format(name=name, code=code, files=listed)
    jumps = "".join(JUMP.format(function=function, name=name) for function in found)
    assembly = '.intel_syntax noprefix\n.section .note.GNU-stack,"",@progbits\n' + jumps
    with tempfile.TemporaryDirectory() as work:
        for file, text in (("find.c", finder), ("jump.S", assembly)):
            (pathlib.Path(work) / file).write_text(text)
            subprocess.run(["gcc", "-O2", "-fPIC", "-c", file, "-o", f"{file}.o"], cwd=work, check=True)
        library = (out / f"lib{name}.a").resolve()
        library.unlink(missing_ok=True)
        subprocess.run(["ar", "rcs", library, "find.c.o", "jump.S.o"], cwd=work, check=True)
    print(f"lib{name}.a: {len(found)} functions")


def main() -> None:
    """Makes all stand-ins."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sources, out = map(pathlib.Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    for name in LIBRARIES:
        make(name, sources, out)


if __name__ == "__main__":
    main()
