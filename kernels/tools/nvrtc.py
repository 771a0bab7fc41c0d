"""NVRTC through ctypes: CUDA C++ to PTX, without a GPU."""

import ctypes
from pathlib import Path

import nvidia.cuda_nvrtc

FOLDER = Path(nvidia.cuda_nvrtc.__path__[0]) / "lib"


class CompileError(Exception):
    """A failed compilation, with the compiler's log."""


def library():
    # The builtins are looked up by name, so they are loaded first, from beside the library.
    for builtins in FOLDER.glob("libnvrtc-builtins.so*"):
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(FOLDER / "libnvrtc.so.12"))


def compile_ptx(source: Path, options: list[str]) -> str:
    """The PTX of one source file, whose includes are found beside it."""
    nvrtc = library()
    program = ctypes.c_void_p()
    text = source.read_bytes()
    check(nvrtc, nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, source.name.encode(), 0, None, None))
    try:
        arguments = [f"--include-path={source.parent}", *options]
        array = (ctypes.c_char_p * len(arguments))(*[argument.encode() for argument in arguments])
        status = nvrtc.nvrtcCompileProgram(program, len(arguments), array)
        if status:
            raise CompileError(f"{source.name} {' '.join(options)}\n{read(nvrtc, program, 'ProgramLog')}")
        return read(nvrtc, program, "PTX")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def read(nvrtc, program, what):
    size = ctypes.c_size_t()
    check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return buffer.value.decode()


def check(nvrtc, status):
    if status:
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise CompileError(nvrtc.nvrtcGetErrorString(status).decode())
