"""Samplers, batches and guards: Rust's batches, memory without copies, and batches that do not belong to a step."""

import gc
import io
import stat

import numpy as np
import pytest
from conftest import VECTORS, gradients, key, plan

import corrnoise
from corrnoise import errors

CASES = {case["name"]: case for case in VECTORS["batches"]}


def sampled(name="poisson"):
    return corrnoise.Plan.from_json(CASES[name]["plan"])


@pytest.mark.parametrize("name", CASES)
def test_batches_are_those_of_rust(name):
    sampler = corrnoise.Sampler(sampled(name), key())
    assert sampler.num_steps == 12
    assert sampler.expected_batch_size == pytest.approx(CASES[name]["expected_batch_size"], rel=1e-15)
    for step, indices in CASES[name]["batches"]:
        batch = sampler.batch(step)
        assert (batch.step, len(batch), batch.tolist()) == (step, len(indices), indices)
        assert np.array_equal(np.asarray(batch), np.array(indices, np.uint64))
    assert repr(batch) == f"Batch(step=11, {len(indices)} units)" and "num_steps=12" in repr(sampler)


def test_arrays_of_a_batch_copy_nothing():
    batch = corrnoise.Sampler(sampled(), key()).batch(3)
    first, second = np.asarray(batch), np.asarray(batch)
    assert first.dtype == np.uint64 and np.shares_memory(first, second) and not first.flags.writeable
    view = memoryview(batch)
    assert (view.format, view.itemsize, view.shape, view.strides, view.readonly) == ("Q", 8, (len(batch),), (8,), True)
    assert bytes(batch) == first.tobytes()
    expected = batch.tolist()
    del batch, second, view
    gc.collect()
    assert first.tolist() == expected, "an array keeps its batch alive"
    with pytest.raises(TypeError, match="read-write"):
        io.BytesIO(bytes(800)).readinto(corrnoise.Sampler(sampled(), key()).batch(3))


@pytest.mark.parametrize("name", CASES)
def test_padded_batches_have_one_shape(name):
    sampler = corrnoise.Sampler(sampled(name), key())
    length = min(sampler.max_batch_size, 40)
    for step in range(12):
        batch = sampler.batch(step)
        indices, mask = batch.padded(length, 1000)
        assert (indices.dtype, mask.dtype, indices.shape, mask.shape) == (np.uint64, np.bool_, (length,), (length,))
        assert indices[mask].tolist() == batch.tolist() and (indices[~mask] == 1000).all() and mask.sum() == len(batch)
        indices[0] = 7  # memory of its own
        assert batch.tolist() == sampler.batch(step).tolist()
        if len(batch) > 1:
            short = len(batch) - 1
            with pytest.raises(corrnoise.InvalidArgument, match=f"batch of step {step} is {len(batch)}: expected at most {short}"):
                batch.padded(short, 0)
    with pytest.raises(corrnoise.InvalidArgument, match="padded batch has length 0"):
        batch.padded(0, 0)
    with pytest.raises(corrnoise.InvalidArgument, match="padding is -1"):
        batch.padded(9, -1)


def test_a_truncated_scheme_has_a_shape():
    assert corrnoise.Sampler(sampled("truncated_poisson"), key()).max_batch_size == 20


def test_an_empty_batch():
    rare = corrnoise.plan(3, dataset_size=50, batch_size=1, mu=1, strategy="identity", sampling="poisson")
    batches = [corrnoise.Sampler(rare, key(f"run {i}")).batch(0) for i in range(40)]
    empty = [batch for batch in batches if len(batch) == 0]
    assert empty and np.asarray(empty[0]).shape == (0,) and empty[0].tolist() == []


def test_samplers_of_one_run_agree(tmp_path):
    """A key is read before and after a mechanism takes it; a resumed run draws the same batches."""
    own = key()
    before = corrnoise.Sampler(sampled(), own)
    mechanism = corrnoise.Mechanism(sampled(), own, 40)
    mechanism.add_to(np.zeros(40, np.float32), before.batch(0))
    mechanism.save(tmp_path / "noise")
    resumed = corrnoise.Mechanism.resume(sampled(), key(), 40, [tmp_path / "noise"])
    samplers = [before, corrnoise.Sampler(sampled(), own), mechanism.sampler(), resumed.sampler()]
    for step in [11, 1]:
        batches = [sampler.batch(step).tolist() for sampler in samplers]
        assert batches.count(batches[0]) == 4
    resumed.add_to(np.zeros(40, np.float32), before.batch(1))
    assert corrnoise.Sampler(sampled(), key("another")).batch(1).tolist() != batches[0]
    with pytest.raises(errors.KeyRefused, match="already serves"):
        corrnoise.Mechanism(sampled(), own, 40)


def test_a_batch_of_something_else_is_refused_and_changes_nothing(layout):
    mechanism = corrnoise.Mechanism(sampled(), key(), layout)
    sampler = mechanism.sampler()
    arrays, before = gradients(), gradients()
    other_key = corrnoise.Sampler(sampled(), key("another"))
    other_plan = corrnoise.Sampler(sampled("cyclic"), key())
    for batch, part in [
        (sampler.batch(1), "drawn for step 1, the mechanism's next step is 0"),
        (other_plan.batch(0), "drawn for plan"),
        (other_key.batch(0), "another key or for another run id"),
    ]:
        with pytest.raises(errors.BatchRefused, match=part) as caught:
            mechanism.add_to(arrays, batch)
        assert isinstance(caught.value, corrnoise.Error)
        assert all(np.array_equal(a, b) for a, b in zip(arrays, before)) and mechanism.next_step == 0
    with pytest.raises(TypeError):
        mechanism.add_to(arrays, [1, 2])
    mechanism.add_to(arrays, sampler.batch(0))
    mechanism.add_to(gradients(), batch=sampler.batch(1))
    with pytest.raises(errors.BatchRefused, match="next step is 2"):
        mechanism.add_to(gradients(), sampler.batch(1))
    unchecked, plain = corrnoise.Mechanism(sampled(), key(), layout), gradients()
    unchecked.add_to(plain, "unchecked")
    assert [a.tobytes() for a in plain] == [a.tobytes() for a in arrays], "a batch changes no noise"


@pytest.mark.parametrize("name", CASES)
def test_a_step_without_its_batch_is_refused(name, layout):
    mechanism = corrnoise.Mechanism(sampled(name), key(), layout)
    sampler, arrays, before = mechanism.sampler(), gradients(), gradients()
    assert mechanism.plan.draws_batches
    for step in range(3):
        with pytest.raises(errors.BatchRefused, match=f"step {step} has no batch") as caught:
            mechanism.add_to(arrays)
        assert f"batch=sampler.batch({step})" in str(caught.value) and 'batch="unchecked"' in str(caught.value)
        with pytest.raises(errors.BatchRefused):
            mechanism.add_to(arrays, None)
        with pytest.raises(corrnoise.InvalidArgument, match='batch is "Unchecked": expected a Batch or "unchecked"'):
            mechanism.add_to(arrays, "Unchecked")
        # A batch belongs to its call, also to one that is refused for another reason.
        for batch in (sampler.batch(step), "unchecked"):
            with pytest.raises(corrnoise.InvalidArgument, match="length"):
                mechanism.add_to(arrays[:1], batch)
            with pytest.raises(errors.BatchRefused, match="has no batch"):
                mechanism.add_to(arrays)
        assert all(np.array_equal(a, b) for a, b in zip(arrays, before)) and mechanism.next_step == step
        mechanism.add_to(gradients(), sampler.batch(step) if step % 2 else "unchecked")
    for step in range(3, 12):
        mechanism.add_to(gradients(), "unchecked")
    for batch in (None, "unchecked"):
        with pytest.raises(errors.PastEnd):
            mechanism.add_to(arrays, batch)


def test_plans_that_draw_no_batches_need_none(layout):
    for own in (clients(), plan()):
        mechanism = corrnoise.Mechanism(own, key(), layout)
        assert not own.draws_batches
        mechanism.add_to(gradients())
        mechanism.add_to(gradients(), "unchecked")
        assert mechanism.next_step == 2


def test_refusals():
    with pytest.raises(corrnoise.PlanError, match="does not say how batches are chosen"):
        corrnoise.Sampler(plan(), key())
    with pytest.raises(corrnoise.PlanError, match="use Guard"):
        corrnoise.Sampler(clients(), key())
    sampler = corrnoise.Sampler(sampled(), key())
    with pytest.raises(errors.PastEnd, match="step 12 is past the end"):
        sampler.batch(12)
    with pytest.raises(corrnoise.InvalidArgument, match="step is -1: expected a whole number, at least 0"):
        sampler.batch(-1)


def clients():
    return corrnoise.plan(30, min_sep=10, max_participations=2, mu=1, strategy="identity")


def test_guard(tmp_path):
    guard = corrnoise.Guard(clients())
    admitted = guard.admit(0, 77)
    assert admitted and (admitted.answer, admitted.next_step) == ("admitted", None)
    soon = guard.admit(4, 77)
    assert not soon and (soon.answer, soon.next_step) == ("too soon", 10) and soon != admitted
    assert guard.admit(4, 2**64 - 1) == admitted
    guard.save(tmp_path / "guard")
    assert stat.S_IMODE((tmp_path / "guard").stat().st_mode) == 0o600
    loaded = corrnoise.Guard.load(tmp_path / "guard", clients())
    assert loaded.step == guard.step == 4 and repr(loaded) == "Guard(step=4)"
    for one in (guard, loaded):
        assert one.admit(10, 77)
        exhausted = one.admit(29, 77)
        assert not exhausted and repr(exhausted) == "Admission('exhausted')"
    assert repr(soon) == "Admission('too soon', next_step=10)"


def test_a_guard_answers_without_consequence():
    guard = corrnoise.Guard(clients())
    assert all(guard.eligible(20, 5) for _ in range(5)) and guard.step == 0
    assert guard.admit(0, 5)
    assert guard.eligible(9, 5) == guard.admit(9, 5) and guard.eligible(9, 5).next_step == 10
    assert guard.eligible(25, 5) and guard.step == 9


def test_guards_refuse(tmp_path):
    guard = corrnoise.Guard(clients())
    guard.admit(5, 1)
    guard.save(tmp_path / "guard")
    for arguments, exception, part in [
        ((4, 1), corrnoise.InvalidArgument, "step is 4: expected at least 5"),
        ((30, 1), errors.PastEnd, "past the end"),
        ((6, -1), corrnoise.InvalidArgument, "participant is -1"),
        ((6, 2**64), corrnoise.InvalidArgument, "participant is 18446744073709551616"),
    ]:
        for question in (guard.admit, guard.eligible):
            with pytest.raises(exception, match=part):
                question(*arguments)
    assert guard.step == 5
    with pytest.raises(corrnoise.PlanError, match="min_sep"):
        corrnoise.Guard(sampled())
    other = corrnoise.plan(30, min_sep=11, max_participations=2, mu=1, strategy="identity")
    with pytest.raises(corrnoise.CheckpointError, match="belongs to plan"):
        corrnoise.Guard.load(tmp_path / "guard", other)
    with pytest.raises(errors.FileError):
        corrnoise.Guard.load(tmp_path / "nothing", clients())
