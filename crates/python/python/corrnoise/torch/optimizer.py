"""The optimiser of a private run: Opacus's per-sample gradients, clipped and summed, with a plan's noise once per logical step."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, NoReturn

import torch
import torch.distributed
from opacus.optimizers import DPOptimizer

from .._native import Batch
from ..errors import BatchRefused, CheckpointError, Error, InvalidArgument, PastEnd, RepeatedNoise
from .agreement import on_all, raise_on_all, shared_nonce
from .logical import LogicalBatches
from .noise import CorrelatedNoise

__all__ = ["PrivacySpent", "PrivateOptimizer"]

ENTRY = "corrnoise"


class PrivacySpent(NamedTuple):
    """The claim for the steps made so far."""

    epsilon: float
    delta: float
    steps: int


class PrivateOptimizer(DPOptimizer):
    """An optimiser whose `step()` clips per-sample gradients, sums them, adds the noise of the plan's next step and divides.

    `corrnoise.torch.make_private` makes it. Its `state_dict()` is the wrapped optimiser's, with the noise's state, sealed under the key. A step
    is refused if the gradients are not those of the plan's batch, before anything is added.
    """

    # A gradient scaler hands its scale to optimisers that say so, where the setter of `grad_scale` refuses it; from others it only
    # takes the permission to skip steps.
    _step_supports_amp_scaling = True

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        named: dict[str, torch.Tensor],
        noise: CorrelatedNoise,
        batches: LogicalBatches,
        max_grad_norm: float,
        loss_reduction: Literal["mean", "sum"],
        resume: Literal["new", "exact"],
        prepare: bool,
        many: bool = False,
    ) -> None:
        claim = noise.mechanism.plan.certificate
        assert claim is not None
        self._named = named
        self._noise, self._batches = noise, batches
        self._most = claim["clip_norm"]
        self._resume, self._prepare = resume, prepare
        self._count = 0
        # Whether the sums are those of several processes, and whether they agreed on a step since the start or the last load.
        self._many, self._agreed = many, False
        super().__init__(
            optimizer,
            noise_multiplier=claim["claim"]["noise_multiplier"],
            max_grad_norm=max_grad_norm,
            expected_batch_size=batches.plan_sampler.expected_batch_size,
            loss_reduction=loss_reduction,
        )
        batches.on_begin = weakref.WeakMethod(self._forget)

    @property
    def noise(self) -> CorrelatedNoise:
        """The noise, for its plan, its mechanism and its next step."""
        return self._noise

    @property
    def grad_scale(self) -> None:
        """Nothing: gradients are not scaled, and a gradient scaler is refused where it would set this."""
        raise AttributeError("grad_scale")

    @grad_scale.setter
    def grad_scale(self, scale: object) -> None:
        self._forget()
        raise InvalidArgument(
            "a gradient scaler makes this step: its factor would scale what is clipped, and it skips steps by private data; expected "
            "loss.backward(); optimizer.step(), with bfloat16 autocast where memory or speed needs it"
        )

    def privacy_spent(self) -> PrivacySpent:
        """The (ε, δ) of the steps made so far: the claim of a run that ends here, if that was not decided by what it released."""
        plan, steps = self._noise.mechanism.plan, self._noise.next_step
        epsilon, delta = plan.epsilon_after(steps), plan.delta
        assert epsilon is not None and delta is not None
        return PrivacySpent(epsilon, delta if steps else 0.0, steps)

    def clip_and_accumulate(self) -> None:
        """Clips the per-sample gradients of a physical batch and adds them to the sum; examples without a finite norm add nothing."""
        samples = [self._sample(name, parameter) for name, parameter in self._named.items()]
        count = len(samples[0])
        for name, sample in zip(self._named, samples):
            if len(sample) != count:
                first = next(iter(self._named))
                self._refuse(f"parameter {name!r} has {len(sample)} per-sample gradients, {first!r} has {count}: expected as many")
        norms = torch.stack([sample.reshape(count, -1).norm(2, dim=1) for sample in samples], dim=1).norm(2, dim=1)
        finite = norms.isfinite()
        if not finite.all():
            samples = [sample.where(finite.view(-1, *[1] * (sample.dim() - 1)), 0) for sample in samples]
        factors = (self.max_grad_norm / (norms + 1e-6)).clamp(max=1.0).where(finite, 0)
        if self._is_filler():
            factors = torch.zeros_like(factors)
        for parameter, sample in zip(self._named.values(), samples):
            total = torch.einsum("i,i...", factors, sample).contiguous()
            parameter.summed_grad = total if parameter.summed_grad is None else parameter.summed_grad + total
            parameter.grad_sample = None
        self._count += count

    def _sample(self, name: str, parameter: torch.Tensor) -> torch.Tensor:
        """The per-sample gradients of a parameter, in float32: norms and sums of shorter numbers would not be what the claim says."""
        if getattr(parameter, "grad_sample", None) is None:
            self._refuse(
                f"parameter {name!r} has no per-sample gradients: expected loss.backward() through the module that make_private returned, in "
                "training mode; freeze parameters that take no part, before make_private: parameter.requires_grad_(False)"
            )
        return self._get_flat_grad_sample(parameter).float()

    def _is_filler(self) -> bool:
        """Whether the step's batch, or this rank's part of it, is empty, so that the loader yielded one example that does not count."""
        step = self._noise.next_step
        return step < self._batches.plan_sampler.num_steps and self._batches.share(self._batches.batch(step)) == 0

    def add_noise(self) -> None:
        """Adds the noise of the plan's next step to the sum, if it is that of the plan's batch."""
        try:
            batch = self._counted()
        except Error as error:
            if self._many:
                self._reduce(error)
            raise
        if self._many:
            self._reduce(None)
        try:
            if self._many and not self._agreed:
                # The ledger may refuse the first step, on some ranks alone.
                on_all(lambda: self._noise.add_noise(batch), None)
            else:
                self._noise.add_noise(batch)
        except BaseException:
            self._forget()
            raise
        self._agreed = True
        self._count = 0

    def _counted(self) -> Batch:
        """The batch of this step, if as many gradients were summed as it has examples here, and the loop was given it and no other."""
        step, plan = self._noise.next_step, self._noise.mechanism.plan
        if step >= plan.num_steps:
            self._forget()
            raise PastEnd(
                f"all {step} steps of the plan were made: expected the end of training, or a plan of more steps under another key"
            )
        batch, given = self._batches.batch(step), self._batches.given
        share = self._batches.share(batch)
        if self._count != (share or 1):
            filler = " (the filler of an empty batch)" if share == 0 else ""
            self._refuse(
                f"the gradients are of {self._count} examples, the batch of step {step} has {share or 1}{filler}: expected one step for each batch "
                "of the loader that make_private returned; for smaller physical batches, opacus.utils.batch_memory_manager.BatchMemoryManager"
                "(data_loader=loader, max_physical_batch_size=..., optimizer=optimizer)"
            )
        if given is not None and given.step != step:
            self._forget()
            raise BatchRefused(f"the batch was drawn for step {given.step}, the mechanism's next step is {step}: expected each batch once, in order")
        return batch

    def _reduce(self, failure: Exception | None) -> None:
        """Sums over all ranks, with one more value that tells whether one of them failed; then all raise an exception."""
        sizes = [parameter.numel() for parameter in self._named.values()]
        first = next(iter(self._named.values()))
        flat = torch.zeros(sum(sizes) + 1, dtype=torch.float32, device=first.device)
        *parts, failed = flat.split([*sizes, 1])
        if failure is None:
            for parameter, part in zip(self._named.values(), parts):
                part.copy_(parameter.summed_grad.view(-1))
        else:
            failed.fill_(1)
        torch.distributed.all_reduce(flat)
        if failed.item():
            self._forget()
            raise_on_all(failure, None)
        for parameter, part in zip(self._named.values(), parts):
            parameter.summed_grad = part.view_as(parameter)

    def scale_grad(self) -> None:
        """Divides the noisy sum by the expected size of a batch, whatever the size of this one."""
        for parameter in self._named.values():
            gradient = parameter.summed_grad / self.expected_batch_size
            parameter.grad = gradient.view_as(parameter).to(parameter.dtype)
            parameter.summed_grad = None

    def pre_step(self, closure: Callable[[], float] | None = None) -> bool:
        """Makes the gradients of a step; false after a physical batch that is not the last of its logical one."""
        try:
            self._check()
            self.clip_and_accumulate()
        except Error as error:
            if self._many:
                self._reduce(error)
            raise
        if self._check_skip_next_step():
            self._is_last_step_skipped = True
            return False
        self._is_last_step_skipped = False
        self.add_noise()
        self.scale_grad()
        if self.step_hook:
            self.step_hook(self)
        return True

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Makes a step; a closure is called once, before the gradients are taken, and its value is returned."""
        value = None
        if closure is not None:
            with torch.enable_grad():
                value = closure()
        if self.pre_step():
            self.original_optimizer.step()
            if self._prepare:
                self._noise.prepare()
        return value

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears gradients, and the sum unless the last step was a part of a logical one. Nothing depends on it."""
        super().zero_grad(set_to_none)

    def _check(self) -> None:
        """Refuses what was changed since `make_private`."""
        if not 0 < self.max_grad_norm <= self._most:
            self._refuse(
                f"max_grad_norm is {self.max_grad_norm}: expected above 0 and at most {self._most}, the clip norm of the plan: "
                f"optimizer.max_grad_norm = {self._most}"
            )
        trained = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        if len(trained) != len(self._named) or {id(p) for p in trained} != {id(p) for p in self._named.values()}:
            self._refuse(
                f"the optimiser trains {len(trained)} parameters, and the noise was made for {len(self._named)} or others: expected no parameter "
                "frozen, unfrozen or added since make_private; call make_private after such changes, with a key of its own"
            )

    def _refuse(self, text: str) -> NoReturn:
        self._forget()
        raise InvalidArgument(text)

    def _forget(self) -> None:
        """Drops what was summed of a logical batch that was not finished: its step begins anew."""
        self._step_skip_queue.clear()
        self._is_last_step_skipped = False
        self._count = 0
        for parameter in self._named.values():
            parameter.grad_sample = parameter.summed_grad = None

    def state_dict(self) -> dict[str, Any]:
        """The wrapped optimiser's state, and the noise's, which is sealed under the key: others may read it."""
        return {**self.original_optimizer.state_dict(), ENTRY: self._entry()}

    def _entry(self) -> dict[str, Any]:
        """The noise's state, sealed; an empty one where a used key waits for the state to go on from."""
        try:
            return self._noise.state_dict(sealed=True)
        except RepeatedNoise:
            return {"state": torch.empty(0, dtype=torch.uint8)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resumes from a state dict of the same plan, key and parameters. One that equals the present state changes nothing.

        Of several processes all call it, with the state dict of any of them.
        """
        saved, own = state_dict.get(ENTRY), self._entry()
        if saved is None:
            raise CheckpointError(
                f"state_dict has no {ENTRY!r}: expected what state_dict() of this optimiser returned, whole; with the optimiser's state alone "
                "the noise would begin again"
            )
        if not torch.equal(saved["state"].cpu(), own["state"]):
            if not len(saved["state"]):
                raise CheckpointError("state_dict was taken before a used key had its state: expected one that was taken after a step")
            if self._many:
                # One new incarnation on all ranks.
                nonce = shared_nonce(None) if self._resume == "new" else None
                on_all(lambda: self._noise.load_state_dict(saved, resume=self._resume, nonce=nonce), None)
            else:
                self._noise.load_state_dict(saved, resume=self._resume)
            self._agreed = False
            self._forget()
        self.original_optimizer.load_state_dict({name: part for name, part in state_dict.items() if name != ENTRY})
