"""One key, one plan, one run id: no noise twice, whichever way a program goes about it."""

import os
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest

import conftest
import corrnoise
from corrnoise import Key, Mechanism
from corrnoise.errors import RepeatedNoise

DIM = 1000


@pytest.fixture
def plan():
    return conftest.plan("blt")


def steps(noise, count):
    gradient = np.zeros(DIM, dtype=np.float32)
    for _ in range(count):
        noise.add_to(gradient)
    return gradient


def test_a_second_start_is_refused_and_says_what_to_do(plan, tmp_path):
    path = tmp_path / "noise.key"
    noise = Mechanism(plan, Key.create_file(path), DIM)
    with pytest.raises(RepeatedNoise, match="alive"):
        Mechanism(plan, Key.from_file(path), DIM)
    steps(noise, 3)
    noise.save(tmp_path / "saved")
    del noise
    with pytest.raises(RepeatedNoise, match="steps 0 to 2.*resume from a checkpoint.*another run id.*another key"):
        Mechanism(plan, Key.from_file(path), DIM)
    steps(Mechanism(plan, Key.from_file(path, "another"), DIM), 1)
    steps(Mechanism.resume(plan, Key.from_file(path), DIM, [tmp_path / "saved"]), 1)
    steps(Mechanism.resume(plan, Key.from_file(path), DIM, [tmp_path / "saved"], resume="exact"), 1)
    with pytest.raises(RepeatedNoise, match="step 3 of coordinates"):
        Mechanism.resume(plan, Key.from_file(path), DIM, [tmp_path / "saved"], resume="exact")


def test_a_ledger_of_ones_own(plan, tmp_path):
    def key():
        return Key.from_bytes(b"k" * 32, "run", ledger=tmp_path / "ledger")

    steps(Mechanism(plan, key(), DIM), 1)
    with pytest.raises(RepeatedNoise, match="ledger"):
        Mechanism(plan, key(), DIM)
    assert np.array_equal(steps(Mechanism(plan, key().without_ledger(), DIM), 1), steps(plain(plan), 1))


def plain(plan):
    return Mechanism(plan, Key.from_bytes(b"k" * 32, "run"), DIM)


def test_the_environment_names_a_place(plan, tmp_path, monkeypatch):
    path = tmp_path / "noise.key"
    Key.create_file(path)
    monkeypatch.setenv("CORRNOISE_LEDGER", str(tmp_path / "elsewhere"))
    steps(Mechanism(plan, Key.from_file(path), DIM), 1)
    assert not (tmp_path / "noise.key.ledger").exists()
    with pytest.raises(RepeatedNoise, match="elsewhere"):
        Mechanism(plan, Key.from_file(path), DIM)


def test_a_relative_place_is_refused(plan, tmp_path, monkeypatch):
    path = tmp_path / "noise.key"
    Key.create_file(path)
    monkeypatch.setenv("CORRNOISE_LEDGER", "ledger")
    with pytest.raises(corrnoise.InvalidArgument, match="CORRNOISE_LEDGER is ledger: expected an absolute path"):
        Mechanism(plan, Key.from_file(path), DIM)


def test_replicas_say_so(plan, tmp_path):
    path = tmp_path / "noise.key"
    one = Mechanism(plan, Key.create_file(path), DIM, replica=True)
    with pytest.raises(RepeatedNoise, match="replicas"):
        Mechanism(plan, Key.from_file(path), DIM)
    two = Mechanism(plan, Key.from_file(path), DIM, replica=True)
    assert np.array_equal(steps(one, 1), steps(two, 1))


def test_a_mechanism_that_awaits_a_state(plan, tmp_path):
    path = tmp_path / "noise.key"
    first = Mechanism(plan, Key.create_file(path), DIM, awaits_state=True)
    steps(first, 2)
    state = first.state()
    for resume in ["new", "exact"]:
        second = Mechanism(plan, Key.from_file(path), DIM, awaits_state=True)
        with pytest.raises(RepeatedNoise, match="steps 0 to 1"):
            steps(second, 1)
        assert second.next_step == 0
        if resume == "exact":
            second.load_state([state], resume=resume)
        else:
            with pytest.raises(RepeatedNoise, match="alive"):
                second.load_state([state], resume="exact")
            second.load_state([state], resume=resume)
            del first
        steps(second, 1)
        assert second.next_step == 3
        del second


def test_states_keep_their_claims(plan, tmp_path):
    noise = Mechanism(plan, Key.create_file(tmp_path / "noise.key"), DIM)
    early = noise.state()
    steps(noise, 3)
    late = noise.state()
    noise.load_state([late], resume="exact")
    noise.load_state([early])
    steps(noise, 1)
    for state, match in [(early, "steps 0 to 2"), (late, None)]:
        if match:
            with pytest.raises(RepeatedNoise, match=match):
                noise.load_state([state], resume="exact")
        else:
            noise.load_state([state], resume="exact")
    assert noise.next_step == 3


def test_key_files_that_others_may_read_are_warned_about(tmp_path):
    path = tmp_path / "noise.key"
    Key.create_file(path)
    os.chmod(path, 0o644)
    with pytest.warns(RuntimeWarning, match="chmod 600"):
        Key.from_file(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Key.from_file(path)  # once


FORK = """
import os, sys
import numpy as np
import corrnoise
from corrnoise import Key, Mechanism, Plan, Sampler
from corrnoise.errors import Forked
plan, dim = Plan.load(sys.argv[1]), int(sys.argv[2])
key = Key.from_os()
noise = Mechanism(plan, key, dim)
gradient = np.zeros(dim, dtype=np.float32)
noise.add_to(gradient)
sampler = Sampler(Plan.load(sys.argv[3]), key)
before = sampler.batch(2).tolist()
child = os.fork()
if child == 0:
    try:
        noise.add_to(gradient)
    except Forked:
        pass
    else:
        os._exit(1)
    if sampler.batch(2).tolist() != before:
        os._exit(2)
    own = Mechanism(plan, Key.from_os(), dim)
    own.add_to(gradient)
    del noise, own
    os._exit(0)
_, status = os.waitpid(child, 0)
noise.add_to(gradient)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize("dim", [1000, 5_000_000])
def test_a_forked_child_makes_no_noise_of_its_parent(plan, tmp_path, dim):
    sampled = corrnoise.plan(dataset_size=1000, batch_size=100, epochs=2, epsilon=2.0, delta=1e-6)
    plan.save(tmp_path / "plan.json")
    sampled.save(tmp_path / "sampled.json")
    arguments = [sys.executable, "-c", FORK, tmp_path / "plan.json", str(dim), tmp_path / "sampled.json"]
    done = subprocess.run(arguments, timeout=60, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_killed_run_is_known(plan, tmp_path):
    path = tmp_path / "noise.key"
    plan.save(tmp_path / "plan.json")
    code = (
        "import os, signal, sys, numpy as np; from corrnoise import *\n"
        "noise = Mechanism(Plan.load(sys.argv[1]), Key.create_file(sys.argv[2]), 1000)\n"
        "g = np.zeros(1000, dtype=np.float32); noise.add_to(g); noise.add_to(g)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "plan.json", path], timeout=60)
    assert done.returncode == -signal.SIGKILL
    with pytest.raises(RepeatedNoise, match="steps 0 to 1"):
        Mechanism(plan, Key.from_file(path), DIM)
