"""corrnoise.jax: bits, jit, order, states that are at another step, and the guide's code."""

import pickle
from types import SimpleNamespace

import pytest
from conftest import SIZES, VECTORS, expected, gradients, guide_blocks, key, plan

import corrnoise

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from corrnoise.jax import CorrelatedNoiseState, correlated_noise, layout_of, transformation  # noqa: E402


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


@pytest.fixture
def running(layout):
    """A transformation, its mechanism and its gradients."""
    mechanism = corrnoise.Mechanism(plan(), key(), layout)
    return transformation(mechanism), mechanism, tree("float32")


def made(call):
    """The result of a call, after waiting for it."""
    return jax.block_until_ready(call())


def refused(call, count, next_step):
    """JAX raises the callback's exception as its own, with its text."""
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        made(call)
    assert f"state is at step {count}, the mechanism's next step is {next_step}" in str(caught.value)
    assert "StepError" in str(caught.value)


@pytest.mark.parametrize("compile", [jax.jit, lambda function: function], ids=["jit", "eager"])
def test_a_state_serves_one_update(compile, running):
    noise, mechanism, gradient = running
    update = compile(lambda state: noise.update(gradient, state))
    first = noise.init(gradient)
    _, second = made(lambda: update(first))
    for _ in range(2):
        refused(lambda: update(first), 0, 1)
        assert mechanism.next_step == 1, "nothing was made"
    _, third = made(lambda: update(second))
    assert int(third.count) == mechanism.next_step == 2, "what was refused disturbs nothing"
    # Kept, through a file or not, and restored.
    for old in (first, second, pickle.loads(pickle.dumps(second)), jax.tree.map(np.asarray, second)):
        refused(lambda: update(old), int(old.count), 2)
    refused(lambda: update(CorrelatedNoiseState(jnp.int32(7))), 7, 2)
    noisy, _ = made(lambda: update(third))
    reference = corrnoise.Mechanism(plan(), key(), corrnoise.Layout(SIZES))
    for _ in range(3):
        arrays = gradients()
        reference.add_to(arrays)
    assert np.array_equal(np.asarray(noisy["b"]), arrays[1]), "rows are those that nobody disturbed"


def test_a_resumed_mechanism_takes_its_own_step(running, layout, tmp_path):
    noise, mechanism, gradient = running
    states = [noise.init(gradient)]
    for _ in range(3):
        states.append(made(lambda: noise.update(gradient, states[-1]))[1])
    mechanism.save(tmp_path / "noise")
    resumed = corrnoise.Mechanism.resume(plan(), key(), layout, [tmp_path / "noise"])
    again = transformation(resumed)
    assert int(again.init(gradient).count) == 3
    refused(lambda: again.update(gradient, states[2]), 2, 3)
    _, state = made(lambda: again.update(gradient, states[3]))
    assert int(state.count) == resumed.next_step == 4
    # A state that is ahead: of the run that went on, or of a mechanism that began anew.
    fresh = transformation(corrnoise.Mechanism(plan(), key(), layout))
    refused(lambda: fresh.update(gradient, state), 4, 0)


@pytest.mark.parametrize("compile", [jax.jit, lambda function: function], ids=["jit", "eager"])
def test_multi_steps_make_no_row_twice(compile, running):
    """optax.MultiSteps calls the noise for every mini-step and discards its state for all but the last."""
    optax = pytest.importorskip("optax")
    noise, mechanism, gradient = running
    optimizer = optax.MultiSteps(optax.chain(noise, optax.sgd(0.5)), every_k_schedule=2)
    update = compile(optimizer.update)
    _, state = made(lambda: update(gradient, optimizer.init(gradient)))
    refused(lambda: update(gradient, state), 0, 1)
    assert mechanism.next_step == 1


def test_scans_make_each_step_once(running):
    noise, mechanism, gradient = running

    def body(state, _):
        noisy, state = noise.update(gradient, state)
        return state, noisy

    def scan(state):
        return jax.lax.scan(body, state, None, length=2)

    state, first = made(lambda: jax.jit(scan)(noise.init(gradient)))
    state, second = made(lambda: scan(state))
    assert int(state.count) == mechanism.next_step == 4
    rows = [np.asarray(noisy["b"])[i].tobytes() for noisy in (first, second) for i in range(2)]
    assert len(set(rows)) == 4
    refused(lambda: jax.jit(scan)(noise.init(gradient)._replace(count=jnp.int32(3))), 3, 4)


def test_what_jax_refuses(running):
    noise, mechanism, gradient = running
    state = noise.init(gradient)
    batched = jax.tree.map(lambda g: jnp.stack([g, g]), gradient)
    with pytest.raises(ValueError, match="vmap"):
        jax.vmap(lambda g: noise.update(g, state)[0])(batched)

    def loss(g):
        return noise.update(g, state)[0]["b"].sum()

    for differentiated in (loss, jax.checkpoint(loss)):
        with pytest.raises(ValueError, match="JVP"):
            jax.grad(differentiated)(gradient)
    assert mechanism.next_step == 0
    made(lambda: jax.jit(jax.checkpoint(loss))(gradient))
    assert mechanism.next_step == 1, "without a derivative nothing is computed again"


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


def test_counts_are_32_bits():
    """Uses a stand-in for the mechanism: the planner makes no plans that long, though the engine runs them."""
    for steps, fits in [(2**31 - 1, True), (2**31, False)]:
        long = SimpleNamespace(num_steps=steps, draws_batches=False)
        mechanism = SimpleNamespace(plan=long, segments=[(0, 5)], next_step=2**31 - 2)
        if fits:
            assert int(transformation(mechanism).init(jnp.zeros(5)).count) == 2**31 - 2
        else:
            with pytest.raises(corrnoise.InvalidArgument, match="has 2147483648 steps: expected at most 2147483647"):
                transformation(mechanism)


def test_the_guide_runs(tmp_path, monkeypatch):
    pytest.importorskip("optax")
    monkeypatch.chdir(tmp_path)
    scope = {}
    for block in guide_blocks("jax.md"):
        exec(compile(block, "docs/jax.md", "exec"), scope)
    assert scope["mechanism"].next_step == scope["plan"].num_steps == 32
