"""The tables and the verdict of a comparison, as text."""

import statistics

import cases


def show(results):
    print("\n".join(lines(results)))


def lines(results):
    yield "Versions: " + "; ".join(results["versions"].values())
    yield f"{results['threads']} threads, {results['rounds']} rounds, f32, the add to the gradient included"
    yield ""
    yield from table(
        ["case", "contender", "variant", "seconds/step", "parameters/s", "corrnoise is"], measured(results)
    )
    yield ""
    yield "Variants tried (shortest of a few steps, one variant after the other: a choice, not a comparison)"
    yield from table(["case", "contender", "variant", "seconds/step", "parameters/s"], tried(results))
    yield ""
    for name, result in results["cases"].items():
        if result["cores"] and min(result["cores"]) < 0.9 * results["threads"]:
            yield (
                f"NOTE {name}: between {min(result['cores'])} and {max(result['cores'])} of"
                f" {results['threads']} cores were free"
            )
        for contender, error in result["errors"].items():
            yield f"ERROR {name}, {contender}: {error}"
    for check in results["checks"]:
        yield f"{'PASS' if check['passed'] else 'FAIL'} {check['name']}"


def measured(results):
    for name, result in results["cases"].items():
        rows, dim = result["rows"], result["dim"]
        if rows:
            # corrnoise took turns with every variant: no single one of those medians is its time.
            ours = statistics.median(row["corrnoise_seconds"] for row in rows)
            yield [name, "corrnoise", "", *speed(ours, dim), ""]
        for row in rows:
            if row["contender"] == cases.BANDWIDTH_BOUND:
                verdict = f"at {row['ratio']:.2f} of it"
            else:
                verdict = f"{row['ratio']:.2f}x faster"
            yield [name, row["contender"], row["variant"], *speed(row["seconds"], dim), verdict]


def tried(results):
    for name, result in results["cases"].items():
        for contender, trials in result["trials"].items():
            if len(trials) > 1:
                for variant, seconds in trials.items():
                    yield [name, contender, variant, *speed(seconds, result["dim"])]


def speed(seconds, dim):
    return [f"{seconds:.4f}", f"{dim / seconds:.2e}"]


def table(header, rows):
    rows = [header, *rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
