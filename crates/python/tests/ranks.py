"""The program of the four processes of test_distributed.py. Groups of 1 to 4 of them stand for worlds of that size."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from conftest import VECTORS, gradients, key, plan
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor

import corrnoise
from corrnoise.torch.distributed import ReplicatedNoise, ShardedNoise

# The number of ranks that goes on after a checkpoint, by the number that wrote it.
OTHER = {1: 3, 2: 4, 3: 2, 4: 1}


def parameters():
    weight, bias = (torch.nn.Parameter(torch.zeros(g.size)) for g in gradients())
    return [("weight", weight), ("bias", bias)]


def resumed(noise, state):
    """The noise, after it loaded a state dict, if there is one: with the way to resume."""
    if state is not None:
        noise.load_state_dict(state[0], resume=state[1])
    return noise


def replicated(rank, world, steps, state=None, **options):
    """A copy of the model on every rank."""
    named = parameters()
    noise = resumed(ReplicatedNoise(named, plan(), key(), threads=1, **options), state)
    for _ in range(steps):
        for (_, p), g in zip(named, gradients()):
            p.grad = torch.from_numpy(g)
        noise.add_noise()
    return noise, [p.grad for _, p in named]


def sharded(rank, world, steps, state=None, **options):
    """A piece of every tensor on every rank."""
    pieces, bounds = [], []
    for name, p in parameters():
        low, high = p.numel() * rank // world, p.numel() * (rank + 1) // world
        bounds.append((low, high))
        pieces.append((name, p.numel(), low, torch.nn.Parameter(torch.zeros(high - low))))
    noise = resumed(ShardedNoise(pieces, plan(), key(), threads=1, **options), state)
    for _ in range(steps):
        for (_, _, _, p), (low, high), g in zip(pieces, bounds, gradients()):
            p.grad = torch.from_numpy(g[low:high].copy())
        noise.add_noise()
    return noise, [p.grad for _, _, _, p in pieces]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(20, 30))
        self.bias = torch.nn.Parameter(torch.zeros(7))

    def forward(self, inputs):
        return (self.weight @ inputs).sum() + self.bias.sum()


def fsdp(rank, world, steps, state=None, **options):
    """FSDP2: rows of every tensor on every rank; four ranks are two copies of two (HSDP)."""
    model = Model()
    if world == 4:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "pieces"))
    else:
        mesh = DeviceMesh.from_group(options["group"], "cpu")
    fully_shard(model, mesh=mesh)
    noise = resumed(ShardedNoise(model, plan(), key(), threads=1, **options), state)
    parts, part = (2, rank % 2) if world == 4 else (world, rank)
    for _ in range(steps):
        model.zero_grad()
        model(torch.ones(30)).backward()
        for p, g in zip(model.parameters(), gradients()):
            own = p.grad.to_local()
            # In place of averages over ranks, which round.
            pieces = torch.from_numpy(g).view(p.shape).chunk(parts)
            own.copy_(pieces[part] if part < len(pieces) else torch.zeros_like(own))
        noise.add_noise()
    return noise, [p.grad.to_local() for p in model.parameters()]


def train(rank, world, group):
    """Clipped gradients of twelve examples, each made by one rank, gathered and summed in the examples' order; 20 steps."""
    examples = torch.randn(12, 607, generator=torch.Generator().manual_seed(3))
    named = parameters()
    noise = ReplicatedNoise(named, corrnoise.Plan.from_json(VECTORS["training_plan"]), key(), group=group, threads=1)
    for step in range(20):
        scaled = examples * (1 + step) + torch.cat([p.data for _, p in named])
        own = [row / row.norm() if i % world == rank else torch.zeros(607) for i, row in enumerate(scaled)]
        gathered = [torch.zeros(12, 607) for _ in range(world)]
        dist.all_gather(gathered, torch.stack(own), group=group)
        total = torch.zeros(607)
        for i in range(12):
            total = total + gathered[i % world][i]
        for (_, p), g in zip(named, total.split([600, 7])):
            p.grad = g.clone()
        noise.add_noise()
        for _, p in named:
            p.data -= 0.5 * p.grad
    return [p.data for _, p in named]


def catcher():
    """A function that calls another, and the list of messages of what was refused."""
    messages = []

    def refused(call):
        try:
            call()
            messages.append("nothing was refused")
        except corrnoise.Error as error:
            messages.append(f"{type(error).__name__}: {error}")

    return refused, messages


def batches(job, rank, world):
    """Makes steps of a plan that draws batches: three that must be refused, and two that must not. The last rank has no coordinates."""
    sampled = corrnoise.Plan.from_json(VECTORS["batches"][0]["plan"])
    refused, messages = catcher()
    if job == "replicated":
        named = parameters()
        noise, held = ReplicatedNoise(named, sampled, key(), threads=1), [p for _, p in named]
        own = gradients()
    else:
        bounds = [[(0, 300), (0, 0)], [(300, 600), (0, 0)], [(600, 600), (0, 7)], [(600, 600), (7, 7)]][rank]
        held = [torch.nn.Parameter(torch.zeros(high - low)) for low, high in bounds]
        own = [g[low:high].copy() for (low, high), g in zip(bounds, gradients())]
        sizes = zip(("weight", "bias"), (600, 7), bounds, held)
        noise = ShardedNoise([(name, size, low, p) for name, size, (low, _), p in sizes], sampled, key(), threads=1)
    for p, g in zip(held, own):
        p.grad = torch.from_numpy(g.copy())
    sampler, steps = noise.sampler(), []
    foreign = corrnoise.Sampler(sampled, key("another"))
    for batch in (None, sampler.batch(1), foreign.batch(0)):
        steps.append(noise.next_step)
        refused(lambda batch=batch: noise.add_noise(batch))
    unchanged = all(torch.equal(p.grad, torch.from_numpy(g)) for p, g in zip(held, own))
    for batch in (sampler.batch(0), "unchecked"):
        # A rank without coordinates may prepare as the others do, though their parts are too small for a row ahead.
        noise.prepare()
        noise.add_noise(batch)
        steps.append(noise.next_step)
    return {"messages": messages, "steps": steps, "unchanged": unchanged, "made": [p.grad for p in held]}


def state_dicts(job, rank, world, group, folder):
    """Three steps, a state dict that the first rank alone asks for, and the bits of two more steps, by the label of the resume."""
    noise, _ = job(rank, world, 3, group=group)
    refused, messages = catcher()
    refused(noise.state_dict)
    noise.gather_state()
    if rank == 0:
        torch.save(noise.state_dict(), folder / f"states-{job.__name__}-{world}.pt")
    else:
        refused(noise.state_dict)
    return messages


def from_state_dict(job, rank, world, group, path):
    """Two steps from a state dict, exactly and in two new incarnations; then what must be refused on every rank."""
    state, made = torch.load(path, weights_only=True), {}
    for label, resume in (("exact", "exact"), ("once", "new"), ("twice", "new")):
        _, made[label] = job(rank, world, 2, group=group, state=(state, resume))
    refused, messages = catcher()
    refused(lambda: job(rank, world, 2, group=group, state=(state | {"plan": "another"}, "new")))
    # What one rank alone finds.
    damaged = state | {"states": [part[:-1] for part in state["states"]]} if rank == 0 else state
    refused(lambda: job(rank, world, 2, group=group, state=(damaged, "exact")))
    return made, messages


def lonely_failures(rank, group, folder):
    """Failures of one rank alone, which all ranks must raise: a gradient that is missing, a batch, a key that was used before."""
    sampled = corrnoise.Plan.from_json(VECTORS["batches"][0]["plan"])
    refused, messages = catcher()
    for spoil in ("gradient", "batch"):
        named = parameters()
        noise = ReplicatedNoise(named, sampled, key(), group=group, threads=1)
        for step in range(2):
            for _, p in named:
                p.grad = torch.ones_like(p)
            batch = noise.sampler().batch(step)
            if step == 1 and rank == 1 and spoil == "gradient":
                named[1][1].grad = None
            if step == 1 and rank == 0 and spoil == "batch":
                batch = noise.sampler().batch(0)
            if step == 0:
                noise.add_noise(batch)
            else:
                refused(lambda batch=batch: noise.add_noise(batch))
    # Three tiles, so that one of four ranks owns nothing, and knows nothing of the ledger.
    for kind in ("replicated", "sharded"):
        for attempt in range(2):
            own = corrnoise.Key.from_bytes(bytes(32), kind, ledger=folder / "ledger")
            if kind == "replicated":
                named = parameters()
                noise = ReplicatedNoise(named, sampled, own, threads=1)
                held = [p for _, p in named]
            else:
                low, high = [(0, 200), (200, 400), (400, 600), (600, 600)][rank]
                held = [torch.nn.Parameter(torch.zeros(high - low))]
                noise = ShardedNoise([("weight", 600, low, held[0])], sampled, own, threads=1)
            for p in held:
                p.grad = torch.ones_like(p)
            step = lambda noise=noise: noise.add_noise(noise.sampler().batch(0))
            step() if attempt == 0 else refused(step)
            dist.barrier()
            del noise, step
    return messages


def refusals(rank, group, folder):
    """The messages of refusals that must come on every rank, and whether a gradient changed."""
    refused, messages = catcher()
    own = corrnoise.Key.from_bytes(bytes([rank]) * 32, "r")
    refused(lambda: ReplicatedNoise(parameters(), plan(), own, group=group))
    refused(lambda: ReplicatedNoise(parameters(), plan(), key(), group=group, folder="/no/such/folder"))
    named = parameters()
    noise = ReplicatedNoise(named, plan(), key(), group=group)
    named[0][1].grad = torch.ones(600)
    refused(noise.add_noise)
    named[1][1].data = named[1][1].data.half()
    named[1][1].grad = torch.ones(7, dtype=torch.float16)
    refused(noise.add_noise)
    refused(lambda: ShardedNoise([("w", 5, 3, torch.zeros(3))], plan(), key(), group=group))
    refused(lambda: ShardedNoise(Model(), plan(), key(), group=group))
    columns = Model()
    mesh = DeviceMesh.from_group(group, "cpu")
    columns.weight = torch.nn.Parameter(distribute_tensor(columns.weight.data, mesh, [Shard(1)]))
    refused(lambda: ShardedNoise(columns, plan(), key(), group=group))
    refused(lambda: noise.save(folder / "replicated-2"))
    return {"messages": messages, "unchanged": bool((named[0][1].grad == 1).all())}


def main(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=4)
    groups = {world: dist.new_group(list(range(world))) for world in range(1, 5)}
    for job in (replicated, sharded, fsdp):
        for world, other in OTHER.items():
            name = f"{job.__name__}-{world}"
            if rank < world:
                noise, _ = job(rank, world, 3, group=groups[world])
                noise.save(folder / name)
            dist.barrier()
            for resume, label in (("exact", "exact"), ("new", "once"), ("new", "twice")):
                if rank < other:
                    options = {"group": groups[other], "folder": folder / name, "resume": resume}
                    _, made = job(rank, other, 2, **options)
                    torch.save(made, folder / f"{name}-{label}-{rank}.pt")
                dist.barrier()
    for job in (replicated, sharded, fsdp):
        for world, other in OTHER.items():
            name, made = f"{job.__name__}-{world}", None
            if rank < world:
                torch.save(state_dicts(job, rank, world, groups[world], folder), folder / f"asked-{name}-{rank}.pt")
            dist.barrier()
            if rank < other:
                made = from_state_dict(job, rank, other, groups[other], folder / f"states-{name}.pt")
                torch.save(made, folder / f"dicts-{name}-{rank}.pt")
            dist.barrier()
    torch.save(lonely_failures(rank, groups[4], folder), folder / f"lonely-{rank}.pt")
    for world in range(1, 5):
        if rank < world:
            torch.save(train(rank, world, groups[world]), folder / f"train-{world}-{rank}.pt")
        dist.barrier()
    for job in ("replicated", "sharded"):
        torch.save(batches(job, rank, 4), folder / f"batches-{job}-{rank}.pt")
    if rank < 2:
        torch.save(refusals(rank, groups[2], folder), folder / f"refusals-{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
