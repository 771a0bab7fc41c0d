"""The list of modules: one per form, and per number of BLT buffers, each with one entry per gradient type."""

from dataclasses import dataclass
from pathlib import Path

import nvrtc

KERNELS = Path(__file__).resolve().parents[1]
# Inside the crate that embeds the modules, so that it can be packaged.
PTX = KERNELS.parent / "crates/cuda/ptx"
GRADIENTS = {"f32": 4, "bf16": 2, "f16": 2}
# Every GPU from Volta on compiles this by itself.
BASELINE = "--gpu-architecture=compute_70"


@dataclass(frozen=True)
class Module:
    name: str
    source: str
    defines: tuple[str, ...]

    def ptx(self, *more: str, folder: Path = KERNELS) -> str:
        options = [BASELINE, "--std=c++14", *(f"--define-macro={d}" for d in (*self.defines, *more))]
        return nvrtc.compile_ptx(folder / self.source, options)

    def path(self) -> Path:
        return PTX / f"{self.name}.ptx"


MODULES = [
    *(Module(f"blt{d}", "blt.cu", (f"BUFFERS={d}",)) for d in range(9)),
    Module("ring", "ring.cu", ()),
    Module("regenerate", "regenerate.cu", ()),
]
