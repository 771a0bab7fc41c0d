"""Private softmax regression on handwritten digits: examples/digits.rs in NumPy, with the same plans.

    pip install ./crates/python numpy
    cargo run --release --example digits docs plans     # writes the plans
    python examples/digits.py plans/digits-banded-2.json 0.8

prints the mean test error of ten runs at a learning rate, and its standard error.
"""

import json
import sys
from pathlib import Path

import numpy as np

import corrnoise

MOMENTUM = 0.9
SEEDS = 10


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


def clipped_sum(weights, features, labels, clip_norm):
    """The sum of per-example gradients, each of norm at most clip_norm: outer products, whose norm is the product of two."""
    logits = features @ weights
    residual = np.exp(logits - logits.max(axis=1, keepdims=True))
    residual /= residual.sum(axis=1, keepdims=True)
    residual[np.arange(len(labels)), labels] -= 1
    norm = np.linalg.norm(residual, axis=1) * np.linalg.norm(features, axis=1)
    residual *= (clip_norm / np.maximum(norm, clip_norm))[:, None]
    return features.T @ residual


def train(data, plan, seed, rate):
    """Test error after one private run."""
    features, labels, test_features, test_labels = data
    body = json.loads(plan.to_json())["plan"]
    clip_norm, num_batches = body["certificate"]["clip_norm"], body["sampling"]["num_batches"]
    # A public key and a public shuffle, so that a run can be made again. Shuffled once and taken in turns, every image takes part once
    # per epoch at the same place: all that the plan's claim needs, since nothing is amplified by sampling.
    key = corrnoise.Key.from_bytes(b"published, for this example only", f"digits {seed}")
    order = np.random.default_rng(seed).permutation(len(labels))
    batches = np.array_split(order, num_batches)
    noise = corrnoise.Mechanism(plan, key, features.shape[1] * 10, threads=1)
    weights = np.zeros((features.shape[1], 10), np.float32)
    velocity, total = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(plan.num_steps):
        batch = batches[step % num_batches]
        gradient = np.ascontiguousarray(clipped_sum(weights, features[batch], labels[batch], clip_norm))
        noise.add_to(gradient.reshape(-1))
        velocity = MOMENTUM * velocity + gradient
        weights -= np.float32(rate * num_batches / len(labels)) * velocity
        if step >= plan.num_steps // 2:
            total += weights
    return np.mean((test_features @ total).argmax(axis=1) != test_labels)


def main():
    plan, rate = corrnoise.Plan.load(sys.argv[1]), float(sys.argv[2])
    data = split()
    errors = [100 * train(data, plan, seed, rate) for seed in range(SEEDS)]
    print(f"test error {np.mean(errors):.1f} ± {np.std(errors, ddof=1) / SEEDS**0.5:.1f}%")


if __name__ == "__main__":
    main()
