"""corrnoise.torch.distributed over gloo: 1 to 4 ranks, other world sizes after a checkpoint, a dead rank."""

import pytest
from conftest import VECTORS, expected, gradients, key, plan

import corrnoise

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

from corrnoise.torch.distributed import ReplicatedNoise, ShardedNoise  # noqa: E402


def run(world, job, tmp_path, *arguments):
    """Runs `job(rank, world, results, …)` on every rank; gives what each saved."""
    folder = tmp_path / f"{job.__name__}-{world}-{len(list(tmp_path.iterdir()))}"
    folder.mkdir()
    mp.spawn(worker, (world, job, str(folder), arguments), nprocs=world, join=True)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(world)]


def worker(rank, world, job, folder, arguments):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    torch.save(job(rank, world, *arguments), f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def parameters():
    weight, bias = (torch.nn.Parameter(torch.zeros(g.size)) for g in gradients())
    return [("weight", weight), ("bias", bias)]


def joined(named):
    return torch.cat([p.grad for _, p in named])


def replicated(rank, world, start, stop, folder, resume, checkpoint):
    named = parameters()
    noise = ReplicatedNoise(named, plan(), key(), folder=folder, resume=resume, threads=1)
    for _ in range(start, stop):
        for (_, p), g in zip(named, gradients()):
            p.grad = torch.from_numpy(g.copy())
        noise.add_noise()
    if checkpoint:
        noise.save(checkpoint)
    return joined(named)


def sharded(rank, world, start, stop, folder, resume, checkpoint):
    pieces, named = [], parameters()
    bounds = [(p.numel() * rank // world, p.numel() * (rank + 1) // world) for _, p in named]
    for (name, p), (low, high) in zip(named, bounds):
        pieces.append((name, p.numel(), low, torch.nn.Parameter(torch.zeros(high - low))))
    noise = ShardedNoise(pieces, plan(), key(), folder=folder, resume=resume, threads=1)
    for _ in range(start, stop):
        for (_, _, _, p), (low, high), g in zip(pieces, bounds, gradients()):
            p.grad = torch.from_numpy(g[low:high].copy())
        noise.add_noise()
    if checkpoint:
        noise.save(checkpoint)
    return [p.grad for _, _, _, p in pieces]


def bits_of(job, results):
    """All coordinates, from the ranks' answers."""
    if job is replicated:
        assert all(torch.equal(results[0], other) for other in results)
        return results[0].numpy().tobytes()
    return b"".join(torch.cat(parts).numpy().tobytes() for parts in zip(*results))


@pytest.mark.parametrize("job", [replicated, sharded])
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_bits_do_not_depend_on_the_number_of_ranks(job, world, tmp_path):
    """Half on `world` ranks, half on another number, bit for bit what one process makes."""
    other = {1: 3, 2: 4, 3: 2, 4: 1}[world]
    saved = tmp_path / "saved"
    run(world, job, tmp_path, 0, 3, None, "new", str(saved))
    assert len(list(saved.iterdir())) == world
    results = run(other, job, tmp_path, 3, 5, str(saved), "exact", None)
    assert bits_of(job, results) == expected("blt", "float32")


def test_a_new_incarnation_is_the_same_on_all_ranks(tmp_path):
    saved = tmp_path / "saved"
    run(3, replicated, tmp_path, 0, 3, None, "new", str(saved))
    once = bits_of(replicated, run(2, replicated, tmp_path, 3, 5, str(saved), "new", None))
    twice = bits_of(replicated, run(2, replicated, tmp_path, 3, 5, str(saved), "new", None))
    assert len({once, twice, expected("blt", "float32")}) == 3


def train(rank, world, start, stop, folder, resume, checkpoint):
    """Clipped gradients of twelve examples, each made by one rank, gathered and summed in the examples' order."""
    generator = torch.Generator().manual_seed(3)
    examples = torch.randn(12, 607, generator=generator)
    named = parameters()
    training = corrnoise.Plan.from_json(VECTORS["training_plan"])
    noise = ReplicatedNoise(named, training, key(), folder=folder, resume=resume, threads=1)
    for step in range(start, stop):
        blocks = examples * (1 + step)
        own = [blocks[i] / blocks[i].norm() if i % world == rank else torch.zeros(607) for i in range(12)]
        gathered = [torch.zeros(12, 607) for _ in range(world)]
        dist.all_gather(gathered, torch.stack(own))
        total = torch.zeros(607)
        for i in range(12):
            total = total + gathered[i % world][i]
        for (_, p), g in zip(named, total.split([600, 7])):
            p.grad = g.clone()
        noise.add_noise()
        for _, p in named:
            p.data -= 0.5 * p.grad
    return torch.cat([p.data for _, p in named])


def test_parameters_are_identical_after_training(tmp_path):
    results = [run(world, train, tmp_path, 0, 20, None, "new", None) for world in (1, 2, 3, 4)]
    assert all(torch.equal(results[0][0], parameters) for ranks in results for parameters in ranks)


def disagree(rank, world):
    own = corrnoise.Key.from_bytes(bytes([rank]) * 32, "r")
    try:
        ReplicatedNoise(parameters(), plan(), own)
    except corrnoise.InvalidArgument as error:
        return {"message": str(error)}
    return {"message": "none"}


def test_ranks_with_different_keys_are_found(tmp_path):
    for answer in run(2, disagree, tmp_path):
        assert "disagree" in answer["message"]
