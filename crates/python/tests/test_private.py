"""corrnoise.torch.make_private: against a loop that is written by hand, bit for bit, and what it refuses."""

import gc
import inspect
import time
import warnings

import numpy as np
import pytest
from conftest import ROOT, guide_blocks

import corrnoise
from corrnoise import errors

torch = pytest.importorskip("torch")
opacus = pytest.importorskip("opacus")
from opacus.utils.batch_memory_manager import BatchMemoryManager  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from corrnoise.torch import CorrelatedNoise, make_private  # noqa: E402

SIZE, BATCH, EPOCHS = 60, 12, 4
CLIP = 0.5
MADE = {}


@pytest.fixture(autouse=True)
def one_thread():
    """Models of a few numbers: waking other threads would be most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def plan(strategy="blt:2", sampling="cyclic", batch_size=BATCH, **options):
    """A small plan, made once."""
    question = (strategy, sampling, batch_size, tuple(sorted(options.items())))
    if question not in MADE:
        given = {"epochs": EPOCHS, "dataset_size": SIZE, "epsilon": 4, "delta": 1e-5, "clip_norm": CLIP} | options
        MADE[question] = corrnoise.plan(strategy=strategy, sampling=sampling, batch_size=batch_size, **given)
    return MADE[question]


def data():
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(SIZE, 8, generator=generator)
    return TensorDataset(inputs, (inputs.sum(dim=1) > 0).long())


def network():
    torch.manual_seed(2)
    return torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))


def key_file(folder, name="noise.key"):
    """A key that is the same in every test; its ledger is in the test's own folder."""
    path = folder / name
    if not path.exists():
        path.write_bytes(bytes(range(32)))
        path.chmod(0o600)
    return path


def private(folder, own=None, model=None, optimizer=None, dataset=None, loader=None, **options):
    own = plan() if own is None else own
    model = network() if model is None else model
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    loader = loader or DataLoader(dataset or data(), batch_size=BATCH)
    return make_private(model, optimizer, loader, key_file=key_file(folder), plan=own, engine={"threads": 1}, **options)


def loss_of(model, inputs, targets):
    return torch.nn.functional.cross_entropy(model(inputs), targets)


def train(model, optimizer, loader, epochs=EPOCHS, stop=None):
    for _ in range(epochs):
        for inputs, targets in loader:
            loss_of(model, inputs, targets).backward()
            optimizer.step()
            optimizer.zero_grad()
            if optimizer.noise.next_step == stop:
                return


def values(model):
    return torch.cat([p.detach().view(-1) for p in model.parameters()])


def test_the_same_bits_as_a_loop_written_by_hand(tmp_path):
    """The forty lines that make_private stands for, with everything that is easily forgotten."""
    # The user's script, of which these are the private lines:
    model, optimizer, loader = private(tmp_path)
    train(model, optimizer, loader)
    assert optimizer.noise.next_step == plan().num_steps == 20

    (tmp_path / "hand").mkdir()
    key = corrnoise.Key.from_file(key_file(tmp_path / "hand"))
    by_hand = opacus.GradSampleModule(network())
    parameters = list(by_hand.parameters())
    sgd = torch.optim.SGD(parameters, lr=0.3, momentum=0.9)
    names = [name for name, _ in network().named_parameters()]
    noise = CorrelatedNoise(list(zip(names, parameters)), plan(), key)
    sampler = corrnoise.Sampler(plan(), key)
    inputs, targets = data().tensors
    for step in range(plan().num_steps):
        batch = sampler.batch(step)
        indices = torch.tensor(batch.tolist())
        loss_of(by_hand, inputs[indices], targets[indices]).backward()
        samples = [p.grad_sample for p in parameters]
        norms = torch.stack([g.flatten(1).norm(2, dim=1) for g in samples], dim=1).norm(2, dim=1)
        factors = (CLIP / (norms + 1e-6)).clamp(max=1.0)
        for p, g in zip(parameters, samples):
            p.grad = torch.einsum("i,i...", factors, g)
            p.grad_sample = None
        noise.add_noise(batch)
        for p in parameters:
            p.grad /= sampler.expected_batch_size
        sgd.step()
    assert torch.equal(values(model), values(by_hand)) and not torch.equal(values(model), values(network()))


def test_the_users_script_has_eight_lines():
    """The page's first block: all lines that are there because of privacy, imports included, are two."""
    block = guide_blocks("private.md")[0]
    lines = [line for line in block.splitlines() if "make_private" in line]
    assert len(lines) == 2 and sum("corrnoise" in line for line in block.splitlines()) == 1


def test_the_guide_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scope = {}
    for block in guide_blocks("private.md"):
        if "torchrun" in block:
            continue  # test_private_ranks.py
        exec(compile(block, "docs/private.md", "exec"), scope)
    spent = capsys.readouterr().out.splitlines()
    assert len(spent) == 4 and spent[-1].startswith("PrivacySpent(epsilon=1.9") and spent[-1].endswith("steps=60)")
    optimizer = scope["optimizer"]
    assert optimizer.noise.next_step == optimizer.noise.mechanism.plan.num_steps == 6


def regression(digits, rate):
    """The model of examples/digits.py, its optimiser, and loader options by which a batch is one look-up: examples are indices."""
    model = torch.nn.Linear(65, 10, bias=False)
    torch.nn.init.zeros_(model.weight)
    return model, torch.optim.SGD(model.parameters(), lr=rate, momentum=digits.MOMENTUM)


def error_of(digits, model, optimizer, loader, epochs, split):
    """Trains and returns the test error, in percent, of the average over the second half."""
    total = torch.zeros(10, 65)
    for epoch in range(epochs):
        for inputs, targets in loader:
            loss_of(model, inputs, targets).backward()
            optimizer.step()
            optimizer.zero_grad()
            if epoch >= epochs // 2:
                total += model._module.weight.detach()
    return 100 * float(((split[2] @ total.T).argmax(dim=1) != split[3]).float().mean())


def mean_and_error(values):
    return np.mean(values), np.std(values, ddof=1) / len(values) ** 0.5


@pytest.fixture
def digits(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples")
    return __import__("digits")


def test_digits(tmp_path, digits):
    """The model, plan and learning rate of examples/digits.py, with a module, Opacus's gradients and torch.optim: the README's table."""
    split = features, labels, _, _ = tuple(map(torch.from_numpy, digits.split()))
    strategy, rates = digits.STRATEGIES["BLT"]
    own, wrong = digits.make_plan(strategy, 2, len(labels)), []
    path = key_file(tmp_path)
    for seed in range(6):
        model, optimizer = regression(digits, rates[2])
        loader = DataLoader(range(len(labels)), batch_size=digits.BATCH_SIZE, collate_fn=lambda i: (features[i], labels[i]))
        model, optimizer, loader = make_private(
            model, optimizer, loader, key_file=path, run_id=f"digits {seed}", plan=own, engine={"threads": 1}
        )
        wrong.append(error_of(digits, model, optimizer, loader, digits.EPOCHS, split))
        assert optimizer.privacy_spent() == (own.epsilon, own.delta, 1024)
    mean, error = mean_and_error(wrong)
    (row,) = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| BLT | 4.5")]
    published, published_error = map(float, row.split("|")[3].strip(" %").split(" ± "))
    assert abs(mean - published) <= 3 * (error**2 + published_error**2) ** 0.5, f"{mean} ± {error}: {wrong}"


def test_independent_noise_is_that_of_opacus(tmp_path, digits, capsys):
    """At one (ε, δ) under Poisson sampling, Opacus's tightest accountant asks for the same noise, and its training ends as well as ours."""
    split = features, labels, _, _ = tuple(map(torch.from_numpy, digits.split()))
    size, epochs, clip_norm = len(labels), 16, digits.CLIP_NORM
    budget = {"epsilon": 2, "delta": digits.DELTA, "epochs": epochs}
    own = corrnoise.plan(
        **budget, dataset_size=size, batch_size=digits.BATCH_SIZE, clip_norm=clip_norm, strategy="identity", sampling="poisson"
    )
    path, ours, theirs = key_file(tmp_path), [], []
    for seed in range(4):
        model, optimizer = regression(digits, 1.6)
        loader = DataLoader(range(size), batch_size=digits.BATCH_SIZE, collate_fn=lambda i: (features[i], labels[i]))
        model, optimizer, loader = make_private(
            model, optimizer, loader, key_file=path, run_id=f"Opacus {seed}", plan=own, engine={"threads": 1}
        )
        ours.append(error_of(digits, model, optimizer, loader, epochs, split))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(4):
            torch.manual_seed(seed)
            engine = opacus.PrivacyEngine(accountant="prv")
            model, optimizer = regression(digits, 1.6)
            loader = DataLoader(TensorDataset(features, labels), batch_size=digits.BATCH_SIZE)
            multiplier = theirs[0][1] if theirs else opacus.accountants.utils.get_noise_multiplier(
                target_epsilon=2, target_delta=digits.DELTA, sample_rate=1 / len(loader), epochs=epochs, accountant="prv"
            )
            model, optimizer, loader = engine.make_private(
                module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=multiplier, max_grad_norm=clip_norm
            )
            theirs.append((error_of(digits, model, optimizer, loader, epochs, split), multiplier))
    own_multiplier = own.certificate["claim"]["amplified"]["noise_multiplier"]
    (mean, error), (stock, stock_error) = mean_and_error(ours), mean_and_error([value for value, _ in theirs])
    with capsys.disabled():
        print(f"\nnoise multiplier {own_multiplier:.4f}, Opacus {multiplier:.4f}; error {mean:.1f} ± {error:.1f}, Opacus {stock:.1f} ± {stock_error:.1f}")
    assert abs(own_multiplier / multiplier - 1) < 0.01
    assert abs(mean - stock) <= 3 * (error**2 + stock_error**2) ** 0.5


def test_virtual_steps_and_the_memory_manager(tmp_path):
    """Physical batches of at most 5 change sums by rounding alone; the noise is that of one step for each logical batch."""
    ends = []
    for name in ("plain", "managed", "workers", "closure", "unzeroed"):
        (tmp_path / name).mkdir()
        options = {"num_workers": 2} if name == "workers" else {}
        model, optimizer, loader = private(tmp_path / name, loader=DataLoader(data(), batch_size=BATCH, **options))
        for _ in range(EPOCHS):
            if name == "managed":
                with BatchMemoryManager(data_loader=loader, max_physical_batch_size=5, optimizer=optimizer) as physical:
                    assert len(physical) == 12 and len(loader) == 5
                    train(model, optimizer, physical, 1)
            elif name == "closure":
                for inputs, targets in loader:

                    def closure():
                        optimizer.zero_grad()
                        loss = loss_of(model, inputs, targets)
                        loss.backward()
                        return loss

                    assert optimizer.step(closure) > 0
            elif name == "unzeroed":
                for inputs, targets in loader:
                    loss_of(model, inputs, targets).backward()
                    optimizer.step()
            else:
                train(model, optimizer, loader, 1)
        assert optimizer.noise.next_step == 20
        ends.append(values(model))
    plain, managed, *others = ends
    assert all(torch.equal(plain, other) for other in others)
    assert (plain - managed).abs().max() < 1e-5


def test_the_memory_manager_makes_the_noise_of_the_plain_loop(tmp_path):
    """With gradients of zero the parameters are the noise alone, bit for bit."""
    ends = []
    for name in ("plain", "managed"):
        (tmp_path / name).mkdir()
        model, optimizer, loader = private(tmp_path / name)
        with BatchMemoryManager(data_loader=loader, max_physical_batch_size=5, optimizer=optimizer) as physical:
            for inputs, targets in loader if name == "plain" else physical:
                (0 * loss_of(model, inputs, targets)).backward()
                optimizer.step()
                optimizer.zero_grad()
        ends.append(values(model))
    assert torch.equal(*ends) and not torch.equal(ends[0], values(network()))


def test_empty_batches_are_steps(tmp_path):
    """Under Poisson sampling some batches are empty: the step is noise alone, and the filler's gradient is not in it."""
    own = plan("identity", "poisson", 1)
    key = corrnoise.Key.from_file(key_file(tmp_path))
    sizes = [len(corrnoise.Sampler(own, key).batch(step)) for step in range(own.num_steps)]
    assert 0 in sizes and max(sizes) > 1
    ends = []
    for name in ("plain", "managed", "workers"):
        (tmp_path / name).mkdir()
        options = {"num_workers": 1} if name == "workers" else {}
        model, optimizer, loader = private(tmp_path / name, own, loader=DataLoader(data(), batch_size=1, **options))
        seen = []
        with BatchMemoryManager(data_loader=loader, max_physical_batch_size=50, optimizer=optimizer) as physical:
            for _ in range(2):
                for inputs, targets in physical if name == "managed" else loader:
                    seen.append(len(inputs))
                    before = values(model)
                    loss_of(model, inputs, targets).backward()
                    step = optimizer.noise.next_step
                    optimizer.step()
                    optimizer.zero_grad()
                    assert sizes[step] or not torch.equal(before, values(model))
        assert seen == [size or 1 for size in sizes[: len(seen)]]
        ends.append(values(model))
    assert all(torch.equal(ends[0], end) for end in ends)
    reference = CorrelatedNoise(network(), own, corrnoise.Key.from_bytes(bytes(range(32)), ""))
    first = sizes.index(0)
    (tmp_path / "filler").mkdir()
    model, optimizer, loader = private(tmp_path / "filler", own, loader=DataLoader(data(), batch_size=1))
    for inputs, targets in loader:
        loss_of(model, inputs, targets).backward()
        optimizer.step()
        if optimizer.noise.next_step > first:
            break
    plain = reference._named.values()
    for _ in range(first + 1):
        for p in plain:
            p.grad = torch.zeros_like(p)
        reference.add_noise("unchecked")
    for p, q in zip(plain, model.parameters()):
        assert torch.equal(p.grad / optimizer.expected_batch_size, q.grad)


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_a_run_resumes_in_the_middle_of_an_epoch(kind, tmp_path):
    def start(folder, **options):
        model = network()
        kinds = {"sgd": lambda p: torch.optim.SGD(p, lr=0.3, momentum=0.9), "adam": lambda p: torch.optim.Adam(p, lr=0.01)}
        return private(folder, model=model, optimizer=kinds[kind](model.parameters()), **options)

    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    model, optimizer, loader = start(tmp_path / "whole")
    train(model, optimizer, loader)
    whole = values(model)

    model, optimizer, loader = start(tmp_path / "parts")
    train(model, optimizer, loader, stop=8)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "checkpoint.pt")
    checkpoint = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    del optimizer, model, loader

    # A used key before a state was loaded makes no step, and a state that equals the present one is none.
    model, optimizer, loader = start(tmp_path / "parts", resume="exact")
    optimizer.load_state_dict(optimizer.state_dict())
    inputs, targets = next(iter(loader))
    loss_of(model, inputs, targets).backward()
    with pytest.raises(errors.RepeatedNoise):
        optimizer.step()
    del optimizer, model, loader
    gc.collect()  # the exception's frames
    for resume in ("exact", "new"):
        model, optimizer, loader = start(tmp_path / "parts", resume=resume)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        if resume == "new":
            train(model, optimizer, loader, 3)
            assert optimizer.noise.next_step == 20 and not torch.equal(values(model), whole)
            continue
        assert len(list(loader)) == 2, "the rest of the epoch"
        train(model, optimizer, loader, 3)
        assert optimizer.noise.next_step == 20 and torch.equal(values(model), whole)
        before = optimizer.state_dict()
        optimizer.load_state_dict(before)
        after = optimizer.state_dict()
        assert torch.equal(before["corrnoise"]["state"], after["corrnoise"]["state"])
        assert list(loader) == [], "the plan is over"
        del optimizer, model, loader


def test_states_are_sealed_and_refused(tmp_path):
    model, optimizer, loader = private(tmp_path)
    train(model, optimizer, loader, stop=3)
    state = optimizer.state_dict()
    clear = optimizer.noise.state_dict()["state"].numpy().tobytes()
    hidden = state["corrnoise"]["state"].numpy().tobytes()
    assert not any(clear[at : at + 8] in hidden for at in range(0, len(clear) - 8, 8) if clear[at : at + 8] != bytes(8))
    without = {name: part for name, part in state.items() if name != "corrnoise"}
    with pytest.raises(corrnoise.CheckpointError, match="no 'corrnoise'"):
        optimizer.load_state_dict(without)
    state["corrnoise"]["state"][70] ^= 1
    with pytest.raises(corrnoise.CheckpointError, match="changed afterwards"):
        optimizer.load_state_dict(state)
    assert optimizer.noise.next_step == 3


def test_what_is_not_the_plans_batch_is_refused(tmp_path):
    """Nothing is added, and the loop can go on with a new pass."""
    model, optimizer, loader = private(tmp_path)
    inputs, targets = data().tensors
    before = values(model)

    def refused(part, exception=corrnoise.InvalidArgument):
        with pytest.raises(exception, match=part):
            optimizer.step()
        assert torch.equal(values(model), before) and optimizer.noise.next_step == 0

    loss_of(model, inputs[:7], targets[:7]).backward()
    refused("of 7 examples, the batch of step 0 has 12")
    refused("'0.weight' has no per-sample gradients")
    # Accumulation by averaging: two batches for one step.
    pairs = iter(loader)
    for _ in range(2):
        (loss_of(model, *next(pairs)) / 2).backward()
    refused("of 24 examples, the batch of step 0 has 12.*BatchMemoryManager")
    # A batch that was passed over: as many examples, and not the step's.
    pairs = iter(loader)
    next(pairs)
    loss_of(model, *next(pairs)).backward()
    refused("drawn for step 1, the mechanism's next step is 0", errors.BatchRefused)
    # A loop that is left and entered again goes on where the noise is, and one batch is not used twice.
    train(model, optimizer, loader, stop=2)
    last = [optimizer._batches.batch(step).tolist() for step in (2,)][0]
    inputs_of = data()[last]
    loss_of(model, *next(iter(loader))).backward()
    optimizer.step()
    loss_of(model, *inputs_of).backward()
    with pytest.raises(errors.BatchRefused, match="drawn for step 2, the mechanism's next step is 3"):
        optimizer.step()
    train(model, optimizer, loader)
    loss_of(model, inputs[:12], targets[:12]).backward()
    with pytest.raises(errors.PastEnd, match="all 20 steps of the plan were made"):
        optimizer.step()


def test_a_batch_that_was_passed_over_in_the_memory_manager(tmp_path):
    model, optimizer, loader = private(tmp_path)
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=6, optimizer=optimizer) as physical:
        with pytest.raises(errors.BatchRefused, match="drawn for step 1, the mechanism's next step is 0"):
            for taken, (inputs, targets) in enumerate(physical):
                if taken >= 2:
                    loss_of(model, inputs, targets).backward()
                    optimizer.step()
                    optimizer.zero_grad()
    assert optimizer.noise.next_step == 0


def test_leaving_the_memory_manager_in_the_middle_of_a_batch(tmp_path):
    (tmp_path / "whole").mkdir()
    model, optimizer, loader = private(tmp_path / "whole")
    train(model, optimizer, loader)
    whole = values(model)
    model, optimizer, loader = private(tmp_path)
    for leave in (1, 4, 8, None):
        with BatchMemoryManager(data_loader=loader, max_physical_batch_size=5, optimizer=optimizer) as physical:
            for taken, (inputs, targets) in enumerate(physical):
                loss_of(model, inputs, targets).backward()
                optimizer.step()
                optimizer.zero_grad()
                if taken == leave:
                    break
    train(model, optimizer, loader)
    assert optimizer.noise.next_step == 20 and (whole - values(model)).abs().max() < 1e-5


def test_non_finite_examples_add_nothing(tmp_path):
    """The run is that in which those examples' gradients are zero: they do not become part of the sum, nor stop a step."""
    ends = []
    for name, bad in (("zero", 0.0), ("inf", float("inf")), ("nan", float("nan"))):
        (tmp_path / name).mkdir()
        dataset = data()
        model, optimizer, loader = private(tmp_path / name, dataset=dataset)
        for _ in range(2):
            for inputs, targets in loader:
                weights = torch.ones(len(inputs))
                weights[3] = bad
                losses = torch.nn.functional.cross_entropy(model(inputs), targets, reduction="none")
                (losses * weights).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        ends.append(values(model))
    assert ends[0].isfinite().all() and all(torch.equal(ends[0], end) for end in ends)


def test_frozen_parameters_have_no_coordinates(tmp_path):
    model = network()
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    frozen = model[0].weight.clone()
    model, optimizer, loader = private(tmp_path, model=model, optimizer=optimizer)
    train(model, optimizer, loader, 1)
    assert optimizer.noise.mechanism.segments == [(0, 12), (512, 514)]
    assert torch.equal(model._module[0].weight, frozen) and model._module[0].weight.grad is None
    model._module[0].weight.requires_grad_(True)
    loss_of(model, *next(iter(loader))).backward()
    with pytest.raises(corrnoise.InvalidArgument, match="trains 3 parameters, and the noise was made for 2"):
        optimizer.step()


def test_bfloat16_parameters_are_summed_in_float32(tmp_path):
    model = network().bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    model, optimizer, loader = private(tmp_path, model=model, optimizer=optimizer)
    for inputs, targets in loader:
        loss_of(model, inputs.bfloat16(), targets).backward()
        optimizer.step()
    assert all(p.grad.dtype == torch.bfloat16 and p.grad.isfinite().all() for p in model.parameters())
    assert optimizer.noise.next_step == 5


def test_what_cannot_be_private_is_refused_with_the_line_that_mends_it(tmp_path):
    model = network()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    part = torch.optim.SGD(model[0].parameters(), lr=0.1)
    other = torch.optim.SGD([*model.parameters(), torch.nn.Parameter(torch.zeros(3))], lr=0.1)
    compiled, inside, in_place = torch.compile(network()), network(), network()
    inside[0] = torch.compile(inside[0])
    in_place.compile()
    norm = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.BatchNorm1d(6))
    weighted = torch.utils.data.WeightedRandomSampler([1.0] * SIZE, SIZE)
    repeated = torch.utils.data.RandomSampler(data(), replacement=True)
    made = private(tmp_path)

    def of(module):
        return {"model": module, "optimizer": torch.optim.SGD(module.parameters(), lr=0.1)}

    federated = corrnoise.plan(30, min_sep=10, max_participations=2, mu=1, strategy="identity")
    for arguments, text in [
        (of(compiled), "the module is compiled by torch.compile.*model._orig_mod"),
        (of(inside), "submodule '0' is compiled"),
        (of(in_place), "the module is compiled"),
        (of(norm), "BatchNorm.*ModuleValidator.fix"),
        (of(network().eval()), "train"),
        (of(made[0]), "GradSampleModule already.*model._module"),
        ({"model": model, "optimizer": made[1]}, "DPOptimizer already.*optimizer.original_optimizer"),
        ({"model": model, "optimizer": torch.optim.LBFGS(model.parameters())}, "LBFGS"),
        ({"model": model, "optimizer": part}, "'2.weight' requires a gradient.*requires_grad_\\(False\\)"),
        ({"model": model, "optimizer": other}, r"a parameter of shape \(3,\) that the module has not"),
        ({"loader": made[2]}, "is a PrivateLoader"),
        ({"loader": DataLoader(data(), sampler=weighted)}, "draws batches by WeightedRandomSampler"),
        ({"loader": DataLoader(data(), sampler=repeated)}, "repeats examples"),
        ({"loader": DataLoader(data(), batch_size=None)}, "draws batches by NoneType"),
        ({"dataset": TensorDataset(*data()[:50])}, "plan is for 60 examples, the dataset has 50"),
        ({"max_grad_norm": 0.6}, "max_grad_norm is 0.6: expected above 0 and at most 0.5.*optimizer.max_grad_norm = 0.5"),
        ({"max_grad_norm": float("nan")}, "max_grad_norm is nan"),
        ({"own": federated}, "leaves the choice of batches to others"),
        ({"own": plan(unit="user")}, "unit is 'user'"),
        ({"epsilon": 3, "epochs": 2}, "epsilon, epochs beside plan"),
    ]:
        with pytest.raises(corrnoise.InvalidArgument, match=text):
            private(tmp_path, **({"model": model, "optimizer": sgd} | arguments))
    model, optimizer, loader = made
    before = values(model)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(loss_of(model, *next(iter(loader)))).backward()
    with pytest.raises(corrnoise.InvalidArgument, match="a gradient scaler makes this step.*loss.backward"):
        scaler.step(optimizer)
    loss_of(model, *next(iter(loader))).backward()
    optimizer.max_grad_norm = 0.51
    with pytest.raises(corrnoise.InvalidArgument, match="max_grad_norm is 0.51"):
        optimizer.step()
    assert torch.equal(values(model), before) and optimizer.noise.next_step == 0


def test_a_plan_is_made_once_and_found_again(tmp_path):
    def start(**change):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
        budget = {"epochs": EPOCHS, "epsilon": 2, "delta": 1e-5, "max_grad_norm": 0.2, "strategy": "blt:2"} | change
        return make_private(model, optimizer, DataLoader(data(), batch_size=BATCH), key_file=tmp_path / "noise.key", **budget)

    model, optimizer, loader = start()
    own = optimizer.noise.mechanism.plan
    assert own.num_steps == 20 == EPOCHS * len(loader) and 1.9 < own.epsilon <= 2
    assert own.certificate["workload"] == {"momentum": {"beta": 0.9, "weight_decay": 0.0}} and own.certificate["clip_norm"] == 0.2
    assert (tmp_path / "noise.key").stat().st_mode & 0o777 == 0o600
    assert optimizer.max_grad_norm == 0.2 and optimizer.privacy_spent() == (0, 0, 0)
    train(model, optimizer, loader, 1, stop=1)
    spent = optimizer.privacy_spent()
    assert spent == (own.epsilon_after(1), 1e-5, 1) and 0 < spent.epsilon < own.epsilon
    del model, optimizer, loader
    _, optimizer, _ = start()
    assert optimizer.noise.mechanism.plan == own
    for change, text in [
        ({"epsilon": 1.5}, "has epsilon .*, and 1.5 is asked for"),
        ({"delta": 1e-6}, "has delta 1e-05, and 1e-06"),
        ({"epochs": 5}, "has number of steps 20, and 25"),
        ({"max_grad_norm": 0.3}, "has clip norm 0.2, and 0.3"),
        ({"strategy": "blt:3"}, "has strategy blt:2, and blt:3"),
        ({"sampling": "balls-in-bins"}, "has sampling cyclic, and balls-in-bins"),
        ({"epochs": None}, "no epochs"),
    ]:
        with pytest.raises(corrnoise.InvalidArgument, match=text):
            start(**change)


def test_without_opacus_it_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "opacus", None)
    with pytest.raises(ImportError, match="make_private needs Opacus.*pip install opacus"):
        private(tmp_path)


def test_options_are_shown_and_schedulers_work(tmp_path):
    shown = inspect.signature(make_private).parameters
    assert list(shown)[:4] == ["module", "optimizer", "loader", "key_file"] and all(p.kind is not p.VAR_KEYWORD for p in shown.values())
    assert {"strategy", "sampling", "objective", "max_state_bytes"} < shown.keys()
    with pytest.raises(TypeError, match="unexpected keyword argument 'noise_multiplyer'"):
        private(tmp_path, noise_multiplyer=1)
    model, optimizer, loader = private(tmp_path)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    for _ in range(2):
        train(model, optimizer, loader, 1)
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.075 and optimizer.original_optimizer.param_groups[0]["lr"] == 0.075


def test_overhead(tmp_path, capsys):
    """What a step of 100 tensors takes beyond Opacus's own step, which clips and scales too, and beyond the engine."""
    size, times = 40, {"ours": [], "Opacus": [], "engine": []}
    dataset = TensorDataset(torch.ones(size, 2))
    for kind in ("ours", "Opacus"):
        model = torch.nn.Sequential(*[torch.nn.Linear(2, 2) for _ in range(50)])
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        if kind == "ours":
            own = corrnoise.plan(
                epochs=2, dataset_size=size, batch_size=1, epsilon=4, delta=1e-5, strategy="identity", clip_norm=CLIP
            )
            loader = DataLoader(dataset, batch_size=1)
            model, optimizer, loader = private(tmp_path, own, model=model, optimizer=sgd, loader=loader)
            add = optimizer._noise.add_noise

            def timed(batch):
                start = time.perf_counter()
                add(batch)
                times["engine"].append(time.perf_counter() - start)

            optimizer._noise.add_noise = timed
        else:
            loader = DataLoader(dataset, batch_size=1)
            model = opacus.GradSampleModule(model)
            optimizer = opacus.optimizers.DPOptimizer(sgd, noise_multiplier=0.0, max_grad_norm=CLIP, expected_batch_size=1)
        for _ in range(2):
            for (inputs,) in loader:
                model(inputs).sum().backward()
                start = time.perf_counter()
                optimizer.step()
                times[kind].append(time.perf_counter() - start)
                optimizer.zero_grad()
    ours, stock, engine = (1e6 * float(np.median(values)) for values in times.values())
    with capsys.disabled():
        print(f"\na step of 100 tensors: {ours:.0f} µs, of which the engine's call {engine:.0f}; Opacus's own without noise {stock:.0f}")
    assert ours - engine - stock < 100
