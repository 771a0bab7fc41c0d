"""Hockey sticks of balls in bins and of b-min-sep sampling by jax_privacy's experimental Monte Carlo module: plain means of so many samples.

Run as

    git clone https://github.com/google-deepmind/jax_privacy && git -C jax_privacy checkout 8967688c26d46f3b74bfdfe61ef1f984b887abab
    pip install numpy scipy jax dp_accounting absl-py optax
    python confident_peer.py jax_privacy > confident_peer.txt

The package's other parts are not imported: they need libraries from the heads of their repositories.
"""

import importlib
import sys
import types

import numpy as np
import optax

COMMIT = "8967688c26d46f3b74bfdfe61ef1f984b887abab"
SAMPLES, CHUNK = 1_000_000, 20_000
# kind, steps, bins or separation, probability, standard deviation, epsilon, first column of C
SETTINGS = [
    ("bins", 12, 4, 1.0, 2.0, 1.0, [1.0, 0.5, 0.25]),
    ("bins", 40, 10, 1.0, 2.5, 1.0, [1.0, 0.6, 0.4, 0.3, 0.2, 0.1]),
    ("bins", 50, 20, 1.0, 1.5, 2.0, [1.0, 0.5, 0.375, 0.3125]),
    ("bins", 30, 7, 1.0, 4.0, 0.5, [1.0] + [0.3 * 0.9**t for t in range(29)]),
    ("spaced", 20, 3, 0.2, 1.5, 1.0, [1.0, 0.5, 0.25]),
    ("spaced", 40, 8, 0.1, 2.0, 1.0, [1.0, 0.6, 0.4, 0.3, 0.2, 0.1]),
    ("spaced", 60, 5, 0.05, 1.2, 1.5, [1.0, 0.5, 0.3]),
    ("spaced", 30, 1, 0.1, 1.5, 1.0, [1.0]),
    ("spaced", 25, 6, 0.5, 3.0, 0.5, [1.0, 0.8, 0.6, 0.4, 0.2, 0.1]),
]


def module(root):
    """The Monte Carlo module without the packages around it."""
    # A name of optax' head that only annotations use.
    optax.ArrayTree = object
    for name in ["jax_privacy", "jax_privacy.experimental", "jax_privacy.experimental.monte_carlo"]:
        package = types.ModuleType(name)
        package.__path__ = [root + "/" + name.replace(".", "/")]
        sys.modules[name] = package
    selection = importlib.import_module("jax_privacy.batch_selection")
    return selection, importlib.import_module("jax_privacy.experimental.monte_carlo.sample_generation")


def main():
    selection, generation = module(sys.argv[1])
    print(f"# jax_privacy {COMMIT}, experimental/monte_carlo, {SAMPLES} samples; see confident_peer.py")
    print("# kind steps bins_or_separation probability sigma epsilon add add_error rem rem_error first_column_of_C")
    for number, (kind, steps, apart, prob, sigma, epsilon, column) in enumerate(SETTINGS):
        if kind == "bins":
            strategy = selection.BallsInBinsSampling(iterations=steps, cycle_length=apart)
        else:
            strategy = selection.BMinSepSampling(
                iterations=steps, min_sep=apart, sampling_prob=prob, warm_start=True
            )
        row = []
        for positive in [True, False]:
            rng = np.random.default_rng([number, int(positive)])
            values = []
            for _ in range(SAMPLES // CHUNK):
                loss, _ = generation.get_privacy_loss_sample(
                    strategy, sigma, np.array(column), rng, positive_sample=positive, num_samples=CHUNK
                )
                values.append(np.maximum(-np.expm1(np.minimum(epsilon - np.asarray(loss), 0.0)), 0.0))
            values = np.concatenate(values)
            row += [values.mean(), values.std() / np.sqrt(values.size)]
        numbers = " ".join(f"{value:.6e}" for value in row)
        print(kind, steps, apart, prob, sigma, epsilon, numbers, *[float(c) for c in column], flush=True)


main()
