"""Machine code of a kernel: registers and spills from ptxas, executed instructions per thread by pipe from nvdisasm."""

import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import nvidia

PACKAGES = Path(list(nvidia.__path__)[0])
PTXAS = PACKAGES / "cuda_nvcc/bin/ptxas"
NVDISASM = PACKAGES / "cu13/bin/nvdisasm"

# Opcode stem to pipe; what starts with U runs beside them on the uniform datapath, once per warp.
PIPES = {
    "fp32": ("FFMA", "FMUL", "FADD", "HFMA2"),  # HFMA2 loads constants
    "imad": ("IMAD",),
    "alu": ("IADD", "LOP", "SHF", "LEA", "ISETP", "SEL", "PRMT", "MOV", "I2FP", "FSEL", "FSETP", "FMNMX", "IMNMX",
            "PLOP", "VIADD", "VIMNMX", "P2R", "R2P", "CS2R", "IABS", "F2FP", "BMSK", "SGXT", "HADD2", "VIADDMNMX", "FADD2"),
    "xu": ("MUFU", "I2F", "F2F", "F2I", "FRND", "POPC", "FLO", "S2R", "S2UR", "R2UR"),
    # STL and LDL: a kernel may spill where it is compiled for counting only; what runs is checked for spills by itself.
    "memory": ("LDG", "STG", "LDS", "STS", "LDC", "LD", "ST", "ATOM", "RED", "REDG", "LDCU", "STL", "LDL"),
    "control": ("BRA", "EXIT", "BSSY", "BSYNC", "NOP", "CALL", "RET", "WARPSYNC", "YIELD", "BREAK", "DEPBAR", "ACQBULK", "BAR"),
    "uniform": ("U",),
}


def pipe(opcode):
    stem = opcode.split(".")[0]
    if stem == "I2FP" or stem == "F2FP":
        return "alu"
    for name, stems in PIPES.items():
        if any(stem == known or (stem.rstrip("0123456789") == known) for known in stems):
            return name
    if stem.startswith("U"):
        return "uniform"
    raise SystemExit(f"{opcode}: unknown to kernels/tools/sass.py; say which pipe runs it")


def assemble(ptx, arch):
    """(machine code as text, {kernel: (registers, spilled bytes)})."""
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder, "k.ptx"), Path(folder, "k.cubin")
        source.write_text(ptx)
        log = tool(PTXAS, "-v", f"-arch={arch}", source, "-o", binary).stderr
        return tool(NVDISASM, "-c", binary).stdout, resources(log)


def tool(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{Path(command[0]).name}: {done.stderr}")
    return done


def resources(log):
    found = {}
    for name, rest in re.findall(r"Function properties for (\w+)\n(.*?registers)", log, re.S):
        spills = sum(int(n) for n in re.findall(r"(\d+) bytes spill", rest))
        found[name] = (int(re.search(r"Used (\d+) registers", rest)[1]), spills)
    return found


def executed(text, kernel, trips):
    """Instructions by pipe that a thread executes; `trips` gives the turns of each loop it has."""
    lines = body(text, kernel)
    loops = [(first, last, kind(lines[first : last + 1])) for first, last in backward(lines)]
    if sorted(name for _, _, name in loops) != sorted(trips):
        raise SystemExit(f"{kernel}: loops {[name for _, _, name in loops]}, expected {list(trips)}")
    cold = slow_paths(lines)
    counts = Counter()
    for i, (_, opcode, _) in enumerate(lines):
        if opcode is None or i in cold:
            continue
        weight = 1
        for first, last, name in loops:
            if first <= i <= last:
                weight *= trips[name]
        counts[pipe(opcode)] += weight
    return counts


def body(text, kernel):
    """(label or None, opcode or None, target or None) per line, up to the subroutines behind the kernel."""
    section = text.split(f".text.{kernel}:\n")[1].split("//----")[0]
    # Subroutines come last, behind a label of their own.
    section = re.split(r"^\$__internal_\d+_[^\n]*:$", section, flags=re.M)[0]
    lines = []
    for line in section.splitlines():
        if label := re.match(r"^(\.L_x_\d+):", line):
            lines.append((label[1], None, None))
        elif code := re.match(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+ )?([A-Z][\w.]*)(.*)", line):
            target = re.search(r"`\((\S+)\)", code[2])
            lines.append((None, code[1], target[1] if target else None))
    # Behind the last exit there is only padding and an endless loop that keeps the prefetcher in.
    last = max(i for i, line in enumerate(lines) if line[1] == "EXIT")
    return lines[: last + 1]


def backward(lines):
    places = {label: i for i, (label, _, _) in enumerate(lines) if label}
    return [(places[target], i) for i, (_, opcode, target) in enumerate(lines)
            if (opcode or "").startswith("BRA") and target in places and places[target] < i]


def kind(lines):
    opcodes = [opcode.split(".")[0] for _, opcode, _ in lines if opcode]
    if "MUFU" in opcodes:
        return "terms"
    if "LDG" not in opcodes:
        return "four rounds"
    return "history" if "FFMA" in opcodes else "copy"


def minima(text, kernel):
    """The number of minima in a kernel's machine code."""
    return sum((opcode or "").split(".")[0].startswith(("IMNMX", "VIMNMX")) for _, opcode, _ in body(text, kernel))


def slow_paths(lines):
    """Forward branches around a call: the special cases of a square root, never taken by these arguments."""
    places = {label: i for i, (label, _, _) in enumerate(lines) if label}
    cold = set()
    for i, (_, opcode, target) in enumerate(lines):
        if (opcode or "").startswith("BRA") and target in places and places[target] > i:
            between = range(i + 1, places[target])
            if any((lines[k][1] or "").startswith("CALL") for k in between) and len(between) < 12:
                cold.update(between)
    return cold
