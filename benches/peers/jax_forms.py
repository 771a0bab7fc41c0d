"""jax_privacy's privatizers, called as its users call them: `update` under `jax.jit`.

Variants: the gradient as one flat array or as a pytree of 64 leaves (XLA runs the leaves side by
side), and gradient and noise state donated to the step or kept. Keys are the default threefry ones;
the `rbg` generators were slower on CPU for `independent` and `blt4`.
"""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import jax_privacy
import numpy as np
from jax_privacy import noise_addition
from jax_privacy.matrix_factorization import buffered_toeplitz, toeplitz

import cases
import peer_process

LEAVES = {"flat": 1, "64-leaves": 64}
DONATED = {"kept": (), "donated": (0, 1)}


def variants(_case):
    return [f"{layout}/{donation}" for layout in LEAVES for donation in DONATED]


def privatizer(case):
    """The privatizer of a case, of unit standard deviation."""
    options = {"stddev": 1.0, "prng_key": jax.random.key(1)}
    if case == "independent":
        return noise_addition.gaussian_privatizer(**options)
    if case == "blt4":
        blt = buffered_toeplitz.BufferedToeplitz.build(cases.DECAY, cases.SCALE, jnp.float32)
        noising = blt.inverse_as_streaming_matrix()
    elif case == "dense255":
        coefs = toeplitz.optimal_max_error_noising_coefs(cases.DENSE_STEPS)
        noising = toeplitz.materialize_lower_triangular(coefs)
    else:
        coefs = jnp.asarray(cases.ring_coefs(cases.CASES[case].bands))
        noising = toeplitz.inverse_as_streaming_matrix(coefs)
    return noise_addition.matrix_factorization_privatizer(noising, **options)


def filled(state, case):
    """The initial state with its history full. Every array is a copy: donation needs its own."""

    def fill(leaf):
        if cases.CASES[case].bands:
            return jnp.array(cases.history(*leaf.shape))
        return jnp.array(leaf)

    if case == "independent":
        return state
    key, inner = state
    return jnp.copy(key), jax.tree.map(fill, inner)


def build(case, variant, dim, threads):
    if len(os.sched_getaffinity(0)) > threads:
        raise ValueError(f"JAX takes every core of the process: restrict it to {threads} cores")
    layout, donation = variant.split("/")
    gradient = [
        jnp.zeros(len(part), jnp.float32) for part in np.array_split(np.empty(dim), LEAVES[layout])
    ]
    if layout == "flat":
        (gradient,) = gradient
    mechanism = privatizer(case)
    donated = DONATED[donation]
    if case == "dense255":
        donated = donated[:1]
        # The state is the row number. Staying on the last row repeats its noise: fit for timing only.
        state = jnp.array(cases.DENSE_STEPS - 1)
    else:
        state = filled(mechanism.init(gradient), case)
    update = jax.jit(mechanism.update, donate_argnums=donated)

    def step():
        nonlocal gradient, state
        gradient, new_state = jax.block_until_ready(update(gradient, state))
        if case != "dense255":
            state = new_state

    return step


if __name__ == "__main__":
    peer_process.serve(f"jax_privacy {jax_privacy.__version__}, jax {jax.__version__}", variants, build)
