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
    """A kernel at one size: of which module, which entry, how often its loops turn, and what a thread and the form have to do."""

    name: str
    module: variants.Module
    entry: str
    trips: dict  # turns of every loop but ChaCha's
    samples: float  # ChaCha blocks of noise per thread
    params: int  # parameters and steps per thread
    bytes: float  # least bytes per parameter and step
    rows: int = 1  # rows that a turn makes


def kernels():
    """The fused kernels and `add`, one per gradient type, then those that make rows ahead."""
    found = []
    for module in variants.MODULES:
        if module.makes:
            continue
        state = {"blt.cu": 8 * int(module.name[3:4]) if module.source == "blt.cu" else 0, "ring.cu": 4 * BANDS, "add.cu": 4}
        samples = {"regenerate.cu": TERMS, "add.cu": 0}.get(module.source, 1)
        for gradient in module.gradients:
            size = variants.GRADIENTS[gradient]
            trips = LOOPS.get(module.source, {})
            least = 2 * size + state.get(module.source, 0)
            found.append(Kernel(f"{module.name} {gradient}", module, f"noise_{gradient}", trips, samples, PARAMS_PER_THREAD, least))
    for module in variants.MODULES:
        number = int("0" + "".join(filter(str.isdigit, module.name)))
        if module.source == "make_blt.cu":
            found.append(made(module.name, module, 8, {"history": 8, "terms": 8}, 8, 8 * number / 8 + 8))
        if module.source == "make_regenerate.cu":
            for terms in (TERMS, 32):
                found.append(made(f"{module.name}, {terms} rows", module, 8, {"terms": terms + 7}, terms + 7, 4))
        if module.source == "make_ring.cu":
            for bands in (16, 64):
                found.append(made_ring(f"{module.name}, {bands} bands", module, number, bands - 1))
    return found


def made(name, module, rows, trips, samples, least):
    """A thread makes 16 coordinates of all rows."""
    return Kernel(name, module, "make", trips, samples, PARAMS_PER_THREAD * rows, least, rows)


def made_ring(name, module, rows, past):
    """A thread samples 16 coordinates of every fourth row, and sums four of all rows; past outputs that not all rows use are unrolled."""
    quads = past * rows // 4
    trips = {
        "copy": -(-quads // 32) / 4,  # by warps, of which there are four
        "terms": rows / 4,
        "history": (past - (rows - 1)) / (4 if rows == 8 else 2),
    }
    return Kernel(name, module, "make", trips, rows / 4, 4 * rows, 4 * past / rows + 4, rows)


def measure():
    """{rounds: {(kernel name, arch): (registers, spills, instructions per parameter by pipe)}}, what the grid adds, and the kernels."""
    found, grid = {rounds: {} for rounds in ALL_ROUNDS}, {}
    listed = kernels()
    tail = {arch: tail_test(arch) for arch in ARCHITECTURES}
    for module in variants.MODULES:
        whole, common = module.ptx(), module.ptx("FULL_TILES_ONLY")
        of_module = [kernel for kernel in listed if kernel.module == module]
        for arch in ARCHITECTURES:
            resources = sass.assemble(whole, arch)[1]
            text = sass.assemble(common, arch)[0]
            for kernel in of_module:
                for rounds in ALL_ROUNDS:
                    per_param = instructions(text, kernel, rounds, tail[arch])
                    found[rounds][kernel.name, arch] = (*resources[kernel.entry], per_param)
        if not module.makes:
            plain = sass.assemble(module.ptx("FULL_TILES_ONLY", "PLAIN=true"), "sm_80")[0]
            for kernel in of_module:
                without = instructions(plain, kernel, ROUNDS, tail["sm_80"])
                grid[kernel.name] = total(found[ROUNDS][kernel.name, "sm_80"]) - sum(without.values())
    return found, grid, listed


def instructions(text, kernel, rounds, tail):
    """Instructions per parameter by pipe; `tail` is what each ChaCha block of noise takes beside those in `text`."""
    # Fused kernels have the first four rounds before the loop: the host makes two columns of them.
    chacha = {"four rounds": rounds // 4 - (not kernel.module.makes)} if kernel.samples else {}
    counts = sass.executed(text, kernel.entry, {**chacha, **kernel.trips})
    for pipe, count in tail.items():
        counts[pipe] += kernel.samples * count
    return {pipe: count / kernel.params for pipe, count in counts.items()}


def tail_test(arch):
    """The test for a small radius word among a block's eight, which the common path leaves out with what it guards: the minima that the
    smallest kernel has, a comparison and a branch."""
    blt0 = next(module for module in variants.MODULES if module.name == "blt0")
    return {"alu": sass.minima(sass.assemble(blt0.ptx(), arch)[0], "noise_f32") + 1, "control": 1}


def compute_time(gpu, pipes):
    """Seconds per parameter when nothing waits for memory: the busiest pipe, or the issue slots."""
    busy = [pipes.get(pipe, 0) / lanes for pipe, lanes in gpu.lanes.items() if pipe != "issue"]
    # On Hopper integer multiply-adds share the pipe of the float ones.
    issue = sum(pipes.values()) / gpu.lanes["issue"]
    return max(issue, (pipes.get("fp32", 0) + pipes.get("imad", 0)) / gpu.lanes["fp32"], *busy) / (gpu.sms * gpu.clock)


def run(check):
    by_rounds, grid, kernels = measure()
    found = by_rounds[ROUNDS]
    spilled = [f"{name} on {arch} spills {values[1]} bytes" for (name, arch), values in found.items() if values[1]]
    if spilled:
        sys.exit("; ".join(spilled))
    if check:
        return compare(found)
    fused = [row(kernel, found, f"{grid[kernel.name]:.1f}") for kernel in kernels if not kernel.module.makes]
    ahead = [row(kernel, found, str(kernel.rows)) for kernel in kernels if kernel.module.makes]
    tables = {"lines": fused, "ahead": ahead, "steps": steps_table(found, kernels), "rounds": rounds_table(by_rounds, kernels)}
    TABLE.write_text(page(tables), encoding="utf-8")
    print(f"{TABLE.name}: {len(fused) + len(ahead)} kernels, no spills")


def total(values):
    return sum(values[2].values())


def row(kernel, found, last):
    registers = "/".join(str(found[kernel.name, arch][0]) for arch in ARCHITECTURES)
    pipes = found[kernel.name, "sm_80"][2]
    instructions = [f"{total(found[kernel.name, arch]):.1f}" for arch in ARCHITECTURES]
    by_pipe = " ".join(f"{pipes.get(pipe, 0):.1f}" for pipe in ("alu", "imad", "fp32", "xu", "memory", "control", "uniform"))
    cells = [kernel.name, registers, "0", *instructions, by_pipe, f"{kernel.bytes:g}"]
    for gpu in GPUS:
        memory = kernel.bytes / gpu.bandwidth
        compute = compute_time(gpu, found[kernel.name, gpu.arch][2])
        cells += [f"{1e12 * memory:.1f}", f"{1e12 * compute:.1f}", bound(memory, compute)]
    return "| " + " | ".join([*cells, last]) + " |"


def bound(memory, compute):
    return f"memory {memory / compute:.1f}×" if memory > compute else f"compute {compute / memory:.1f}×"


def steps_table(found, kernels):
    """A whole step on f32 gradients: the fused kernel's time, and that of `make` and `add` one after the other."""
    by_name = {kernel.name: kernel for kernel in kernels}
    lines = []
    for kernel in kernels:
        if not kernel.module.makes:
            continue
        form = kernel.module.name[len("make_"):]
        cells = [kernel.name]
        fused = by_name["ring f32" if form.startswith("ring") else f"{form} f32"]
        # A fused kernel of another size than that of the first table is not listed.
        same = kernel.name.split(", ")[-1] in (kernel.module.name, f"{BANDS} bands", f"{TERMS} rows")
        cells += [f"{fused.bytes:g}" if same else "", f"{kernel.bytes + by_name['add f32'].bytes:g}"]
        for gpu in GPUS:
            time = {k.name: max(k.bytes / gpu.bandwidth, compute_time(gpu, found[k.name, gpu.arch][2])) for k in (kernel, fused, by_name["add f32"])}
            cells += [f"{1e12 * time[fused.name]:.1f}" if same else "", f"{1e12 * (time[kernel.name] + time['add f32']):.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def rounds_table(by_rounds, kernels):
    lines = []
    for kernel in kernels:
        if kernel.name not in ("blt0 f32", "blt0_80 bf16", "blt4 f32", "blt4_80 bf16", "ring f32", "regenerate f32"):
            continue
        cells = [kernel.name]
        for rounds in sorted(by_rounds):
            for gpu in GPUS:
                values = by_rounds[rounds][kernel.name, gpu.arch]
                cells.append(bound(kernel.bytes / gpu.bandwidth, compute_time(gpu, values[2])))
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def compare(found):
    """Fails if a kernel has more than 5% more instructions than the table says."""
    listed = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 15 and cells[0] in {name for name, _ in found}:
            listed.update({(cells[0], arch): float(cells[3 + i]) for i, arch in enumerate(ARCHITECTURES)})
    missing = set(found) ^ set(listed)
    if missing:
        sys.exit(f"{TABLE.name} and the kernels differ in {sorted(missing)}; run kernels/build budget")
    worse = [f"{name} on {arch}: {total(values):.1f} instructions per parameter, the table says {listed[name, arch]}"
             for (name, arch), values in found.items() if total(values) > TOLERANCE * listed[name, arch]]
    if worse:
        sys.exit("; ".join(worse))
    print(f"{len(found)} budgets hold: no spills, no kernel more than 5% above its table")


def page(tables):
    gpus = "; ".join(f"{g.name}: {g.bandwidth / 1e12:.2f} TB/s, {g.sms} SMs at {g.clock / 1e9:.2f} GHz" for g in GPUS)
    texts = {name: "\n".join(lines) for name, lines in tables.items()}
    return PAGE.format(**texts, gpus=gpus, bands=BANDS, terms=TERMS)


PAGE = """# What each kernel costs

Written by `kernels/build budget` from the machine code that ptxas makes of the kernels; no GPU was involved, and nothing here was measured
on one. CI fails on a spill, or on more than 5% more instructions than this table says.

Registers and spills are those of the kernels that run. Instructions are those that a thread of a full, aligned tile executes, divided
by its 16 parameters: the kernels are compiled once more without what almost no thread executes (tail extension, edges, schedules), loops are
weighted with their turns. A module `…_80` is what GPUs of compute capability 8.0 and newer run for bf16 gradients; the others' bf16 is for
older ones. The test for a tail is counted, as many minima as
`blt0` has (7, or 4 of three operands), a comparison and a branch per sixteen normals: it is left out of the common path together with the
tail that it guards. The last column says how many of the instructions are the output grid's: those that are fewer when the kernel is compiled
to add plainly. Pipes of sm_80: integer and logic (ALU), integer
multiply-add, FP32, special functions, loads and stores, control, uniform datapath. Bytes are the least that the form needs:
8 + 8·d for BLT on f32, 8 + 4·bands for a ring, 8 for independent and regenerated noise, 12 for `add`; `crates/cuda-sim` counts the same when it
executes the PTX.

Times are picoseconds per parameter: bytes over bandwidth, and the busiest of issue slots and pipes ({gpus}). The larger one bounds
the kernel from below; the factor says by how much. ChaCha12; rings of {bands} bands, regenerated sums of {terms} rows.

| kernel | registers (sm_80/90/100) | spills | instructions, sm_80 | sm_90 | sm_100 | alu, imad, fp32, special, memory, control, uniform | bytes | A100 memory (ps) | compute (ps) | bound | H100 memory (ps) | compute (ps) | bound | of the grid |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
{lines}

## Rows ahead

`make` in the steady state, per parameter and step of a turn. A ring reads each of h = bands − 1 past outputs once per turn and writes every row,
4h/K + 4 bytes; a BLT reads and writes its buffers, reads the last turn's rows and writes this one's, 8d/K + 8; a regenerated sum writes
its rows. Tables, marks and segments are a few bytes per tile, not counted. The last column is K, the rows of a turn.

| kernel | registers (sm_80/90/100) | spills | instructions, sm_80 | sm_90 | sm_100 | alu, imad, fp32, special, memory, control, uniform | bytes | A100 memory (ps) | compute (ps) | bound | H100 memory (ps) | compute (ps) | bound | K |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
{ahead}

A step on f32 gradients, fused or as `make` and `add` one after the other; with `prepare` only `add` is on the critical path, 12 bytes
for every form.

| kernel | fused: bytes | ahead: bytes | fused: A100 (ps) | ahead | fused: H100 (ps) | ahead |
|---|---|---|---|---|---|---|
{steps}

The same bound with other numbers of rounds:

| kernel | 8, A100 | 8, H100 | 12, A100 | 12, H100 | 20, A100 | 20, H100 |
|---|---|---|---|---|---|---|
{rounds}
"""
