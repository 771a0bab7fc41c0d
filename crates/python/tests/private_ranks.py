"""The program of the processes of test_private_ranks.py: make_private on several ranks."""

import copy
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

import corrnoise
from corrnoise.torch import make_private

SIZE, BATCH, EPOCHS, STOP = 60, 12, 4, 8
RUNS = ("cyclic", "poisson", "zero", "managed")


def network(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))


def start(folder, run, seed=2, **options):
    """A run with momentum; the plan and the key are files that the test wrote."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(SIZE, 8, generator=generator)
    model = network(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    loader = DataLoader(TensorDataset(inputs, (inputs.sum(dim=1) > 0).long()), batch_size=BATCH)
    plan = folder / ("poisson.json" if run == "poisson" else "cyclic.json")
    return make_private(
        model, optimizer, loader, key_file=folder / "noise.key", run_id=run, plan=plan, engine={"threads": 1}, **options
    )


def train(model, optimizer, loader, run, stop=None):
    physical = loader
    if run == "managed":
        physical = BatchMemoryManager(data_loader=loader, max_physical_batch_size=2, optimizer=optimizer).__enter__()
    while optimizer.noise.next_step < optimizer.noise.mechanism.plan.num_steps:
        for inputs, targets in physical:
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            (0 * loss if run == "zero" else loss).backward()
            optimizer.step()
            optimizer.zero_grad()
            if optimizer.noise.next_step == stop:
                return


def values(model):
    return torch.cat([p.detach().view(-1) for p in model.parameters()])


def refusal(call):
    try:
        call()
    except corrnoise.Error as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was refused"


def main(rank, world, folder):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    made = {}
    for run in RUNS:
        # Every rank begins elsewhere, and all with the first one's parameters.
        model, optimizer, loader = start(folder, run, seed=2 + rank)
        train(model, optimizer, loader, run, STOP)
        if rank == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / f"{run}.pt")
        train(model, optimizer, loader, run)
        made[run] = values(model)
        dist.barrier()
    for attempt in ("once", "twice"):
        checkpoint = torch.load(folder / "cyclic.pt", weights_only=True)
        model, optimizer, loader = start(folder, "cyclic")
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(optimizer.state_dict())
        optimizer.load_state_dict(checkpoint["optimizer"])
        train(model, optimizer, loader, "cyclic")
        made[attempt] = values(model)
        dist.barrier()
    # A run that was left at its checkpoint goes on bit for bit.
    model, optimizer, loader = start(folder, "exact")
    train(model, optimizer, loader, "cyclic", STOP)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    state = {"model": {name: value.clone() for name, value in state["model"].items()}, "optimizer": copy.deepcopy(state["optimizer"])}
    made["left"] = values(model)
    del model, optimizer, loader
    dist.barrier()
    model, optimizer, loader = start(folder, "exact", resume="exact")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    train(model, optimizer, loader, "cyclic")
    made["exact"] = values(model)
    # A used key without a state; gradients that one rank alone has too few of; a clip norm; keys that differ; modules in wrappers.
    messages = []
    model, optimizer, loader = start(folder, "cyclic")
    messages.append(refusal(lambda: train(model, optimizer, loader, "cyclic")))
    model, optimizer, loader = start(folder, "refused")
    before = values(model)

    def short():
        for inputs, targets in loader:
            part = slice(0, 1 if rank == 1 else None)
            torch.nn.functional.cross_entropy(model(inputs[part]), targets[part]).backward()
            optimizer.step()

    messages.append(refusal(short))
    if rank == 0:
        optimizer.max_grad_norm = 7.0
    messages.append(refusal(lambda: train(model, optimizer, loader, "cyclic")))
    optimizer.max_grad_norm = 0.5
    unchanged = torch.equal(before, values(model)) and optimizer.noise.next_step == 0
    train(model, optimizer, loader, "cyclic", STOP)
    (folder / f"{rank}.key").write_bytes(bytes([rank]) * 32)
    (folder / f"{rank}.key").chmod(0o600)
    other = lambda: make_private(*fresh(), key_file=folder / f"{rank}.key", plan=folder / "cyclic.json")  # noqa: E731
    messages.append(refusal(other))
    wrapped = lambda: make_private(torch.nn.parallel.DistributedDataParallel(network(2)), *fresh()[1:], key_file="k", plan="p")  # noqa: E731
    messages.append(refusal(wrapped))
    pieces = fully_shard(network(2), mesh=init_device_mesh("cpu", (world,)))
    messages.append(refusal(lambda: make_private(pieces, *fresh()[1:], key_file="k", plan="p")))
    torch.save({"made": made, "messages": messages, "unchanged": unchanged, "went on": values(model)}, folder / f"ranks-{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def fresh():
    """A module, its optimiser and a loader."""
    model = network(2)
    dataset = TensorDataset(torch.zeros(SIZE, 8), torch.zeros(SIZE).long())
    return model, torch.optim.SGD(model.parameters(), lr=0.3), DataLoader(dataset, batch_size=BATCH)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
