"""corrnoise.jax: bits, jit, order, and the guide's code."""

import pytest
from conftest import VECTORS, expected, gradients, guide_blocks, key, plan

import corrnoise

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from corrnoise.jax import correlated_noise, layout_of, transformation  # noqa: E402


def tree(dtype):
    weight, bias = (jnp.asarray(g, dtype=dtype) for g in gradients())
    # JAX sorts keys: named so that the weight comes first, as in the vectors.
    return {"a": weight.reshape(20, 30), "b": bias}


def test_several_steps_in_one_program(layout):
    noise = transformation(corrnoise.Mechanism(plan(), key(), layout))
    gradient = tree("float32")

    @jax.jit
    def steps(state):
        def body(_, carry):
            return noise.update(gradient, carry[1])

        return jax.lax.fori_loop(0, 5, body, (gradient, state))

    noisy, _ = steps(noise.init(gradient))
    assert np.asarray(noisy["a"]).tobytes() + np.asarray(noisy["b"]).tobytes() == expected("blt", "float32")


def test_refusals(layout, mechanism):
    noise, made = correlated_noise(tree("float32"), plan(), key())
    assert made.segments == mechanism.segments
    with pytest.raises(corrnoise.InvalidArgument, match="sizes"):
        noise.init({"a": jnp.zeros(5)})
    with pytest.raises(corrnoise.InvalidArgument, match="sizes"):
        noise.update({"a": jnp.zeros(5)}, noise.init(tree("float32")))
    with pytest.raises(corrnoise.InvalidArgument, match="read-only|immutable"):
        mechanism.add_to(list(tree("float32").values()))
    assert layout_of(tree("float32")).tensors[0][0] == "['a']"


def test_optax(layout):
    optax = pytest.importorskip("optax")
    noise = transformation(corrnoise.Mechanism(plan(), key(), layout))
    optimizer = optax.chain(noise, optax.sgd(0.5))
    params = tree("float32")
    state = optimizer.init(params)
    updates, state = jax.jit(optimizer.update)(params, state)
    assert updates["a"].shape == (20, 30)


def made(call):
    """What a call made, waited for."""
    return jax.block_until_ready(call())


def test_batches_are_vouched_for_by_name(layout):
    gradient = tree("float32")
    sampled = corrnoise.Plan.from_json(VECTORS["batches"][0]["plan"])
    mechanism, own = corrnoise.Mechanism(sampled, key(), layout), key()
    for make in (lambda **batch: transformation(mechanism, **batch), lambda **batch: correlated_noise(gradient, sampled, own, **batch)):
        for batch in ({}, {"batch": None}):
            with pytest.raises(corrnoise.errors.BatchRefused, match='expected batch="unchecked"'):
                make(**batch)
        with pytest.raises(corrnoise.InvalidArgument, match="expected \"unchecked\""):
            make(batch=mechanism.sampler().batch(0))
    noise = transformation(mechanism, batch="unchecked")
    made(lambda: noise.update(gradient, noise.init(gradient)))
    assert mechanism.next_step == 1
    _, began = correlated_noise(gradient, sampled, own, batch="unchecked")
    assert began.next_step == 0, "a refusal left the key"
    transformation(corrnoise.Mechanism(plan(), key(), layout), batch="unchecked")


def test_the_guide_runs(tmp_path, monkeypatch):
    pytest.importorskip("optax")
    monkeypatch.chdir(tmp_path)
    scope = {}
    for block in guide_blocks("jax.md"):
        exec(compile(block, "docs/jax.md", "exec"), scope)
    assert scope["mechanism"].next_step == scope["plan"].num_steps == 32
