"""Noise made ahead of its step: the same bits and checkpoints with and without, and a refused step leaves the row."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
from conftest import CASES, VECTORS, key, plan, ticks_during

import corrnoise
from corrnoise import errors

# More than 32 tiles of 512, so that the row is not left to the step.
LARGE = {"weight": 39_000, "bias": 1_000}
STEPS = 5


def large(name="blt", **options):
    return corrnoise.Mechanism(plan(name), key(), corrnoise.Layout(LARGE), **options)


def ones():
    return [np.ones(size, np.float32) for size in LARGE.values()]


def rows(name="blt"):
    """The noisy gradients of every step, of a mechanism that prepares nothing."""
    mechanism, made = large(name), []
    for _ in range(STEPS):
        made.append(ones())
        mechanism.add_to(made[-1])
    return made


def same(one, two):
    return all(np.array_equal(np.asarray(a).ravel(), np.asarray(b).ravel()) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_bits_and_checkpoints_are_the_same(name):
    plain, ahead = large(name), large(name, threads=1, prepare_threads=2)
    before = ahead.state_bytes
    for step, expected in enumerate(rows(name)):
        ahead.prepare()
        ahead.prepare()
        assert ahead.state_bytes == before + 4 * sum(LARGE.values()), "one row more, once"
        assert ahead.state() == plain.state() and ahead.next_step == step, "nothing is counted before the step"
        one, two = ones(), ones()
        plain.add_to(one)
        ahead.add_to(two)
        assert same(expected, one) and same(expected, two)
        assert ahead.state() == plain.state()
    ahead.prepare()  # a loop may end with it
    with pytest.raises(errors.PastEnd):
        ahead.add_to(ones())


def test_a_checkpoint_does_not_hold_the_row(tmp_path):
    expected, ahead = rows(), large()
    ahead.add_to(ones())
    ahead.prepare()
    ahead.save(tmp_path / "noise")
    made = {}
    for resume in ("exact", "new"):
        other = corrnoise.Mechanism.resume(
            plan(), key(), corrnoise.Layout(LARGE), [tmp_path / "noise"], resume=resume, prepare_threads=1
        )
        other.prepare()
        made[resume] = ones()
        other.add_to(made[resume])
    assert same(expected[1], made["exact"]) and not same(expected[1], made["new"])
    # A state that is loaded takes the prepared row away.
    ahead.load_state([(tmp_path / "noise").read_bytes()])
    fresh = ones()
    ahead.add_to(fresh)
    assert ahead.next_step == 2 and not same(expected[1], fresh)


def test_a_refused_step_leaves_the_row():
    sampled, layout = corrnoise.Plan.from_json(VECTORS["batches"][0]["plan"]), corrnoise.Layout(LARGE)
    plain, ahead = (corrnoise.Mechanism(sampled, key(), layout) for _ in range(2))
    sampler = ahead.sampler()
    for step in range(3):
        ahead.prepare()
        one, two = ones(), ones()
        with pytest.raises(errors.BatchRefused, match=f"step {step} has no batch"):
            ahead.add_to(two)
        with pytest.raises(errors.BatchRefused, match=f"drawn for step {step + 1}"):
            ahead.add_to(two, sampler.batch(step + 1))
        with pytest.raises(corrnoise.InvalidArgument, match="length 1: expected 2"):
            ahead.add_to(two[:1], sampler.batch(step))
        assert same(two, ones()) and ahead.next_step == step
        plain.add_to(one, sampler.batch(step))
        ahead.add_to(two, sampler.batch(step))
        assert same(one, two)


def test_no_wait_holds_the_lock_of_the_interpreter():
    size = 8_000_000
    gradient, waits = np.zeros(size, np.float32), {}
    for name, wait in {
        "step": lambda alone: alone[0].add_to(gradient),
        "state": lambda alone: alone[0].state(),
        "end": lambda alone: alone.clear(),
    }.items():
        alone = [corrnoise.Mechanism(plan(), key(), size, threads=1, prepare_threads=1)]
        alone[0].prepare()
        waits[name] = ticks_during(lambda: wait(alone))
    assert min(waits.values()) >= 2, waits


def test_an_interpreter_may_end_while_a_row_is_made():
    code = f"""
        import corrnoise
        plan = corrnoise.Plan.from_json({CASES["blt"]["plan"]!r})
        noise = corrnoise.Mechanism(plan, corrnoise.Key.from_os(), 4_000_000)
        noise.prepare()
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=100)
    assert run.returncode == 0 and not run.stderr, run.stderr


def parameters(torch):
    return [(name, torch.nn.Parameter(torch.zeros(size))) for name, size in LARGE.items()]


def check_torch(torch, named, noise, expected, prepares):
    """Makes the steps that are still to be made, and compares their gradients."""
    for row in expected[noise.next_step :]:
        for _, p in named:
            p.grad = torch.ones_like(p)
        if prepares:
            noise.prepare()
        noise.add_noise()
        assert same(row, [p.grad for _, p in named])


def test_torch():
    torch = pytest.importorskip("torch")
    from corrnoise.torch import CorrelatedNoise

    named, expected = parameters(torch), rows()
    noise = CorrelatedNoise(named, plan(), key(), prepare_threads=1)
    before = noise.mechanism.state_bytes
    check_torch(torch, named, noise, expected[:3], prepares=True)
    noise.prepare()
    assert noise.mechanism.state_bytes > before
    named[1][1].grad = None
    with pytest.raises(corrnoise.InvalidArgument, match="has no grad"):
        noise.add_noise()
    resumed = CorrelatedNoise(named, plan(), key())
    resumed.load_state_dict(noise.state_dict(), resume="exact")
    for one in (noise, resumed):
        check_torch(torch, named, one, expected, prepares=one is noise)
        assert one.next_step == STEPS


def test_ranks(tmp_path):
    """Both classes for many processes, in a world of one; ranks.py has more, with parts too small for a row ahead."""
    torch = pytest.importorskip("torch")
    import torch.distributed as dist

    from corrnoise.torch.distributed import ReplicatedNoise, ShardedNoise

    expected = rows()
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        for kind in (ReplicatedNoise, ShardedNoise):
            named = parameters(torch)
            given = named if kind is ReplicatedNoise else [(name, p.numel(), 0, p) for name, p in named]
            noise = kind(given, plan(), key(), prepare_threads=2)
            check_torch(torch, named, noise, expected[:3], prepares=True)
            noise.prepare()
            noise.save(tmp_path / kind.__name__)
            resumed = kind(given, plan(), key(), folder=tmp_path / kind.__name__, resume="exact")
            for one in (noise, resumed):
                check_torch(torch, named, one, expected, prepares=True)
    finally:
        dist.destroy_process_group()


def test_jax():
    jax = pytest.importorskip("jax")
    from corrnoise.jax import correlated_noise

    # JAX sorts keys: named so that the weight comes first.
    tree = dict(zip("ab", map(jax.numpy.asarray, ones())))
    runs = [correlated_noise(tree, plan(), key(), prepare=prepare, prepare_threads=1) for prepare in (False, True)]
    states, updates = [noise.init(tree) for noise, _ in runs], [jax.jit(noise.update) for noise, _ in runs]
    for step in range(STEPS):
        (one, states[0]), (two, states[1]) = jax.block_until_ready([f(tree, state) for f, state in zip(updates, states)])
        assert same(one.values(), two.values())
        if step == 1:
            plain, ahead = (mechanism for _, mechanism in runs)
            assert ahead.state_bytes == plain.state_bytes + 4 * sum(LARGE.values())
            assert ahead.state() == plain.state(), "the row of the next step is in no checkpoint"
        if step == 2:
            with pytest.raises(jax.errors.JaxRuntimeError, match="the mechanism's next step is 3"):
                jax.block_until_ready(updates[1](tree, runs[1][0].init(tree)._replace(count=jax.numpy.int32(1))))
