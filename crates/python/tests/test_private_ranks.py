"""make_private on three processes over gloo, against one process. The processes run private_ranks.py."""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import guide_blocks

import corrnoise

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")
import private_ranks  # noqa: E402


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plans")
    options = {"epochs": 4, "dataset_size": 60, "batch_size": 12, "epsilon": 4, "delta": 1e-5, "clip_norm": 0.5}
    corrnoise.plan(strategy="blt:2", **options).save(folder / "cyclic.json")
    # Often a rank gets nothing, and some batches are empty.
    corrnoise.plan(strategy="identity", sampling="poisson", **options | {"batch_size": 2, "epochs": 1}).save(folder / "poisson.json")
    return folder


def files(plans, folder):
    for name in ("cyclic.json", "poisson.json"):
        (folder / name).write_bytes((plans / name).read_bytes())
    (folder / "noise.key").write_bytes(bytes(range(32)))
    (folder / "noise.key").chmod(0o600)
    return folder


@pytest.fixture(scope="module")
def alone(plans, tmp_path_factory):
    """The parameters after each run on one process, and a run id of its own for the one that is resumed."""
    folder, made = files(plans, tmp_path_factory.mktemp("alone")), {}
    for run in (*private_ranks.RUNS, "exact"):
        model, optimizer, loader = private_ranks.start(folder, run)
        private_ranks.train(model, optimizer, loader, run)
        made[run] = private_ranks.values(model)
    return made


def test_ranks_train_as_one_process(plans, alone, tmp_path, world=3):
    folder = files(plans, tmp_path)
    script = str(Path(__file__).with_name("private_ranks.py"))
    processes = [subprocess.Popen([sys.executable, script, str(rank), str(world), str(folder)]) for rank in range(world)]
    try:
        assert [process.wait(timeout=300) for process in processes] == [0] * world
    finally:
        for process in processes:
            process.kill()
    ranks = [torch.load(folder / f"ranks-{rank}.pt", weights_only=True) for rank in range(world)]
    for made in (rank["made"] for rank in ranks):
        assert all(torch.equal(value, ranks[0]["made"][name]) for name, value in made.items()), "ranks are equal, bit for bit"
        assert torch.equal(made["zero"], alone["zero"]), "noise is that of one process, bit for bit"
        for run in ("cyclic", "poisson", "managed", "exact"):
            assert (made[run] - alone[run]).abs().max() < 1e-5, run
        cyclic, once, twice = made["cyclic"], made["once"], made["twice"]
        assert not torch.equal(cyclic, once) and not torch.equal(once, twice), "every resume is a new incarnation"
    for rank, answer in enumerate(ranks):
        used, short, clip_norm, keys, wrapped, pieces = answer["messages"]
        assert used.startswith("RepeatedNoise")
        assert short.startswith("InvalidArgument") and "gradients are of" in short and ("rank 1: " in short) == (rank != 1)
        assert "max_grad_norm is 7.0" in clip_norm and ("rank 0: " in clip_norm) == (rank != 0)
        assert "disagree about key, plan or parameters" in keys and "expected the one that it wraps, model.module" in wrapped
        assert "'0.weight' is cut into pieces (FSDP)" in pieces
        assert answer["unchanged"] and torch.equal(answer["went on"], ranks[0]["went on"])


def test_the_guide_runs(tmp_path):
    """Runs the block as its own comment says."""
    (block,) = [block for block in guide_blocks("private.md") if "torchrun" in block]
    (tmp_path / "train.py").write_text(block)
    _, program, *arguments = block.splitlines()[0].split()
    assert program == "torchrun" and arguments[-1] == "train.py"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", *arguments]
    run = subprocess.run(torchrun, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stderr
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert state["optimizer"]["corrnoise"]["state"].numpy().tobytes().startswith(b"corrnoise sealed")
