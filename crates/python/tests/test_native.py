"""Plans, keys, layouts and mechanisms on NumPy arrays and other memory."""

import array
import pickle
import stat
import threading

import numpy as np
import pytest
from conftest import SIZES, expected, gradients, key, plan, ticks_during

import corrnoise
from corrnoise import errors

ml_dtypes = pytest.importorskip("ml_dtypes")
DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def test_shards_have_the_bits_of_the_whole(layout):
    parts = [[(0, 100)], [(100, 1024 + 3)], [(1024 + 3, 2000)]]
    mechanisms = [corrnoise.Mechanism(plan(), key(), layout, ranges=part) for part in parts]
    assert [m.segments for m in mechanisms] == [[(0, 100)], [(100, 600), (1024, 1027)], [(1027, 1031)]]
    for _ in range(5):
        weight, bias = gradients()
        mechanisms[0].add_to(weight[:100])
        mechanisms[1].add_to((weight[100:], bias[:3]))
        mechanisms[2].add_to([bias[3:]])
    assert weight.tobytes() + bias.tobytes() == expected("blt", "float32")


class Exported:
    """An object that exports DLPack only, as libraries do that have nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("wrap", [memoryview, Exported, lambda a: a.reshape(3, 200)])
def test_other_memory(wrap, mechanism):
    for _ in range(5):
        weight, bias = gradients()
        mechanism.add_to([wrap(weight), array_of(bias)])
    assert weight.tobytes() == expected("blt", "float32")[: weight.nbytes]


def array_of(values):
    return array.array("f", values)


def refused(mechanism, arrays, part, exception=errors.InvalidArgument):
    before = [np.array(a, copy=True) for a in arrays if isinstance(a, np.ndarray)]
    with pytest.raises(exception, match=part) as caught:
        mechanism.add_to(arrays)
    assert isinstance(caught.value, corrnoise.Error)
    after = [a for a in arrays if isinstance(a, np.ndarray)]
    assert all(np.array_equal(a, b) for a, b in zip(before, after))
    assert mechanism.next_step == 0


def read_only(values):
    values.flags.writeable = False
    return values


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda w, b: [w], "list of gradients has length 1: expected 2"),
        (lambda w, b: [w, b[:6]], "gradient 1 has length 6: expected 7"),
        (lambda w, b: [], "empty"),
        (lambda w, b: [w, b.astype(np.float64)], "gradient 1 has numbers of format \"d\""),
        (lambda w, b: [w, b.astype(">f4")], "format"),
        (lambda w, b: [w, b.astype(np.float16)], "gradient 1 is float16: expected float32"),
        (lambda w, b: [w, b.astype(ml_dtypes.float8_e4m3fn)], "float8_e4m3fn"),
        (lambda w, b: [w, np.repeat(b, 2)[::2]], "gradient 1 is not C-contiguous"),
        (lambda w, b: [w, np.repeat(b, 2)[::2].astype(ml_dtypes.bfloat16).repeat(2)[::2]], "C-contiguous"),
        (lambda w, b: [w, read_only(b)], "gradient 1 is read-only"),
        (lambda w, b: [w, read_only(b.astype(ml_dtypes.bfloat16))], "read-only"),
        (lambda w, b: [w, Exported(np.repeat(b, 2)[::2])], "C-contiguous"),
        (lambda w, b: [w, Exported(read_only(b))], "read-only"),
        (lambda w, b: [w, w[:7]], "does not overlap"),
        (lambda w, b: [w, None], "gradient 1 is None"),
        (lambda w, b: [w, 3], "gradient 1 is a int"),
        (lambda w, b: [w, np.frombuffer(bytearray(29), np.uint8)[1:].view(np.float32)], "a multiple of 4"),
    ],
)
def test_refused_gradients_change_nothing(make, part, mechanism):
    refused(mechanism, make(*gradients()), part)


def test_the_end_and_overflow(mechanism, layout):
    for _ in range(5):
        mechanism.add_to(gradients())
    with pytest.raises(errors.PastEnd, match="step 5 is past the end") as caught:
        mechanism.add_to(gradients())
    assert isinstance(caught.value, corrnoise.StepError)
    half = corrnoise.Mechanism(plan(), key("half"), layout)
    with pytest.raises(errors.GradientOverflow, match="f16"):
        half.add_to([np.full(size, np.inf, np.float16) for size in SIZES.values()])
    assert half.next_step == 1


def test_checkpoints(tmp_path, mechanism, layout):
    for _ in range(3):
        mechanism.add_to(gradients())
    path = tmp_path / "noise.safetensors"
    mechanism.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    resume = corrnoise.Mechanism.resume
    exact = resume(plan(), key(), layout, [path], resume="exact")
    fresh = resume(plan(), key(), layout, [path])
    shared = [resume(plan(), key(), layout, [path], nonce=bytes(range(16))) for _ in range(2)]
    made = []
    for other in (exact, fresh, *shared):
        for _ in range(2):
            arrays = gradients()
            other.add_to(arrays)
        made.append(b"".join(a.tobytes() for a in arrays))
    assert made[0] == expected("blt", "float32")
    assert made[1] != made[0] and made[2] == made[3] != made[0]
    with pytest.raises(corrnoise.CheckpointError, match="belongs to plan"):
        resume(plan("banded"), key(), layout, [path])
    with pytest.raises(corrnoise.CheckpointError):
        resume(plan(), key("another"), layout, [path])
    with pytest.raises(errors.FileError):
        resume(plan(), key(), layout, [tmp_path / "nothing"])
    for arguments, part in [({"resume": "old"}, "old"), ({"nonce": b"1"}, "16 bytes"), ({"resume": "exact", "nonce": bytes(16)}, "none")]:
        with pytest.raises(corrnoise.InvalidArgument, match=part):
            resume(plan(), key(), layout, [path], **arguments)


def test_state_in_memory(mechanism):
    for _ in range(3):
        mechanism.add_to(gradients())
    state = mechanism.state()
    mechanism.load_state([state], resume="exact")
    mechanism.add_to(gradients())
    with pytest.raises(corrnoise.errors.RepeatedNoise, match="step 3 after this checkpoint: resume with a new incarnation"):
        mechanism.load_state([state], resume="exact")
    assert mechanism.next_step == 4
    with pytest.raises(corrnoise.CheckpointError):
        mechanism.load_state([state[:-1] + bytes([state[-1] ^ 1])])
    assert mechanism.next_step == 4
    mechanism.load_state([state])
    assert mechanism.next_step == 3


def test_exact_resume_is_refused_after_new(mechanism):
    """A new incarnation is back at the state's step, but the rows of the first one after it were made all the same."""
    state = mechanism.state()
    for _ in range(3):
        mechanism.add_to(gradients())
    mechanism.load_state([state])
    fresh = mechanism.state()
    with pytest.raises(corrnoise.Error):
        mechanism.load_state([state], resume="exact")
    assert mechanism.next_step == 0, "a refusal changes nothing"
    mechanism.load_state([fresh], resume="exact")  # of this incarnation nothing was made yet
    mechanism.add_to(gradients())
    for old in (state, fresh):
        with pytest.raises(corrnoise.Error):
            mechanism.load_state([old], resume="exact")
    assert mechanism.next_step == 1


def test_plans_keys_and_layouts(tmp_path, layout):
    one = plan()
    one.save(tmp_path / "plan.json")
    assert corrnoise.Plan.load(tmp_path / "plan.json") == one == pickle.loads(pickle.dumps(one)) != plan("banded")
    assert (one.num_steps, one.stddev, one.state_bytes_per_param, len(one.fingerprint)) == (5, 0.75, 8, 64)
    with pytest.raises(corrnoise.PlanError, match="edited or damaged"):
        corrnoise.Plan.from_json(one.to_json().replace("0.75", "0.5"))
    assert layout.tensors == [("weight", 0, 600), ("bias", 1024, 1031)] and layout.dim == 1031
    with pytest.raises(corrnoise.InvalidArgument, match="at least 1"):
        corrnoise.Layout({"weight": 0})

    made = corrnoise.Key.create_file(tmp_path / "key")
    with pytest.raises(errors.KeyRefused, match="exists"):
        corrnoise.Key.create_file(tmp_path / "key")
    assert "Key(run_id" in repr(made)
    with pytest.raises(corrnoise.InvalidArgument, match="0 to|2\\^48|coordinate"):
        corrnoise.Mechanism(one, made, 10, ranges=[(10, 11)])
    # The second ends before it starts, and hides that the third overlaps the first.
    with pytest.raises(corrnoise.InvalidArgument, match=r"\[9\.\.1\]: expected no range that ends before it starts"):
        corrnoise.Mechanism(one, made, 10, ranges=[(0, 6), (9, 1), (3, 10)])
    with pytest.raises(corrnoise.InvalidArgument, match=r"\[0\.\.6, 5\.\.10\]: expected ascending and disjoint"):
        corrnoise.Mechanism(one, made, 10, ranges=[(0, 6), (5, 10)])
    first = corrnoise.Mechanism(one, made, 10)
    with pytest.raises(errors.KeyRefused, match="already serves a mechanism"):
        corrnoise.Mechanism(one, made, 10)
    with pytest.raises(errors.RepeatedNoise, match="alive"):
        corrnoise.Mechanism(one, corrnoise.Key.from_file(tmp_path / "key"), 10)
    again = corrnoise.Mechanism(one, corrnoise.Key.from_file(tmp_path / "key").without_ledger(), 10)
    assert first.commitment == again.commitment
    with pytest.raises(corrnoise.InvalidArgument, match="length 5: expected 32"):
        corrnoise.Key.from_bytes(b"short", "r")
    with pytest.raises(TypeError):
        corrnoise.Mechanism(one, key(), "model")


def test_states_pass_through_no_file(tmp_path, monkeypatch):
    mechanism = corrnoise.Mechanism(plan(), key(), 1000)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    state = mechanism.state()
    mechanism.load_state([state])
    with pytest.raises(errors.CheckpointError, match="checkpoint in memory refused: truncated"):
        mechanism.load_state([state[:-1]])
    mechanism.save(tmp_path / "file")
    assert mechanism.state() == (tmp_path / "file").read_bytes()


def test_the_lock_of_the_interpreter_is_released():
    size = 8_000_000
    mechanism = corrnoise.Mechanism(plan(), key(), size, threads=1)
    gradient = np.zeros(size, np.float32)
    assert ticks_during(lambda: mechanism.add_to(gradient)) >= 2


def test_a_mechanism_serves_one_call_at_a_time():
    size = 8_000_000
    mechanism = corrnoise.Mechanism(plan(), key(), size, threads=1)
    gradient = np.zeros(size, np.float32)
    thread = threading.Thread(target=mechanism.add_to, args=(gradient,))
    thread.start()
    busy = 0
    while thread.is_alive():
        try:
            mechanism.next_step
        except errors.BusyError:
            busy += 1
    thread.join()
    assert busy > 0 and mechanism.next_step == 1
