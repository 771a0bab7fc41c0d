"""`kernels/build budget`: what each kernel costs, and which bound wins on two GPUs."""

import sys
from dataclasses import dataclass

import sass
import variants

TABLE = variants.KERNELS / "BUDGET.md"
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
PARAMS_PER_THREAD = 16
ROUNDS = 12
ALL_ROUNDS = (8, 12, 20)
BANDS, TERMS = 16, 4
LOOPS = {"ring.cu": {"history": BANDS - 1}, "regenerate.cu": {"terms": TERMS}}
TOLERANCE = 1.05


@dataclass(frozen=True)
class Gpu:
    """Published figures: bytes/s, streaming multiprocessors, boost clock, lanes per clock of each pipe and of the issue slots."""

    name: str
    arch: str
    bandwidth: float
    sms: int
    clock: float
    lanes: dict


GPUS = (
    Gpu("A100", "sm_80", 2.039e12, 108, 1.41e9, {"fp32": 64, "imad": 64, "alu": 64, "xu": 16, "memory": 32, "issue": 128}),
    Gpu("H100", "sm_90", 3.35e12, 132, 1.755e9, {"fp32": 128, "imad": 64, "alu": 64, "xu": 16, "memory": 32, "issue": 128}),
)


@dataclass(frozen=True)
class Kernel:
    module: variants.Module
    gradient: str

    @property
    def name(self):
        return f"{self.module.name} {self.gradient}"

    def bytes(self):
        """Least bytes per parameter and step: gradient both ways, every slot that the step needs once, what it changes once more."""
        gradient = 2 * variants.GRADIENTS[self.gradient]
        if self.module.source == "blt.cu":
            return gradient + 8 * int(self.module.name[3:])
        if self.module.source == "ring.cu":
            return gradient + (4 if self.module.name == "ring" else 2) * BANDS
        return gradient


def measure():
    """{rounds: {(kernel name, arch): (registers, spills, instructions per parameter by pipe)}}, and the kernels."""
    found = {rounds: {} for rounds in ALL_ROUNDS}
    kernels = [Kernel(module, gradient) for module in variants.MODULES for gradient in variants.GRADIENTS]
    for module in variants.MODULES:
        whole, common = module.ptx(), module.ptx("FULL_TILES_ONLY")
        for arch in ARCHITECTURES:
            resources = sass.assemble(whole, arch)[1]
            text = sass.assemble(common, arch)[0]
            for gradient in variants.GRADIENTS:
                entry = f"noise_{gradient}"
                for rounds in ALL_ROUNDS:
                    counts = sass.executed(text, entry, {"four rounds": rounds // 4, **LOOPS.get(module.source, {})})
                    per_param = {pipe: count / PARAMS_PER_THREAD for pipe, count in counts.items()}
                    found[rounds][f"{module.name} {gradient}", arch] = (*resources[entry], per_param)
    return found, kernels


def compute_time(gpu, pipes):
    """Seconds per parameter when nothing waits for memory: the busiest pipe, or the issue slots."""
    busy = [pipes.get(pipe, 0) / lanes for pipe, lanes in gpu.lanes.items() if pipe != "issue"]
    # On Hopper integer multiply-adds share the pipe of the float ones.
    issue = sum(pipes.values()) / gpu.lanes["issue"]
    return max(issue, (pipes.get("fp32", 0) + pipes.get("imad", 0)) / gpu.lanes["fp32"], *busy) / (gpu.sms * gpu.clock)


def run(check):
    by_rounds, kernels = measure()
    found = by_rounds[ROUNDS]
    spilled = [f"{name} on {arch} spills {values[1]} bytes" for (name, arch), values in found.items() if values[1]]
    if spilled:
        sys.exit("; ".join(spilled))
    if check:
        return compare(found)
    lines = [row(kernel, found) for kernel in kernels]
    TABLE.write_text(page(lines, rounds_table(by_rounds, kernels)), encoding="utf-8")
    print(f"{TABLE.name}: {len(lines)} kernels, no spills")


def total(values):
    return sum(values[2].values())


def row(kernel, found):
    registers = "/".join(str(found[kernel.name, arch][0]) for arch in ARCHITECTURES)
    pipes = found[kernel.name, "sm_80"][2]
    instructions = [f"{total(found[kernel.name, arch]):.1f}" for arch in ARCHITECTURES]
    by_pipe = " ".join(f"{pipes.get(pipe, 0):.1f}" for pipe in ("alu", "imad", "fp32", "xu", "memory", "control", "uniform"))
    cells = [kernel.name, registers, "0", *instructions, by_pipe, str(kernel.bytes())]
    for gpu in GPUS:
        memory = kernel.bytes() / gpu.bandwidth
        compute = compute_time(gpu, found[kernel.name, gpu.arch][2])
        cells += [f"{1e12 * memory:.1f}", f"{1e12 * compute:.1f}", bound(memory, compute)]
    return "| " + " | ".join(cells) + " |"


def bound(memory, compute):
    return f"memory {memory / compute:.1f}×" if memory > compute else f"compute {compute / memory:.1f}×"


def rounds_table(by_rounds, kernels):
    lines = []
    for kernel in kernels:
        if kernel.name not in ("blt0 f32", "blt0 bf16", "blt4 f32", "blt4 bf16", "ring f32", "regenerate f32"):
            continue
        cells = [kernel.name]
        for rounds in sorted(by_rounds):
            for gpu in GPUS:
                values = by_rounds[rounds][kernel.name, gpu.arch]
                cells.append(bound(kernel.bytes() / gpu.bandwidth, compute_time(gpu, values[2])))
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def compare(found):
    """Fails if a kernel has more than 5% more instructions than the table says."""
    listed = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 14 and cells[0].split(" ")[-1] in variants.GRADIENTS:
            listed.update({(cells[0], arch): float(cells[3 + i]) for i, arch in enumerate(ARCHITECTURES)})
    missing = set(found) ^ set(listed)
    if missing:
        sys.exit(f"{TABLE.name} and the kernels differ in {sorted(missing)}; run kernels/build budget")
    worse = [f"{name} on {arch}: {total(values):.1f} instructions per parameter, the table says {listed[name, arch]}"
             for (name, arch), values in found.items() if total(values) > TOLERANCE * listed[name, arch]]
    if worse:
        sys.exit("; ".join(worse))
    print(f"{len(found)} budgets hold: no spills, no kernel more than 5% above its table")


def page(lines, rounds):
    gpus = "; ".join(f"{g.name}: {g.bandwidth / 1e12:.2f} TB/s, {g.sms} SMs at {g.clock / 1e9:.2f} GHz" for g in GPUS)
    return PAGE.format(lines="\n".join(lines), rounds="\n".join(rounds), gpus=gpus, bands=BANDS, terms=TERMS)


PAGE = """# What each kernel costs

Written by `kernels/build budget` from the machine code that ptxas makes of the kernels; no GPU was involved, and nothing here was measured
on one. CI fails on a spill, or on more than 5% more instructions than this table says.

Registers and spills are those of the kernels that run. Instructions are those that a thread of a full, aligned tile executes, divided
by its 16 parameters: the kernels are compiled once more without what almost no thread executes (tail extension, edges, schedules), loops are
weighted with their turns, and the special cases of the square root are left out. Pipes of sm_80: integer and logic (ALU), integer
multiply-add, FP32, special functions, loads and stores, control, uniform datapath. Bytes are the least that the form needs:
8 + 8·d for BLT on f32, 8 + 4·bands for a ring, 8 for independent and regenerated noise; `crates/cuda-sim` counts the same when it
executes the PTX.

Times are picoseconds per parameter: bytes over bandwidth, and the busiest of issue slots and pipes ({gpus}). The larger one bounds
the kernel from below; the factor says by how much. ChaCha12; rings of {bands} bands, regenerated sums of {terms} rows.

| kernel | registers (sm_80/90/100) | spills | instructions, sm_80 | sm_90 | sm_100 | alu, imad, fp32, special, memory, control, uniform | bytes | A100 memory (ps) | compute (ps) | bound | H100 memory (ps) | compute (ps) | bound |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
{lines}

The same bound with other numbers of rounds:

| kernel | 8, A100 | 8, H100 | 12, A100 | 12, H100 | 20, A100 | 20, H100 |
|---|---|---|---|---|---|---|
{rounds}
"""
