"""The list of modules: one per form and per number of BLT buffers, with one entry per gradient type, and those that make rows ahead; and
for newer GPUs each that adds to gradients once more, with one entry for bf16."""

from dataclasses import dataclass, replace
from pathlib import Path

import nvrtc

KERNELS = Path(__file__).resolve().parents[1]
# Inside the crate that embeds the modules, so that it can be packaged.
PTX = KERNELS.parent / "crates/cuda/ptx"
GRADIENTS = {"f32": 4, "bf16": 2, "f16": 2}
# Every GPU from Volta on compiles this by itself.
BASELINE = "compute_70"
# From Ampere on there is an instruction that rounds to bf16.
NATIVE = "compute_80"


@dataclass(frozen=True)
class Module:
    name: str
    source: str
    defines: tuple[str, ...]
    target: str = BASELINE
    gradients: tuple[str, ...] = tuple(GRADIENTS)

    def ptx(self, *more: str, folder: Path = KERNELS) -> str:
        options = [f"--gpu-architecture={self.target}", "--std=c++14", *(f"--define-macro={d}" for d in (*self.defines, *more))]
        return nvrtc.compile_ptx(folder / self.source, options)

    @property
    def makes(self) -> bool:
        """Whether this makes rows ahead: then its one entry is `make`, without a gradient type."""
        return self.source.startswith("make_")

    def path(self) -> Path:
        return PTX / f"{self.name}.ptx"


MODULES = [
    *(Module(f"blt{d}", "blt.cu", (f"BUFFERS={d}",)) for d in range(9)),
    Module("ring", "ring.cu", ()),
    Module("regenerate", "regenerate.cu", ()),
    Module("add", "add.cu", ()),
    *(Module(f"make_blt{d}", "make_blt.cu", ("MAKES_ROWS", f"BUFFERS={d}")) for d in range(1, 9)),
    *(Module(f"make_ring{rows}", "make_ring.cu", ("MAKES_ROWS", f"MAX_ROWS={rows}")) for rows in (8, 16)),
    Module("make_regenerate", "make_regenerate.cu", ("MAKES_ROWS",)),
]
MODULES += [
    replace(module, name=f"{module.name}_80", defines=(*module.defines, "NATIVE_BF16"), target=NATIVE, gradients=("bf16",))
    for module in MODULES
    if not module.name.startswith("make_")
]
