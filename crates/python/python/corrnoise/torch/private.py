"""`make_private`: a module, an optimiser and a loader, made private in one line."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any, Literal, Unpack

import torch
import torch.distributed
import torch.utils.data

from .._native import Key, Plan, Sampler
from ..errors import InvalidArgument
from ..options import EngineOptions
from ..planning import PlanOptions
from ..planning import plan as make_plan
from .agreement import gathered, on_all
from .logical import LogicalBatches, PrivateLoader
from .noise import CorrelatedNoise
from .parameters import named_parameters

__all__ = ["make_private"]

# The options of a loader that are taken over; how it draws batches is not.
LOADER_OPTIONS = (
    "num_workers collate_fn pin_memory timeout worker_init_fn multiprocessing_context generator prefetch_factor persistent_workers"
).split()


def make_private(
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: torch.utils.data.DataLoader[Any],
    *,
    key_file: str | os.PathLike[str],
    plan: Plan | str | os.PathLike[str] | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    epochs: int | None = None,
    max_grad_norm: float | None = None,
    run_id: str = "",
    resume: Literal["new", "exact"] = "new",
    loss_reduction: Literal["mean", "sum"] = "mean",
    batch_first: bool = True,
    prepare: bool = False,
    engine: EngineOptions | None = None,
    **options: Unpack[PlanOptions],
) -> tuple[Any, Any, PrivateLoader]:
    """Returns the module, optimiser and loader to train with: the loop stays as it is, and what it releases is private.

        model, optimizer, loader = make_private(model, optimizer, loader, key_file="noise.key", epochs=10, epsilon=2, delta=1e-6)

    Needs Opacus, which makes the per-sample gradients. `plan` is a plan or its file. Without it, one is made for the budget, the loader's
    dataset and batch size (of all processes together) and the optimiser's momentum, and written beside the key, where the next start finds it; further `options` are those
    of `corrnoise.plan`. A key file that does not exist is made.

    One pass over the returned loader is an epoch, or the rest of one that was left. `optimizer.state_dict()` holds the noise's state,
    sealed under the key; `resume` says how `load_state_dict` goes on, as for `CorrelatedNoise`. `optimizer.privacy_spent()` is the claim so far.

    `max_grad_norm` is the plan's clip norm, and 1 for a new plan; it may be below the plan's. `loss_reduction` says how the loss is made of those
    of the batch's examples; the noisy sum is divided by the expected batch size in either case. `prepare` makes the next step's noise in the
    background, which pays where cores are idle during the forward and backward pass. `engine` holds keywords of `CorrelatedNoise`, such as
    `{"threads": 1}`; none of them changes the noise.

    In a process group of several ranks every rank calls this with its copy of the module, without a wrapper: a step's batch is dealt out
    among them, sums are reduced, and every rank adds the same noise. Any rank's state dict is that of all.
    """
    try:
        from opacus import GradSampleModule

        from .optimizer import PrivateOptimizer
    except ImportError as error:
        raise ImportError("make_private needs Opacus for per-sample gradients: pip install opacus") from error
    unknown = [name for name in options if name not in SIGNATURE.parameters]
    if unknown:
        raise TypeError(f"make_private() got an unexpected keyword argument {unknown[0]!r}")
    check_module(module)
    check_optimizer(optimizer)
    check_loader(loader)
    named = trained(module, optimizer)
    size = len(loader.dataset)  # type: ignore[arg-type]
    budget = {"epsilon": epsilon, "delta": delta, "epochs": epochs}
    found: list[Plan] = []

    def find() -> None:
        if plan is None:
            given = {**budget, **options}
            path = Path(f"{os.fspath(key_file)}.plan.json")
            found.append(made_or_found(path, optimizer, loader, size, max_grad_norm, given))
        else:
            found.append(plan if isinstance(plan, Plan) else Plan.load(plan))
        if not Path(key_file).exists():
            Key.create_file(key_file)

    unused = [name for name, value in {**budget, **options}.items() if value is not None]
    if plan is not None and unused:
        raise InvalidArgument(f"{', '.join(unused)} beside plan: expected a plan, or what one is to be made from")
    rank, ranks = rank_and_world()
    many = ranks > 1
    if many:
        # The first rank writes key and plan, and the others read them.
        on_all(lambda: find() if rank == 0 else None, None)
        on_all(lambda: find() if rank != 0 else None, None)
    else:
        find()
    plan = found[0]
    clip_norm = check_plan(plan, size)
    key = Key.from_file(key_file, run_id)
    sampler = Sampler(plan, key)
    noise = CorrelatedNoise(named.items(), plan, key, attribute="summed_grad", replica=many, **(engine or {}))
    if many:
        agree(noise, module)
    batches = LogicalBatches(sampler, noise, size, rank, ranks)
    private = PrivateOptimizer(
        optimizer,
        named=named,
        noise=noise,
        batches=batches,
        max_grad_norm=clip_norm if max_grad_norm is None else max_grad_norm,
        loss_reduction=loss_reduction,
        resume=resume,
        prepare=prepare,
        many=many,
    )
    # What the steps will check, before hooks are attached.
    private._check()
    module = GradSampleModule(module, batch_first=batch_first, loss_reduction=loss_reduction)
    kept = {name: getattr(loader, name) for name in LOADER_OPTIONS}
    return module, private, PrivateLoader(loader.dataset, batches, **kept)


def rank_and_world() -> tuple[int, int]:
    """This process's rank, and the number of processes, which is 1 where no group was made."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return 0, 1
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


def agree(noise: CorrelatedNoise, module: torch.nn.Module) -> None:
    """Refuses ranks of different runs, and gives all ranks the first one's parameters and buffers, as DistributedDataParallel does."""
    mechanism = noise.mechanism
    own = (mechanism.commitment, mechanism.segments)
    for rank, other in enumerate(gathered(own, None)):
        if own != other:
            raise InvalidArgument(f"this rank and rank {rank} disagree about key, plan or parameters: expected equal ones")
    with torch.no_grad():
        for tensor in [*module.parameters(), *module.buffers()]:
            torch.distributed.broadcast(tensor, 0)


def check_module(module: torch.nn.Module) -> None:
    """Refuses a module whose per-sample gradients cannot be had, or would not be per sample."""
    from opacus import GradSampleModule
    from opacus.validators import ModuleValidator

    if isinstance(module, torch.nn.parallel.DistributedDataParallel):
        raise InvalidArgument(
            "the module is a DistributedDataParallel, which averages gradients before they are clipped: expected the one that it wraps, "
            "model.module; make_private sums over all processes by itself"
        )
    for name, parameter in module.named_parameters():
        if hasattr(parameter, "placements"):
            raise InvalidArgument(
                f"parameter {name!r} is cut into pieces (FSDP): expected whole ones, or corrnoise.torch.distributed.ShardedNoise"
            )
    for name, part in module.named_modules():
        if hasattr(part, "_orig_mod") or getattr(part, "_compiled_call_impl", None) is not None:
            which = f"submodule {name!r}" if name else "module"
            raise InvalidArgument(
                f"the {which} is compiled by torch.compile, which does not call the hooks that make per-sample gradients: expected it as it was, "
                "make_private(model._orig_mod, ...) or model before torch.compile(model)"
            )
        if isinstance(part, GradSampleModule):
            raise InvalidArgument("the module is a GradSampleModule already: expected the one that it wraps, model._module")
    wrong = ModuleValidator.validate(module, strict=False)
    if wrong:
        raise InvalidArgument(
            f"Opacus cannot make this module's gradients per sample: {wrong[0]} Expected a module whose examples do not depend on each other: "
            "model = opacus.validators.ModuleValidator.fix(model).train(), before the optimiser is made"
        )


def check_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """Refuses optimisers that are private already, or that make several gradients a step."""
    from opacus.optimizers import DPOptimizer

    if isinstance(optimizer, DPOptimizer):
        raise InvalidArgument("the optimizer is a DPOptimizer already: expected the one that it wraps, optimizer.original_optimizer")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise InvalidArgument("the optimizer is LBFGS, which takes several gradients a step: expected one that takes one, such as SGD or Adam")


def check_loader(loader: torch.utils.data.DataLoader[Any]) -> None:
    """Refuses loaders whose dataset has no indices, or whose way of drawing batches is more than order and size."""
    if not isinstance(loader, torch.utils.data.DataLoader) or isinstance(loader, PrivateLoader):
        kind = type(loader).__name__
        raise InvalidArgument(f"the loader is a {kind}: expected a plain torch.utils.data.DataLoader(dataset, batch_size=...)")
    if isinstance(loader.dataset, torch.utils.data.IterableDataset):
        raise InvalidArgument("the dataset is iterable: expected one with len() and indices, from which the plan's batches are drawn")
    plain = torch.utils.data.SequentialSampler, torch.utils.data.RandomSampler
    sampler = loader.sampler
    if type(loader.batch_sampler) is not torch.utils.data.BatchSampler or type(sampler) not in plain:
        found = sampler if type(sampler) not in plain else loader.batch_sampler
        raise InvalidArgument(
            f"the loader draws batches by {type(found).__name__}, and the plan draws them itself: expected DataLoader(dataset, batch_size=...) "
            "without a sampler of its own"
        )
    if isinstance(sampler, torch.utils.data.RandomSampler) and sampler.replacement:
        raise InvalidArgument("the loader's sampler repeats examples (replacement=True): expected DataLoader(dataset, batch_size=...)")


def trained(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The parameters that get noise: all of the module that require gradients, which must be those that the optimiser trains."""
    named = named_parameters(module)
    own = {id(p) for p in named.values()}
    held = {id(p): p for group in optimizer.param_groups for p in group["params"] if p.requires_grad}
    for name, parameter in named.items():
        if id(parameter) not in held:
            raise InvalidArgument(
                f"parameter {name!r} requires a gradient, and the optimizer does not have it: expected parameter.requires_grad_(False), or "
                "an optimizer of all parameters"
            )
        if not parameter.dtype.is_floating_point:
            raise InvalidArgument(f"parameter {name!r} is {parameter.dtype}: expected real numbers")
    for foreign in held.keys() - own:
        shape = tuple(held[foreign].shape)
        raise InvalidArgument(f"the optimizer trains a parameter of shape {shape} that the module has not: expected those of the module alone")
    return named


def made_or_found(
    path: Path,
    optimizer: torch.optim.Optimizer,
    loader: torch.utils.data.DataLoader[Any],
    size: int,
    max_grad_norm: float | None,
    options: dict[str, Any],
) -> Plan:
    """The plan of an earlier start under this key, which must be for the same question, or a new one, which is written there."""
    missing = [name for name in ("epsilon", "delta", "epochs") if options[name] is None]
    if missing:
        raise InvalidArgument(f"there is no plan and no {', '.join(missing)}: expected plan=, or epsilon=, delta= and epochs=")
    if loader.batch_size is None:
        raise InvalidArgument("the loader has no batch_size: expected one, from which a plan is made, or plan=")
    batch_size, clip_norm = loader.batch_size, 1.0 if max_grad_norm is None else max_grad_norm
    if path.exists():
        plan = Plan.load(path)
        claim, sampling = plan.certificate, plan.sampling
        assert claim is not None and sampling is not None and plan.epsilon is not None and plan.delta is not None
        steps, strategy, scheme = options["epochs"] * -(-size // batch_size), options.get("strategy"), options.get("sampling")
        for name, found, asked, same in [
            ("epsilon", plan.epsilon, options["epsilon"], plan.epsilon <= options["epsilon"]),
            ("delta", plan.delta, options["delta"], plan.delta <= options["delta"]),
            ("clip norm", claim["clip_norm"], clip_norm, claim["clip_norm"] == clip_norm),
            ("number of steps", plan.num_steps, steps, plan.num_steps == steps),
            ("strategy", claim["strategy"], strategy, strategy in (None, "auto", claim["strategy"])),
            ("sampling", sampling["kind"], scheme, scheme is None or scheme.split(":")[0] == sampling["kind"]),
        ]:
            if not same:
                raise InvalidArgument(
                    f"{path}, the plan of this key, has {name} {found}, and {asked} is asked for: expected the same question, plan= with another "
                    "plan, or another key_file"
                )
        return plan
    first = optimizer.param_groups[0]
    if isinstance(optimizer, torch.optim.SGD) and first["momentum"] and options.get("workload") is None:
        options = {**options, "workload": f"{'nesterov' if first['nesterov'] else 'momentum'}:{first['momentum']}"}
    given: Any = {name: value for name, value in options.items() if value is not None}
    plan = make_plan(dataset_size=size, batch_size=batch_size, clip_norm=clip_norm, **given)
    plan.save(path)
    return plan


def check_plan(plan: Plan, size: int) -> float:
    """The clip norm of a plan that holds for this dataset; another plan is refused."""
    claim, sampling = plan.certificate, plan.sampling
    if claim is None:
        raise InvalidArgument("the plan makes no privacy claim: expected one of corrnoise.plan")
    if not plan.draws_batches or sampling is None:
        raise InvalidArgument(
            "the plan leaves the choice of batches to others: expected one that draws them, corrnoise.plan(dataset_size=..., batch_size=...)"
        )
    if sampling["dataset_size"] != size:
        raise InvalidArgument(f"the plan is for {sampling['dataset_size']} examples, the dataset has {size}: expected the same number")
    if claim["unit"] != "example":
        raise InvalidArgument(f"the plan's unit is {claim['unit']!r}, and every example is clipped by itself: expected unit='example'")
    return claim["clip_norm"]


def _shown() -> inspect.Signature:
    """The signature with every option of a plan by its name, for help() and for refusing others."""
    own, plans = inspect.signature(make_private), inspect.signature(make_plan).parameters.values()
    *first, _ = own.parameters.values()
    # What the loader and the clip norm of this function say already.
    taken = {parameter.name for parameter in first} | {"steps", "dataset_size", "batch_size", "clip_norm"}
    return own.replace(parameters=[*first, *[p for p in plans if p.kind is p.KEYWORD_ONLY and p.name not in taken]])


SIGNATURE = _shown()
make_private.__signature__ = SIGNATURE  # type: ignore[attr-defined]
