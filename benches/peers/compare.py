"""Times one noise step of corrnoise against jax_privacy and PyTorch, and judges the ratios.

For each case and contender:
  1. trial: every variant alone, shortest of a few steps; the best of each group goes on;
  2. rounds: the variant and corrnoise take turns, a few steps each. The ratio of a round compares
     two measurements made within about a second of each other, so a slow neighbour hits both; the
     median over the rounds is reported.
Only corrnoise and one variant hold memory at a time: with 64 bands, all together would not fit.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time
from pathlib import Path

import cases
import report
from peer_process import Peer, PeerError

HERE = Path(__file__).resolve().parent
TIMINGS = os.environ.get("PEER_TIMINGS", HERE.parents[1] / "target/release/examples/peer_timings")

TRIAL_STEPS = 4
# A turn takes about this long: shorter ones lose to the switch, longer ones to the neighbour.
TURN_SECONDS = 0.4
MAX_STEPS = 7

# What XLA allocates and frees in a step is faulted in anew page by page; huge pages make that
# cheap. Users get them by setting this, and few do: hence a contender of its own, shown unjudged.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
# PyTorch's own switch for the same.
TORCH_HUGE_PAGES = {"THP_MEM_ALLOC_ENABLE": "1"}

# Contender: its script, the groups of variants it may choose from, its environment.
CONTENDERS = {
    cases.JAX: ("jax_forms.py", ("flat", "64-leaves"), {}),
    cases.JAX_HUGE: ("jax_forms.py", ("flat", "64-leaves"), HUGE_PAGES),
    cases.TORCH_PLAIN: ("torch_forms.py", ("plain",), {}),
    cases.TORCH_STRONG: ("torch_forms.py", ("one-generator", "two-generators"), TORCH_HUGE_PAGES),
}


def main():
    options = arguments()
    restrict_cores()
    results = {"cases": {}, "versions": {}, "rounds": options.rounds, "threads": cases.THREADS}
    for name in options.cases:
        results["cases"][name] = measure(name, options, results["versions"])
        results["checks"] = checks(results["cases"])
        if options.json:
            write(options.json, results)
    report.show(results)
    missed = [check["name"] for check in results["checks"] if not check["passed"]]
    if missed:
        sys.exit(f"{len(missed)} of {len(results['checks'])} missed: " + "; ".join(missed))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default=",".join(cases.CASES), help="comma separated (default: all)")
    parser.add_argument("--rounds", type=int, default=9, help="rounds per variant (default: 9)")
    parser.add_argument("--dim", type=int, help="parameters in place of each case's own number: to try "
                        "the script, as the minimum ratios are stated for the defaults")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything here")
    options = parser.parse_args()
    options.cases = options.cases.split(",")
    if unknown := [name for name in options.cases if name not in cases.CASES]:
        parser.error(f"unknown case {unknown[0]}: expected some of {','.join(cases.CASES)}")
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: expected at least 1")
    if options.dim is not None and options.dim < 64:
        parser.error(f"--dim {options.dim}: expected at least 64, one parameter for each leaf")
    if options.json and not os.access(options.json.parent, os.W_OK):
        parser.error(f"--json {options.json}: its directory does not exist or cannot be written")
    if not os.access(TIMINGS, os.X_OK):
        parser.error(f"{TIMINGS} is not an executable: run ./run, or set PEER_TIMINGS")
    return options


def write(path, results):
    """After every case, since a run is long; replaced whole, so that no half file is left."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(results, indent=1) + "\n")
    partial.replace(path)


def restrict_cores():
    """JAX sizes its pool by the cores it may use; children inherit the restriction."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < cases.THREADS:
        sys.exit(f"{len(cores)} core available, {cases.THREADS} are needed")
    os.sched_setaffinity(0, cores[: cases.THREADS])


def measure(name, options, versions):
    """All rows of one case. A contender that fails leaves an error in place of rows."""
    case = cases.CASES[name]
    dim = options.dim or case.dim
    result = {"dim": dim, "rows": [], "trials": {}, "errors": {}, "cores": []}
    with Peer([str(TIMINGS)]) as corrnoise:

        def ours(steps):
            return corrnoise.seconds(name, dim, cases.THREADS, steps)

        for contender, (script, groups, environment) in CONTENDERS.items():
            if script == "torch_forms.py" and not case.torch:
                continue
            progress(f"{name}: {contender}")
            try:
                with Peer([sys.executable, str(HERE / script)], environment) as peer:
                    versions[script.removesuffix("_forms.py")] = peer.ask("version")
                    trials = trial(peer, name, groups, dim)
                    result["trials"][contender] = trials
                    # Where nothing is judged, the best of all variants is enough.
                    last = None if contender in case.minimum else 1
                    for variant in finalists(trials)[:last]:
                        result["cores"].append(cores_free())
                        theirs = lambda steps: peer.seconds(f"{name}:{variant}", dim, cases.THREADS, steps)
                        result["rows"].append(row(contender, variant, rounds(theirs, ours, options.rounds)))
            except PeerError as error:
                progress(str(error))
                result["errors"][contender] = str(error)
        if name == cases.BANDWIDTH_CASE:
            bound = cases.BANDWIDTH_BOUND
            progress(f"{name}: {bound}")
            try:
                # A process of its own, so that neither case is set up anew each round.
                with Peer([str(TIMINGS)]) as peer:
                    theirs = lambda steps: peer.seconds(bound, dim, cases.THREADS, steps)
                    result["rows"].append(row(bound, "", rounds(theirs, ours, options.rounds)))
            except PeerError as error:
                result["errors"][bound] = str(error)
    return result


def trial(peer, case, groups, dim):
    """Seconds per step of each variant. The shortest, because a neighbour can only add."""
    seconds = {}
    for variant in peer.ask(f"variants {case}").split():
        if group(variant) in groups:
            question = f"{case}:{variant}", dim, cases.THREADS, 1
            seconds[variant] = min(peer.seconds(*question) for _ in range(TRIAL_STEPS))
    return seconds


def group(variant):
    return variant.split("/")[0]


def finalists(trials):
    """The best variant of each group, the best of all first."""
    best = {}
    for variant in sorted(trials, key=trials.get):
        best.setdefault(group(variant), variant)
    return list(best.values())


def rounds(theirs, ours, count):
    """Seconds per step of both, `count` times in turn, after a first turn that is thrown away."""
    turns = [(run, min(MAX_STEPS, max(1, round(TURN_SECONDS / run(1))))) for run in (theirs, ours)]
    return [[run(steps) for run, steps in turns] for _ in range(count)]


def row(contender, variant, pairs):
    theirs, ours = zip(*pairs)
    measured = {
        "contender": contender,
        "variant": variant,
        "seconds": statistics.median(theirs),
        "corrnoise_seconds": statistics.median(ours),
        "ratio": statistics.median(t / o for t, o in pairs),
        "rounds": pairs,
    }
    progress(f"{contender} {variant}: {measured['seconds']:.4f} s, {measured['ratio']:.2f} times corrnoise's")
    return measured


def cores_free(seconds=0.2):
    """Cores' worth of time that THREADS spinning processes get: below THREADS, a neighbour has the rest."""
    with multiprocessing.Pool(cases.THREADS) as pool:
        return round(sum(pool.map(spin, [seconds] * cases.THREADS, chunksize=1)), 2)


def spin(seconds):
    start, used = time.perf_counter(), time.process_time()
    while time.perf_counter() - start < seconds:
        pass
    return (time.process_time() - used) / seconds


def checks(measured):
    """One entry per minimum ratio, judged against the contender's best variant."""
    found = []
    for name, result in measured.items():
        minimums = dict(cases.CASES[name].minimum)
        if name == cases.BANDWIDTH_CASE:
            minimums[cases.BANDWIDTH_BOUND] = cases.MINIMUM_SHARE
        for contender, minimum in minimums.items():
            ratios = [row["ratio"] for row in result["rows"] if row["contender"] == contender]
            ratio = min(ratios, default=None)
            got = "not measured" if ratio is None else f"{ratio:.2f}x"
            found.append({
                "name": f"{name}: speed over {contender} {got}, minimum {minimum}x",
                "minimum": minimum,
                "measured": ratio,
                "passed": ratio is not None and contender not in result["errors"] and ratio >= minimum,
            })
    return found


def progress(text):
    print(f"-- {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
