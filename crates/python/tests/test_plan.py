"""plan() and recommend(): the command line's plans, what a plan says of itself, and refusals."""

import json
import math
import pickle
import warnings

import pytest
from conftest import ROOT, VECTORS, ticks_during
from conftest import plan as without_claim

import corrnoise
from corrnoise import errors

PLANS = json.loads((ROOT / "tests/data/plans.json").read_text())


def body(plan):
    return json.loads(plan.to_json())["plan"]


def close(a, b):
    """True if two plans are equal but for the last digits, which differ between machines, as fingerprints do."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(close(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, float) or isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-6)
    return a == b


@pytest.mark.parametrize("case", PLANS, ids=lambda case: case["line"])
def test_plans_are_those_of_the_command_line(case):
    made = corrnoise.plan(**case["keywords"])
    assert close(body(made), case["plan"])


def federated(**options):
    keywords = {"min_sep": 6, "max_participations": 2, "epsilon": 3, "delta": 1e-7, "strategy": "blt:2"}
    return corrnoise.plan(24, **(keywords | options))


def test_what_a_plan_says_of_itself(tmp_path):
    made = federated()
    assert made.epsilon == pytest.approx(3, rel=1e-5) and made.epsilon <= 3 and made.delta == 1e-7
    assert made.sampling == {"kind": "minsep", "min_sep": 6, "max_participations": 2}
    assert made.certificate["claim"]["epsilon"] == made.epsilon and made.certificate["clip_norm"] == 1.0
    named = {"strategy": "blt:2", "unit": "example", "adjacency": "zero-out"}
    assert named.items() <= made.certificate.items() and body(made)["steps"] == 24
    assert made.verify() is None
    for part in ["num_steps=24", f"epsilon={made.epsilon}", "delta=1e-7", "strategy='blt:2'", made.fingerprint]:
        assert part in repr(made), part
    made.save(tmp_path / "plan.json")
    assert corrnoise.Plan.load(tmp_path / "plan.json") == made == pickle.loads(pickle.dumps(made)) == federated()


def test_plans_without_a_claim_and_with_a_false_one():
    plain = without_claim()
    assert (plain.epsilon, plain.delta, plain.certificate, plain.sampling) == (None, None, None, None)
    assert "stddev=0.75" in repr(plain) and "epsilon" not in repr(plain)
    with pytest.raises(corrnoise.PlanError, match="makes no privacy claim"):
        plain.verify()
    # Its noise is what its certificate is for, so it loads; the claim is computed where it is used, and never shown.
    false = corrnoise.Plan.from_json(VECTORS["false_claim"])
    assert (false.num_steps, false.stddev, false.sampling) == (5, 0.75, None)
    uses = [false.verify] + [lambda name=name: getattr(false, name) for name in ["epsilon", "delta", "certificate"]]
    for use in uses * 2:
        with pytest.raises(corrnoise.PlanError, match="claim does not hold: it states claim.* but its numbers give"):
            use()
    assert "claim does not hold" in repr(false) and "epsilon=" not in repr(false)


def resealed(plan, path, value):
    """A plan with one number changed, under the fingerprint that the refusal of the change tells."""
    file = json.loads(plan.to_json())
    *keys, last = path
    place = file["plan"]
    for key in keys:
        place = place[key]
    assert place[last] != value
    place[last] = value
    with pytest.raises(errors.Error) as caught:
        corrnoise.Plan.from_json(json.dumps(file))
    marker = "content has "
    if marker not in str(caught.value):
        raise caught.value
    file["fingerprint"] = str(caught.value).split(marker)[1][:64]
    return corrnoise.Plan.from_json(json.dumps(file))


def test_plans_under_a_new_seal():
    made = federated()
    for path, value, part in [
        (["stddev"], 0.0, "stddev is 0: expected finite and above 0"),
        (["stddev"], made.stddev / 2, "its stddev is .* but its certificate is for"),
        (["certificate", "clip_norm"], 0.5, "its stddev is .* but its certificate is for"),
        (["certificate", "claim", "sensitivity"], "1", 'claim.sensitivity is "1": expected a finite number above 0'),
        (["certificate", "claim", "gdp_mu"], 1e-3, "gdp_mu is 0.001: expected 1 over the noise multiplier"),
    ]:
        with pytest.raises(errors.Error, match=part):
            resealed(made, path, value)
    edited = resealed(made, ["certificate", "claim", "epsilon"], 0.1)
    with pytest.raises(corrnoise.PlanError, match="it states claim.epsilon 0.1, but its numbers give"):
        edited.epsilon  # noqa: B018
    assert made.epsilon > 2.9, "of the plan that was not edited"


def test_a_claim_is_computed_once_and_without_the_lock():
    # A PLD of many rounds takes a while.
    options = {"dataset_size": 100_000, "batch_size": 100, "noise_multiplier": 0.7, "delta": 1e-7, "sampling": "poisson"}
    made = corrnoise.recommend(20_000, strategy="identity", **options).best.plan
    assert ticks_during(lambda: made.epsilon) >= 1
    copy = corrnoise.Plan.from_json(made.to_json())
    assert copy.epsilon == made.epsilon == made.certificate["claim"]["epsilon"]


def test_a_large_delta_is_warned_of():
    data = {"dataset_size": 80, "batch_size": 10, "epsilon": 1, "strategy": "identity"}
    with pytest.warns(UserWarning, match="delta is 1.25e-2 for a dataset of 80: expected well below 1/80") as caught:
        answer = corrnoise.recommend(8, delta=0.0125, **data)
    assert [str(warning.message) for warning in caught] == answer.warnings
    with pytest.warns(UserWarning, match="dataset of 80"):
        corrnoise.plan(8, delta=0.5, **data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert corrnoise.recommend(8, delta=0.012, **data).warnings == []
        with pytest.raises(UserWarning):
            corrnoise.recommend(8, delta=0.5, **data)


def test_one_epsilon_for_all():
    answer = corrnoise.recommend(24, dataset_size=80, batch_size=10, mu=0.5)
    found = [candidate.plan.epsilon for candidate in answer.candidates]
    assert min(found) > 0.999 * max(found)


def test_limits_are_on_what_the_engine_holds():
    answer = corrnoise.recommend(200, participation="minsep:50,3", epsilon=2, delta=1e-6, max_state_bytes=40)
    assert answer.best.engine_bytes == answer.best.plan.engine_bytes_per_param <= 40
    noise = corrnoise.Mechanism(answer.best.plan, corrnoise.Key.from_os(), 1000)
    assert noise.state_bytes == 1000 * answer.best.engine_bytes


def test_what_auto_compares():
    [case] = [case for case in PLANS if "epochs" in case["keywords"]]
    answer = corrnoise.recommend(**case["keywords"])
    assert len(answer.candidates) >= 6
    names = [(candidate.strategy, candidate.sampling) for candidate in answer.candidates]
    assert {("identity", "cyclic"), ("identity", "poisson"), ("dense", "cyclic"), ("tree", "cyclic")} <= set(names)
    found = [candidate.error for candidate in answer.candidates]
    assert found == sorted(found)
    assert answer.best.strategy in answer.reason and answer.best.rows_per_step <= 32
    for candidate in answer.candidates:
        assert candidate.plan.num_steps == 34 and 1.999 < candidate.plan.epsilon <= 2
        assert candidate.state_bytes == candidate.plan.state_bytes_per_param
    assert all(isinstance(strategy, str) and isinstance(reason, str) for strategy, reason in answer.skipped)
    assert close(body(answer.best.plan), case["plan"])
    assert str(len(names)) in repr(answer) and answer.best.strategy in repr(answer.best)


BASE = {"steps": 8, "mu": 1, "strategy": "identity"}
DATA = {"dataset_size": 80, "batch_size": 10}


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"mu": 1}, "no length: expected steps or epochs"),
        ({"steps": 8}, "no budget: expected epsilon, mu or noise_multiplier"),
        (BASE | {"steps": 0}, "steps is 0: expected a whole number, at least 1"),
        (BASE | {"steps": -3}, "steps is -3: expected"),
        (BASE | {"steps": 10**12}, "number of steps is 1000000000000: expected 1 to"),
        (BASE | DATA | {"epochs": 2}, "two lengths: expected one of steps and epochs"),
        ({"epochs": 2, "mu": 1}, "epochs needs dataset_size and batch_size"),
        ({"epochs": 0, "mu": 1} | DATA, "number of epochs is 0"),
        (BASE | {"epsilon": 1}, "two budgets"),
        ({"steps": 8, "epsilon": 1}, "epsilon needs delta"),
        ({"steps": 8, "epsilon": 0, "delta": 1e-6}, "epsilon is 0: expected positive"),
        ({"steps": 8, "epsilon": math.nan, "delta": 1e-6}, "epsilon is NaN: expected a finite"),
        ({"steps": 8, "epsilon": 1, "delta": 1}, r"delta is 1: expected in \(0, 1\)"),
        ({"steps": 8, "noise_multiplier": -1}, "noise multiplier is -1: expected positive"),
        (BASE | {"clip_norm": 0}, "clip norm is 0: expected above 0"),
        (BASE | {"dataset_size": 80}, "dataset_size needs batch_size"),
        (BASE | DATA | {"batch_size": 81}, "batch size is 81: expected 1 to 80"),
        (BASE | {"min_sep": 3}, "setting federated needs min_sep and max_participations"),
        (BASE | DATA | {"min_sep": 3}, "setting federated needs min_sep and max_participations"),
        (BASE | DATA | {"min_sep": 3, "setting": "centralized"}, "min_sep 3 is for setting federated"),
        (BASE | {"participation": "twice"}, 'participation is "twice": no such participation; expected single'),
        (BASE | {"participation": "minsep:3,4"}, "max participations is 4: expected 1 to 3"),
        (BASE | {"participation": "full", "setting": "streaming"}, "participation takes the place of setting"),
        (BASE | {"setting": "decentralized"}, 'setting is "decentralized": .* expected centralized'),
        (BASE | {"sampling": "poisson"}, "sampling needs dataset_size and batch_size"),
        (DATA | {"steps": 8, "mu": 1, "sampling": "poisson"}, "sampling is for one strategy"),
        (BASE | DATA | {"sampling": "shuffle"}, 'sampling is "shuffle": .* balls-in-bins'),
        (BASE | {"strategy": "quadtree"}, 'strategy is "quadtree": no such strategy; expected auto, identity'),
        (BASE | {"strategy": "blt"}, "blt needs a number, as in blt:4"),
        (BASE | {"strategy": "banded:9"}, "number of bands is 9: expected 1 to 8"),
        (BASE | {"workload": "momentum:2"}, 'workload is "momentum:2": .*2'),
        (BASE | {"objective": "mean"}, 'objective is "mean": .* max or rms'),
        (BASE | {"adjacency": "add-remove"}, 'adjacency is "add-remove": .* zero-out'),
        (BASE | {"unit": "household"}, 'unit is "household": .* user'),
        (BASE | {"max_state_bytes": -1}, "max_state_bytes is -1: expected a whole number, at least 0"),
        (BASE | {"strategy": "blt:2", "max_state_bytes": 4}, "state is 8 bytes per parameter: expected at most 4, as max_state_bytes"),
        (BASE | {"rounds": 13}, "ChaCha rounds is 13: expected 8, 12 or 20"),
    ],
)
def test_refusals(options, part):
    with pytest.raises(corrnoise.InvalidArgument, match=part) as caught:
        corrnoise.plan(**options)
    assert isinstance(caught.value, errors.Error) and "--" not in str(caught.value)


def test_keywords_only_and_by_type():
    with pytest.raises(TypeError):
        corrnoise.plan(8, 2)
    with pytest.raises(TypeError, match="steps"):
        corrnoise.plan("8", mu=1)
    with pytest.raises(TypeError, match="sigma"):
        corrnoise.plan(8, sigma=1)


def test_the_lock_of_the_interpreter_is_released():
    assert ticks_during(lambda: corrnoise.recommend(64, mu=1)) >= 2


def test_epsilon_after_some_steps():
    made = corrnoise.plan(
        epochs=4, dataset_size=100, batch_size=10, epsilon=2, delta=1e-6, strategy="identity", sampling="poisson"
    )
    spent = [made.epsilon_after(steps) for steps in range(41)]
    assert spent[0] == 0 and spent[40] == made.epsilon_after(1000) == made.epsilon
    assert all(0 < before < after for before, after in zip(spent[1:], spent[2:]))
    with pytest.raises(corrnoise.InvalidArgument, match="steps is -1"):
        made.epsilon_after(-1)
