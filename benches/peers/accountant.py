"""Compares our ε of the subsampled Gaussian mechanism with that of dp_accounting's privacy loss distributions.

Their pessimistic estimate (connect the dots) lies above the true ε, their optimistic one (privacy buckets) below it; both cover
adding and removing a unit, the larger counts. Ours claims to be an upper bound, so it must not be below the optimistic one, nor
more than 0.1% above the pessimistic one, and it must come within a second.

The optimistic estimate loses half a grid cell per step, so after thousands of steps it would let an ε pass that is far too small.
The pessimistic one falls with the square of the cell: two finer grids say where it goes, and ours must not be below that limit
by more than 0.05%, which is what the extrapolation itself may be off.
"""

import os
import subprocess
import sys
import time

from dp_accounting.pld import privacy_loss_distribution

VALUES = os.environ["ACCOUNTANT_VALUES"]
INTERVAL = 1e-4
MOST_RATIO = 1.001
LEAST_RATIO = 0.9995
MOST_SECONDS = 1.0

# σ, sampling probability, steps, δ. Left out: mechanisms with ε in the thousands, for which their grid takes gigabytes.
SETTINGS = [
    # One step, from hardly any privacy to almost perfect privacy.
    (0.5, 0.5, 1, 1e-5),
    (0.5, 0.01, 1, 1e-10),
    (1.0, 0.1, 1, 1e-8),
    (2.0, 0.5, 1, 1e-6),
    (2.0, 1e-3, 1, 1e-10),
    (5.0, 0.01, 1, 1e-5),
    (20.0, 0.5, 1, 1e-10),
    # Few steps.
    (0.5, 0.5, 10, 1e-6),
    (0.5, 0.1, 30, 1e-5),
    (0.5, 1e-3, 10, 1e-8),
    (0.7, 0.2, 50, 1e-10),
    (1.0, 0.5, 20, 1e-10),
    (1.0, 0.05, 10, 1e-5),
    (3.0, 0.3, 30, 1e-7),
    (10.0, 0.1, 10, 1e-5),
    (20.0, 0.01, 10, 1e-6),
    # Hundreds to thousands of steps: what trainers use.
    (0.5, 0.01, 100, 1e-5),
    (0.6, 0.001, 1000, 1e-8),
    (0.8, 0.02, 500, 1e-6),
    (1.0, 0.01, 1000, 1e-5),
    (1.0, 0.1, 300, 1e-8),
    (1.1, 256 / 60000, 14062, 1e-5),
    (1.3, 0.005, 2000, 1e-10),
    (2.0, 0.5, 200, 1e-6),
    (2.0, 0.03, 3000, 1e-7),
    (4.0, 0.2, 500, 1e-10),
    (5.0, 0.05, 1000, 1e-5),
    (8.0, 0.5, 1000, 1e-9),
    (20.0, 0.5, 100, 1e-6),
    (20.0, 0.1, 1000, 1e-10),
    # Tens of thousands.
    (0.5, 1e-4, 10000, 1e-6),
    (0.5, 0.001, 10000, 1e-10),
    (0.9, 1e-4, 100000, 1e-8),
    (1.0, 0.003, 30000, 1e-7),
    (1.0, 1e-3, 100000, 1e-5),
    (1.5, 1e-4, 100000, 1e-10),
    (3.0, 0.01, 50000, 1e-6),
    (5.0, 0.1, 20000, 1e-9),
    (10.0, 0.05, 100000, 1e-5),
    (20.0, 0.1, 100000, 1e-10),
    (20.0, 0.5, 100000, 1e-7),
    (20.0, 1e-3, 100000, 1e-5),
]


def theirs(setting, pessimistic, interval=INTERVAL):
    """(ε, seconds); the distribution holds both directions and takes the larger ε."""
    sigma, prob, steps, delta = setting
    start = time.perf_counter()
    step = privacy_loss_distribution.from_gaussian_mechanism(
        sigma,
        pessimistic_estimate=pessimistic,
        value_discretization_interval=interval,
        sampling_prob=prob,
        use_connect_dots=pessimistic,
    )
    epsilon = step.self_compose(steps).get_epsilon_for_delta(delta)
    return epsilon, time.perf_counter() - start


def limit(setting):
    """Where their pessimistic estimate goes on ever finer grids."""
    sigma, prob, _, _ = setting
    # A step's loss is about prob/σ: cells must be well below it.
    interval = min(INTERVAL, 0.2 * prob / sigma)
    coarse, fine = (theirs(setting, True, interval / parts)[0] for parts in (1, 2))
    return fine - (coarse - fine) / 3


def main():
    ours = subprocess.Popen([VALUES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    missed, ratios, lowest, slowest = [], [], [], 0.0
    print(
        f"{'σ':>5}{'p':>10}{'steps':>8}{'δ':>8}{'optimistic':>13}{'limit':>13}{'ours':>13}{'pessimistic':>13}"
        f"{'ratio':>10}{'our s':>8}{'their s':>9}"
    )
    for setting in SETTINGS:
        ours.stdin.write(" ".join(repr(number) for number in setting) + "\n")
        ours.stdin.flush()
        epsilon, seconds = (float(word) for word in ours.stdout.readline().split())
        optimistic, _ = theirs(setting, pessimistic=False)
        pessimistic, their_seconds = theirs(setting, pessimistic=True)
        extrapolated = limit(setting)
        ratio = epsilon / pessimistic
        held = max(optimistic, LEAST_RATIO * extrapolated) <= epsilon <= MOST_RATIO * pessimistic
        held = held and seconds < MOST_SECONDS
        sigma, prob, steps, delta = setting
        print(
            f"{sigma:>5}{prob:>10.4g}{steps:>8}{delta:>8.0e}{optimistic:>13.6g}{extrapolated:>13.6g}{epsilon:>13.6g}{pessimistic:>13.6g}"
            f"{ratio:>10.5f}{seconds:>8.3f}{their_seconds:>9.3f}{'' if held else '  missed'}",
            flush=True,
        )
        ratios.append(ratio)
        lowest.append(epsilon / extrapolated)
        slowest = max(slowest, seconds)
        if not held:
            missed.append(setting)
    print(
        f"{len(SETTINGS)} settings, ours/pessimistic {min(ratios):.5f} to {max(ratios):.5f}, "
        f"ours/limit {min(lowest):.5f} to {max(lowest):.5f}, ours at most {slowest:.3f} s"
    )
    if missed:
        sys.exit(f"missed: {missed}")


main()
