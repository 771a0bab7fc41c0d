"""corrnoise.torch.distributed over gloo: 1 to 4 ranks, other numbers of ranks after a checkpoint. The processes run ranks.py."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import SIZES, VECTORS, expected, gradients, guide_blocks, key

import corrnoise

torch = pytest.importorskip("torch")
OTHER = {1: 3, 2: 4, 3: 2, 4: 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with everything that four processes made, in one start of them."""
    folder = tmp_path_factory.mktemp("ranks")
    script = str(Path(__file__).with_name("ranks.py"))
    processes = [subprocess.Popen([sys.executable, script, str(rank), str(folder)]) for rank in range(4)]
    try:
        assert [process.wait(timeout=300) for process in processes] == [0] * 4
    finally:
        for process in processes:
            process.kill()
    return folder


def load(folder, name, world):
    return [torch.load(folder / f"{name}-{rank}.pt", weights_only=True) for rank in range(world)]


def bits(job, ranks):
    """The bits of all coordinates, put together from those of every rank."""
    if job == "replicated":
        assert all(torch.equal(a, b) for rank in ranks for a, b in zip(ranks[0], rank)), "ranks differ"
        return torch.cat(ranks[0]).numpy().tobytes()
    if job == "fsdp" and len(ranks) == 4:
        assert all(torch.equal(a, b) for one, two in zip(ranks[:2], ranks[2:]) for a, b in zip(one, two)), "copies differ"
        ranks = ranks[:2]
    return b"".join(torch.cat(pieces).numpy().tobytes() for pieces in zip(*ranks))


# Fewer files than ranks: a model of three tiles has no work for a fourth rank, and of two copies one is saved.
FILES = {("replicated", 4): 3, ("fsdp", 4): 2}


@pytest.mark.parametrize("job", ["replicated", "sharded", "fsdp"])
@pytest.mark.parametrize("world", OTHER)
def test_bits_do_not_depend_on_the_number_of_ranks(job, world, folder):
    """Three steps on `world` ranks, a checkpoint and two steps on another number of ranks give what one process makes."""
    name = f"{job}-{world}"
    assert len(list((folder / name).iterdir())) == FILES.get((job, world), world)
    made = {label: bits(job, load(folder, f"{name}-{label}", OTHER[world])) for label in ("exact", "once", "twice")}
    assert made["exact"] == expected("blt", "float32")
    assert len(set(made.values())) == 3, "every new incarnation has noise of its own, the same on all ranks"


@pytest.mark.parametrize("job", ["replicated", "sharded", "fsdp"])
@pytest.mark.parametrize("world", OTHER)
def test_state_dicts_are_asked_of_the_first_rank_alone(job, world, folder):
    """The bits after a state dict are those after a folder; nobody but the first rank has one, and it not before it was gathered."""
    asked = load(folder, f"asked-{job}-{world}", world)
    for rank, messages in enumerate(asked):
        assert len(messages) == (1 if rank == 0 else 2)
        assert all(message.startswith("CheckpointError") and "expected gather_state()" in message for message in messages)
    answers = load(folder, f"dicts-{job}-{world}", OTHER[world])
    made = {label: bits(job, [answer[0][label] for answer in answers]) for label in ("exact", "once", "twice")}
    assert made["exact"] == expected("blt", "float32")
    assert len(set(made.values())) == 3, "every new incarnation has noise of its own, the same on all ranks"
    for _, (plan, damaged) in answers:
        assert plan.startswith("CheckpointError") and "belongs to plan another" in plan
        assert damaged.startswith("CheckpointError"), "the first rank's failure is every rank's"


def test_what_fails_on_one_rank_fails_on_all(folder):
    """Where one rank finds a mistake, or the ledger, the others wait for nobody: they raise what it raised."""
    for rank, messages in enumerate(load(folder, "lonely", 4)):
        gradient, batch, replicated, sharded = messages
        assert gradient.startswith("InvalidArgument") and "'bias' has no grad" in gradient
        assert batch.startswith("BatchRefused") and "drawn for step 0, the mechanism's next step is 1" in batch
        assert ("rank 1: " in gradient) == (rank != 1) and ("rank 0: " in batch) == (rank != 0)
        assert replicated.startswith("RepeatedNoise") and sharded.startswith("RepeatedNoise")


def test_parameters_are_identical_after_training(folder):
    ranks = [parameters for world in OTHER for parameters in load(folder, f"train-{world}", world)]
    assert all(torch.equal(a, b) for rank in ranks for a, b in zip(ranks[0], rank))
    assert ranks[0][0].abs().max() > 0.1


def test_refusals(folder):
    for answer in load(folder, "refusals", 2):
        keys, nothing, gradient, mixed, piece, plain, columns, again = answer["messages"]
        assert keys.startswith("InvalidArgument") and "disagree" in keys
        assert nothing.startswith("CheckpointError") and "/no/such/folder" in nothing
        assert gradient.startswith("InvalidArgument") and "'bias' has no grad" in gradient
        assert mixed.startswith("InvalidArgument") and "'bias' is torch.float16: expected torch.float32" in mixed
        assert piece.startswith("InvalidArgument") and "is 3 to 6: expected a part of 0 to 5" in piece
        assert plain.startswith("InvalidArgument") and "'weight' is no DTensor" in plain
        assert columns.startswith("InvalidArgument") and "expected one Shard(0)" in columns
        assert again.startswith("CheckpointError") and "expected a new folder" in again
        assert answer["unchanged"]


@pytest.mark.parametrize("job", ["replicated", "sharded"])
def test_a_step_without_its_batch_is_refused_on_every_rank(job, folder):
    """The fourth rank has no coordinates: it refuses all the same, and waits for nobody."""
    answers = load(folder, f"batches-{job}", 4)
    for answer in answers:
        assert answer["steps"] == [0, 0, 0, 1, 2] and answer["unchanged"]
        none, other, foreign = answer["messages"]
        assert none.startswith("BatchRefused") and "step 0 has no batch" in none
        assert other.startswith("BatchRefused") and "drawn for step 1, the mechanism's next step is 0" in other
        assert foreign.startswith("BatchRefused") and "another key" in foreign
    mechanism = corrnoise.Mechanism(corrnoise.Plan.from_json(VECTORS["batches"][0]["plan"]), key(), corrnoise.Layout(SIZES))
    one = gradients()
    for _ in range(2):
        mechanism.add_to(one, "unchecked")
    if job == "replicated":
        assert all(torch.equal(torch.from_numpy(a), b) for rank in answers for a, b in zip(one, rank["made"]))
    else:
        assert np.array_equal(np.concatenate(one), torch.cat([torch.cat(rank["made"]) for rank in answers]).numpy())


def test_the_guide_runs(tmp_path):
    """Runs the block as its own comment says: on four ranks, of which one owns no coordinate of so small a model."""
    corrnoise.Plan.from_json(VECTORS["batches"][0]["plan"]).save(tmp_path / "plan.json")
    corrnoise.Key.create_file(tmp_path / "noise.key")
    (block,) = [block for block in guide_blocks("pytorch.md") if "torchrun" in block]
    (tmp_path / "train.py").write_text(block)
    comment, command = block.splitlines()[0].split(maxsplit=1)
    program, *arguments = command.split()
    assert (comment, program, arguments[1]) == ("#", "torchrun", "4")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", *arguments]
    run = subprocess.run(torchrun, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stderr
    assert len(list((tmp_path / "checkpoint-1").iterdir())) == 3
