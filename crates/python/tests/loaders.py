"""The tests that test_loaders.py runs: corrnoise.torch.BatchSampler under DataLoaders, with and without workers.

Every pass takes the batches of steps that were not made, and no others.
"""

import pytest
import torch
from conftest import VECTORS, key
from torch.utils.data import DataLoader

import corrnoise
from corrnoise import errors

from corrnoise.torch import BatchSampler, CorrelatedNoise

BATCHES = {case["name"]: case for case in VECTORS["batches"]}
UNITS = torch.arange(61)
LOADERS = [
    {},
    {"num_workers": 1, "prefetch_factor": 3},
    {"num_workers": 2, "prefetch_factor": 2},
    {"num_workers": 2, "persistent_workers": True},
]


def sampled(name="cyclic"):
    return corrnoise.Plan.from_json(BATCHES[name]["plan"])


def sampler(name="cyclic"):
    return corrnoise.Sampler(sampled(name), key())


@pytest.fixture
def noise():
    parameter = torch.nn.Parameter(torch.zeros(5))
    parameter.grad = torch.zeros(5)
    return CorrelatedNoise([parameter], sampled(), key())


@pytest.mark.parametrize("options", LOADERS)
def test_batches_for_a_loader(options):
    own = sampler()
    loader = DataLoader(UNITS, batch_sampler=BatchSampler(own, start=4), **options)
    assert len(loader) == 8
    assert [values.tolist() for values in loader] == [own.batch(step).tolist() for step in range(4, 12)]
    assert list(BatchSampler(own, start=12)) == [] and len(BatchSampler(own)) == 12
    done = BatchSampler(own, start=12)
    assert list(done) == list(done) == [], "there is nothing to take twice"


@pytest.mark.parametrize("options", LOADERS)
def test_a_second_pass_from_a_number_is_refused(options):
    """A second pass would take a unit again after three steps where the claim says seven."""
    batches = BatchSampler(sampler(), start=2)
    loader = DataLoader(UNITS, batch_sampler=batches, **options)
    for taken, _ in enumerate(loader):
        if taken == 2:
            break
    for _ in range(2):
        with pytest.raises(corrnoise.InvalidArgument, match="begun at step 2 before") as caught:
            next(iter(loader))
    assert "start=noise.next_step" in str(caught.value) and "start=noise," in str(caught.value)
    assert len(batches) == 10


@pytest.mark.parametrize("options", LOADERS)
@pytest.mark.parametrize("paired", [True, False])
def test_a_loop_that_is_entered_again_goes_on(options, paired, noise):
    """Whatever the workers took ahead, every step gets its batch, once, in order."""
    own, seen = sampler(), []
    batches = BatchSampler(own, start=noise)
    loader = DataLoader(UNITS, batch_sampler=batches, **options)
    for stop in (3, 4, 9, None):
        begin = noise.next_step
        assert len(loader) == len(batches) == 12 - begin
        for batch, values in batches.paired(loader) if paired else ((None, values) for values in loader):
            if noise.next_step == stop:
                break  # a batch that was taken and not used comes again
            assert batch is None or batch.tolist() == values.tolist()
            noise.add_noise(batch or "unchecked")
            seen.append(values.tolist())
        assert noise.next_step == (stop or 12)
    assert seen == [own.batch(step).tolist() for step in range(12)]
    period = 7
    assert seen[: 12 - period] == seen[period:], "a unit comes again after a whole period"
    assert list(loader) == [] and len(loader) == 0


@pytest.mark.parametrize("options", LOADERS[:2])
def test_paired_batches_notice_a_step_that_was_left_out_or_made_twice(options, noise):
    batches = BatchSampler(sampler(), start=noise)
    pairs = batches.paired(DataLoader(UNITS, batch_sampler=batches, **options))
    first, _ = next(pairs)
    second, _ = next(pairs)
    with pytest.raises(errors.BatchRefused, match="drawn for step 1, the mechanism's next step is 0"):
        noise.add_noise(second)
    noise.add_noise(first)
    with pytest.raises(errors.BatchRefused, match="drawn for step 0, the mechanism's next step is 1"):
        noise.add_noise(first)
    noise.add_noise(second)
    assert noise.next_step == 2


def test_pairs_are_of_this_loader_and_in_order(noise):
    batches = BatchSampler(sampler(), start=noise)
    with pytest.raises(corrnoise.InvalidArgument, match="another batch sampler"):
        batches.paired(DataLoader(UNITS, batch_sampler=BatchSampler(sampler())))
    with pytest.raises(corrnoise.InvalidArgument, match="another batch sampler"):
        batches.paired(DataLoader(UNITS))
    with pytest.raises(corrnoise.InvalidArgument, match="in_order=False"):
        batches.paired(DataLoader(UNITS, batch_sampler=batches, num_workers=2, in_order=False))


def test_nothing_is_kept_for_loops_that_pair_nothing(noise):
    batches = BatchSampler(sampler(), start=noise)
    pairs = batches.paired(DataLoader(UNITS, batch_sampler=batches))
    next(pairs)
    assert batches._kept is None
    list(batches)
    assert [batch.step for batch, _ in pairs] == list(range(1, 12)), "another pass does not disturb"


class Drawn(torch.utils.data.Dataset):
    """A dataset that asks the sampler in the worker's process."""

    def __init__(self, own):
        self.own = own

    def __getitem__(self, step):
        return torch.tensor(self.own.batch(step).tolist())


@pytest.mark.parametrize("name", BATCHES)
def test_samplers_work_in_forked_workers(name):
    own = sampler(name)
    loader = DataLoader(Drawn(own), batch_size=None, sampler=range(12), num_workers=2, multiprocessing_context="fork")
    assert [values.tolist() for values in loader] == [own.batch(step).tolist() for step in range(12)]


def test_ranks_share_every_batch():
    own = sampler("poisson")
    parts = [list(BatchSampler(own, rank=rank, num_ranks=3)) for rank in range(3)]
    assert [len(part) for part in parts] == [12, 12, 12]
    for step in range(12):
        assert sorted(sum((part[step] for part in parts), [])) == own.batch(step).tolist()
    for arguments, part in [
        ({"start": 13}, "start is 13: expected 0 to 12"),
        ({"start": -1}, "start is -1"),
        ({"rank": 3, "num_ranks": 3}, "rank is 3: expected at least 0 and below 3"),
        ({"rank": -1}, "rank is -1"),
    ]:
        with pytest.raises(corrnoise.InvalidArgument, match=part):
            BatchSampler(own, **arguments)
    with pytest.raises(TypeError):
        BatchSampler(own, start=0.5)
