"""The program behind `kernels/build`, which describes its commands."""

import sys
from pathlib import Path

import budget
import nvrtc
import variants


def main(arguments):
    if arguments[:1] == ["serve"] and len(arguments) == 1:
        return serve()
    check = arguments[1:] == ["--check"]
    if arguments[:1] not in (["ptx"], ["budget"]) or (arguments[1:] and not check):
        sys.exit(f"kernels/build {' '.join(arguments)}: expected ptx or budget, and perhaps --check, or serve")
    try:
        (ptx if arguments[0] == "ptx" else budget.run)(check)
    except nvrtc.CompileError as error:
        sys.exit(f"NVRTC: {error}")


def serve():
    """For mutations of the sources: reads names of a module and a folder, and writes what the folder's sources give into it."""
    modules = {module.name: module for module in variants.MODULES}
    for line in sys.stdin:
        name, folder = line.rstrip("\n").split(" ", 1)
        try:
            text = modules[name].ptx(folder=Path(folder))
            (Path(folder) / f"{name}.ptx").write_text(text, encoding="utf-8")
            print("ok", flush=True)
        except nvrtc.CompileError:
            print("refused", flush=True)


def ptx(check):
    stale = []
    for module in variants.MODULES:
        text = module.ptx()
        path = module.path()
        if check:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                stale.append(str(path.relative_to(variants.KERNELS.parent)))
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    known = {module.path() for module in variants.MODULES}
    stale += [f"{path.name} (no longer made)" for path in variants.PTX.glob("*.ptx") if path not in known]
    if stale:
        sys.exit(f"not what the sources give: {', '.join(stale)}; run kernels/build ptx")
    print(f"{len(variants.MODULES)} modules {'are what the sources give' if check else 'written'}")


main(sys.argv[1:])
