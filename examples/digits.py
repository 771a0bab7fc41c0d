"""Private softmax regression on handwritten digits: examples/digits.rs in NumPy, with the same plans, batches and noise.

    pip install ./crates/python numpy
    python examples/digits.py                           # the table of docs/digits.md: mean test error of 20 runs, in 20 seconds
    python examples/digits.py --seeds 6 --epsilons 2    # a part of it

The learning rates are those that the Rust example finds to be each mechanism's best.
"""

import argparse
from pathlib import Path

import numpy as np

import corrnoise

DELTA = 1e-5
CLIP_NORM = 0.2
MOMENTUM = 0.9
EPOCHS = 32
BATCH_SIZE = 45  # at most, which makes 32 batches an epoch

# The strategy, and its learning rate by epsilon.
STRATEGIES = {
    "independent": ("identity", {8: 0.4, 2: 0.1}),
    "banded": ("banded-opt:32", {8: 3.2, 2: 0.8}),
    "BLT": ("blt:4", {8: 3.2, 2: 0.8}),
    "banded inverse": ("bandinv-opt:8", {8: 3.2, 2: 0.8}),
}


def split():
    """Features and labels of the training and of the test images; the split is that of the Rust example."""
    table = np.loadtxt(Path(__file__).parent / "data" / "digits.csv", delimiter=",", dtype=np.float32)
    pixels, labels = table[:, :64], table[:, 64].astype(int)
    # Every image about its own mean and of norm 1, then a constant.
    pixels = pixels - pixels.mean(axis=1, keepdims=True)
    pixels /= np.linalg.norm(pixels, axis=1, keepdims=True)
    features = np.hstack([pixels, np.full((len(pixels), 1), 0.25, np.float32)])
    # SplitMix64's finaliser, modulo 2^64.
    x = np.arange(len(table), dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    is_test = np.zeros(len(table), bool)
    is_test[np.argsort(x ^ (x >> np.uint64(31)))[: -(-len(table) // 5)]] = True
    return features[~is_test], labels[~is_test], features[is_test], labels[is_test]


def make_plan(strategy, epsilon, dataset_size):
    """A verified plan that spends the whole budget, for SGD with this momentum."""
    return corrnoise.plan(
        epochs=EPOCHS,
        dataset_size=dataset_size,
        batch_size=BATCH_SIZE,
        epsilon=epsilon,
        delta=DELTA,
        strategy=strategy,
        workload=f"momentum:{MOMENTUM}",
        objective="rms",
        clip_norm=CLIP_NORM,
    )


def clipped_sum(weights, features, labels):
    """The sum of per-example gradients, each of norm at most CLIP_NORM: outer products, whose norm is the product of two."""
    logits = features @ weights
    residual = np.exp(logits - logits.max(axis=1, keepdims=True))
    residual /= residual.sum(axis=1, keepdims=True)
    residual[np.arange(len(labels)), labels] -= 1
    norm = np.linalg.norm(residual, axis=1) * np.linalg.norm(features, axis=1)
    residual *= (CLIP_NORM / np.maximum(norm, CLIP_NORM))[:, None]
    return features.T @ residual


def train(data, plan, seed, rate):
    """The test error after one private run."""
    features, labels, test_features, test_labels = data
    # A public key, so that a run can be made again. A real one is Key.create_file's.
    key = corrnoise.Key.from_bytes(b"published, for this example only", f"digits {seed}")
    noise = corrnoise.Mechanism(plan, key, features.shape[1] * 10, threads=1)
    sampler = noise.sampler()
    weights = np.zeros((features.shape[1], 10), np.float32)
    velocity, total = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(plan.num_steps):
        batch = sampler.batch(step)
        indices = np.asarray(batch)
        gradient = np.ascontiguousarray(clipped_sum(weights, features[indices], labels[indices]))
        noise.add_to(gradient, batch)
        velocity = MOMENTUM * velocity + gradient
        weights -= np.float32(rate / sampler.expected_batch_size) * velocity
        if step >= plan.num_steps // 2:
            total += weights
    return np.mean((test_features @ total).argmax(axis=1) != test_labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20, help="runs per entry of the table, at least 2")
    parser.add_argument("--epsilons", type=int, nargs="+", default=[8, 2], choices=[8, 2])
    options = parser.parse_args()
    data = split()
    print("| noise |" + "".join(f" ε = {epsilon} | rate |" for epsilon in options.epsilons))
    print("|---|" + "---|---|" * len(options.epsilons))
    for name, (strategy, rates) in STRATEGIES.items():
        line = f"| {name} |"
        for epsilon in options.epsilons:
            plan = make_plan(strategy, epsilon, len(data[1]))
            errors = [100 * train(data, plan, seed, rates[epsilon]) for seed in range(options.seeds)]
            standard_error = np.std(errors, ddof=1) / options.seeds**0.5
            line += f" {np.mean(errors):.1f} ± {standard_error:.1f}% | {rates[epsilon]} |"
        print(line)


if __name__ == "__main__":
    main()
