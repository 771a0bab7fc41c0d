"""The program of the ranks of test_killed.py, which train, save, and die where they are told to.

    killed.py RANK WORLD FOLDER [--die step|save] [--resume exact|new]

Twelve steps; after every fourth, model and noise are saved into a folder of their own. The rank before the last dies in step 6, after
its noise was added and before anyone else has it, or while the second checkpoint is written.
"""

import argparse
import os
import signal
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from conftest import VECTORS, key

import corrnoise
from corrnoise.torch.distributed import ReplicatedNoise

STEPS = 12
DYING_STEP = 6


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


class DiesSaving:
    """A mechanism that dies instead of writing, when the other ranks have begun to."""

    def __init__(self, mechanism):
        self.next_step = mechanism.next_step

    save = die


def save(folder, noise, model, rank):
    place = folder / f"step-{noise.next_step:03}"
    noise.save(place)
    if rank == 0:
        torch.save(model.state_dict(), place / "model.pt")
    dist.barrier()


def gradient(model, step):
    """A gradient that is the same on every rank, and another one in every step."""
    for k, p in enumerate(model.parameters()):
        values = torch.arange(p.numel(), dtype=torch.float32).view_as(p)
        p.grad = torch.sin(values * (k + 1) + step) + 0.1 * p.data


def train(arguments, model, noise):
    rank, folder = arguments.rank, arguments.folder
    dying = rank == arguments.world - 2
    seen = {}
    for step in range(noise.next_step, STEPS):
        gradient(model, step)
        before = [p.grad.clone() for p in model.parameters()]
        if dying and arguments.die == "step" and step == DYING_STEP:
            dist.all_gather = die
        noise.add_noise()
        seen[step] = torch.cat([(p.grad - b).flatten() for p, b in zip(model.parameters(), before)])
        for p in model.parameters():
            p.data -= 0.5 * p.grad
        # What a dead run's other ranks know of its noise.
        torch.save(seen, folder / f"seen-{arguments.resume}-{rank}.pt")
        if (step + 1) % 4 == 0 and arguments.resume is None:
            if dying and arguments.die == "save" and step == 7:
                noise._mechanism = DiesSaving(noise._mechanism)
            save(folder, noise, model, rank)


def main(arguments):
    rank, world, folder = arguments.rank, arguments.world, arguments.folder
    torch.set_num_threads(1)
    store = f"file://{folder}/store-{arguments.resume}"
    dist.init_process_group(
        "gloo", init_method=store, rank=rank, world_size=world, timeout=timedelta(seconds=60)
    )
    torch.manual_seed(0)
    model = torch.nn.Linear(60, 30)
    options = {}
    if arguments.resume:
        # The newest checkpoint that was finished.
        place = max(path.parent for path in folder.glob("step-*/model.pt"))
        model.load_state_dict(torch.load(place / "model.pt", weights_only=True))
        options = {"folder": place, "resume": arguments.resume}
    plan = corrnoise.Plan.from_json(VECTORS["training_plan"])
    noise = ReplicatedNoise(model, plan, key(), threads=1, **options)
    print(f"rank {rank} begins at step {noise.next_step}", flush=True)
    train(arguments, model, noise)
    torch.save(model.state_dict(), folder / f"final-{arguments.resume}-{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("rank", type=int)
    parser.add_argument("world", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--die", choices=["step", "save"])
    parser.add_argument("--resume", choices=["exact", "new"])
    main(parser.parse_args())
