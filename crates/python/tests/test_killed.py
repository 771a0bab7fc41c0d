"""A rank is killed in the middle of a step, or of a checkpoint; other numbers of ranks go on from the last one that was finished."""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import VECTORS, key

import corrnoise

torch = pytest.importorskip("torch")

SCRIPT = str(Path(__file__).with_name("killed.py"))


def run(folder, world, *options):
    """Runs all ranks and returns their exit codes and outputs."""
    ranks = [
        subprocess.Popen(
            [sys.executable, SCRIPT, str(rank), str(world), str(folder), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        outputs = [rank.communicate(timeout=120) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    return [rank.returncode for rank in ranks], outputs


def load(folder, name, world):
    return [torch.load(folder / f"{name}-{rank}.pt", weights_only=True) for rank in range(world)]


def equal(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The model of a run on one process that nobody killed, and its noise by step."""
    folder = tmp_path_factory.mktemp("undisturbed")
    codes, outputs = run(folder, 1)
    assert codes == [0], outputs
    return load(folder, "final-None", 1)[0], load(folder, "seen-None", 1)[0]


@pytest.mark.parametrize(("die", "survivors_know"), [("step", 6), ("save", 8)])
def test_a_killed_rank(die, survivors_know, tmp_path, undisturbed):
    model, noise = undisturbed
    codes, outputs = run(tmp_path, 3, "--die", die)
    assert codes[1] == -9, "killed"
    assert codes[0] not in (0, -9) and codes[2] not in (0, -9), f"the others must notice: {outputs}"
    dead = load(tmp_path, "seen-None", 3)
    assert sorted(dead[0]) == list(range(survivors_know))
    assert all(torch.equal(rank[step], noise[step]) for rank in (dead[0], dead[2]) for step in rank)

    # Bit for bit what nobody killed, on another number of ranks.
    codes, outputs = run(tmp_path, 2, "--resume", "exact")
    assert codes == [0, 0], outputs
    assert all("begins at step 4" in out for out, _ in outputs)
    assert all(equal(model, final) for final in load(tmp_path, "final-exact", 2))

    # The default: no row that the dead run made after the checkpoint is made again, and all ranks agree.
    codes, outputs = run(tmp_path, 4, "--resume", "new")
    assert codes == [0] * 4, outputs
    finals, fresh = load(tmp_path, "final-new", 4), load(tmp_path, "seen-new", 4)
    assert all(equal(finals[0], final) for final in finals[1:])
    assert sorted(fresh[0]) == list(range(4, 12))
    for step in range(4, survivors_know):
        assert (fresh[0][step] == noise[step]).float().mean() < 0.01, step

    if die == "save":
        refuse_unfinished(tmp_path)


def refuse_unfinished(folder):
    """The files written before a rank died are no checkpoint, nor are they one together with an older file."""
    files = sorted((folder / "step-008").glob("noise-*"))
    assert [file.name for file in files] == ["noise-00000.safetensors", "noise-00002.safetensors"]
    plan = corrnoise.Plan.from_json(VECTORS["training_plan"])
    layout = corrnoise.Layout({"weight": 1800, "bias": 30})
    for found in (files, [*files, folder / "step-004/noise-00001.safetensors"]):
        with pytest.raises((corrnoise.CheckpointError, corrnoise.InvalidArgument)):
            corrnoise.Mechanism.resume(plan, key(), layout, found)
