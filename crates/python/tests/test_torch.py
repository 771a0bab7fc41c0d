"""corrnoise.torch on modules, beside Opacus's attribute, and the guide's code."""

import inspect

import numpy as np
import pytest
from conftest import CASES, expected, gradients, guide_blocks, key, plan

import corrnoise

torch = pytest.importorskip("torch")
from corrnoise.torch import CorrelatedNoise  # noqa: E402
from corrnoise.torch.distributed import ReplicatedNoise, ShardedNoise  # noqa: E402


class Model(torch.nn.Module):
    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(20, 30, dtype=dtype))
        self.frozen = torch.nn.Parameter(torch.zeros(4), requires_grad=False)
        self.bias = torch.nn.Parameter(torch.zeros(7, dtype=dtype))

    def parameters_with_noise(self):
        return [self.weight, self.bias]

    def set_gradients(self, attribute="grad"):
        for p, g in zip(self.parameters_with_noise(), gradients()):
            setattr(p, attribute, torch.from_numpy(g).to(p.dtype).view_as(p))

    def bits(self, attribute="grad"):
        values = [getattr(p, attribute) for p in self.parameters_with_noise()]
        return b"".join(v.contiguous().view(torch.uint8).numpy().tobytes() for v in values)


def test_summed_gradients_and_plain_lists():
    model = Model()
    named = [("weight", model.weight), ("bias", model.bias)]
    noise = CorrelatedNoise(named, plan(), key(), attribute="summed_grad")
    for _ in range(5):
        model.set_gradients("summed_grad")
        noise.add_noise()
    assert model.bits("summed_grad") == expected("blt", "float32")
    assert CorrelatedNoise(model.parameters_with_noise(), plan(), key("list")).next_step == 0


def test_constructors_show_their_options_and_refuse_others():
    ranks = {"threads": 0, "prepare_threads": 0, "rows_ahead": None, "prepare_stream": False, "max_state_bytes": None}
    run = {"group": None, "folder": None, "resume": "new"}
    for kind, own, options in [
        (CorrelatedNoise, {"attribute": "grad", "replica": False}, {"compact": False, **ranks}),
        (ReplicatedNoise, run, ranks),
        (ShardedNoise, {"replica": False, **run}, ranks),
    ]:
        shown = inspect.signature(kind).parameters.values()
        assert {p.name: p.default for p in shown if p.kind is p.KEYWORD_ONLY} == own | options
        assert all(p.kind is not p.VAR_KEYWORD for p in shown)
        for unknown in {"row_ahead", "device", "awaits_state"} | ({"compact"} - options.keys()):
            with pytest.raises(TypeError, match=f"unexpected keyword argument '{unknown}'"):
                kind(Model(), plan(), key(), **{unknown: 1})
    with pytest.raises(corrnoise.InvalidArgument, match="rows_ahead is 8: expected None on cpu"):
        CorrelatedNoise(Model(), plan(), key(), rows_ahead=8)


def test_autograd_notices():
    model = Model()
    noise = CorrelatedNoise(model, plan(), key())
    model.set_gradients()
    before = model.weight.grad._version
    noise.add_noise()
    assert model.weight.grad._version > before
    with torch.inference_mode():
        model.set_gradients()
        noise.add_noise()
    assert model.weight.grad.is_inference() and noise.next_step == 2


def strided(model):
    model.weight.grad = torch.zeros(30, 20).t()


@pytest.mark.parametrize(
    ("spoil", "part"),
    [
        (lambda m: setattr(m.bias, "grad", None), "parameter 'bias' has no grad"),
        (strided, "gradient 0 is not C-contiguous"),
    ],
)
def test_refused_gradients_change_nothing(spoil, part):
    model = Model()
    noise = CorrelatedNoise(model, plan(), key())
    model.set_gradients()
    spoil(model)
    weight = model.weight.grad.clone()
    with pytest.raises(corrnoise.InvalidArgument, match=part):
        noise.add_noise()
    assert torch.equal(model.weight.grad, weight) and noise.next_step == 0


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda w, b: [w, b.double()], "gradient 1 is torch.float64"),
        (lambda w, b: [w, b.half()], "gradient 1 is float16: expected float32"),
        (lambda w, b: [w, torch.zeros(7, device="meta")], "gradient 1 is on meta"),
        (lambda w, b: [w, b.to_sparse()], "no plain memory|not C-contiguous"),
        (lambda w, b: [w, torch._neg_view(b)], "negated"),
        (lambda w, b: [w], "length 1: expected 2"),
        (lambda w, b: [w, w[:7]], "overlap"),
        (lambda w, b: [w, torch.zeros(8)], "gradient 1 has length 8: expected 7"),
    ],
)
def test_refused_tensors_change_nothing(make, part, mechanism):
    weight, bias = map(torch.from_numpy, gradients())
    before = weight.clone()
    with pytest.raises(corrnoise.InvalidArgument, match=part):
        mechanism.add_to(make(weight, bias))
    assert torch.equal(weight, before) and mechanism.next_step == 0


def test_lists_of_parameters():
    model = Model()
    for parameters, part in [
        ([], "empty"),
        ([("a", model.weight), ("a", model.bias)], "share a name"),
        ([model.weight, model.weight], "listed twice"),
    ]:
        with pytest.raises(corrnoise.InvalidArgument, match=part):
            CorrelatedNoise(parameters, plan(), key())


def test_state_dict(tmp_path):
    model = Model()
    noise = CorrelatedNoise(model, plan(), key())
    for step in range(5):
        if step == 3:
            torch.save(noise.state_dict(), tmp_path / "noise.pt")
            state = torch.load(tmp_path / "noise.pt", weights_only=True)
            noise = CorrelatedNoise(model, plan(), key())
            noise.load_state_dict(state, resume="exact")
            assert noise.next_step == 3
        model.set_gradients()
        noise.add_noise()
    assert model.bits() == expected("blt", "float32")
    noise.load_state_dict(state)
    assert noise.next_step == 3
    for _ in range(2):
        model.set_gradients()
        noise.add_noise()
    assert model.bits() != expected("blt", "float32"), "a new incarnation"

    model.set_gradients()
    before = model.bits()
    other_plan = CorrelatedNoise(model, plan("banded"), key())
    other_key = CorrelatedNoise(model, plan(), key("another"))
    other_model = CorrelatedNoise([("w", model.weight), ("b", model.bias)], plan(), key())
    for other, part in [(other_plan, "belongs to plan"), (other_key, "key"), (other_model, "belongs to layout")]:
        with pytest.raises(corrnoise.CheckpointError, match=part):
            other.load_state_dict(state)
        assert other.next_step == 0
    assert model.bits() == before


def test_copies_of_a_model_resume_with_one_nonce():
    def resumed(nonce):
        noise = CorrelatedNoise(model, plan(), key())
        noise.load_state_dict(state, nonce=nonce)
        model.set_gradients()
        noise.add_noise()
        return model.bits()

    model = Model()
    noise = CorrelatedNoise(model, plan(), key())
    model.set_gradients()
    noise.add_noise()
    state = noise.state_dict()
    assert resumed(b"sixteen bytes, 1") == resumed(b"sixteen bytes, 1") != resumed(b"sixteen bytes, 2")
    for arguments, part in [({"nonce": b"short"}, "nonce has length 5"), ({"nonce": bytes(16), "resume": "exact"}, "expected none")]:
        with pytest.raises(corrnoise.InvalidArgument, match=part):
            noise.load_state_dict(state, **arguments)


def test_sealed_states():
    """A sealed state tells nothing, is bound to the key, the plan and the run, and goes on like an open one."""
    model = Model()
    noise = CorrelatedNoise(model, plan(), key())
    for _ in range(3):
        model.set_gradients()
        noise.add_noise()
    sealed, clear = noise.state_dict(sealed=True), noise.state_dict()
    content = clear["state"].numpy().tobytes()
    hidden = sealed["state"].numpy().tobytes()
    assert len(hidden) == len(content) + 56 and noise.mechanism.state(sealed=True) == hidden
    assert not any(content[at : at + 8] in hidden for at in range(0, len(content) - 8, 8) if content[at : at + 8] != bytes(8))
    again = CorrelatedNoise(model, plan(), key())
    again.load_state_dict(sealed, resume="exact")
    for _ in range(2):
        model.set_gradients()
        again.add_noise()
    assert model.bits() == expected("blt", "float32")
    with pytest.raises(corrnoise.CheckpointError, match="sealed under another key, plan or run"):
        CorrelatedNoise(model, plan(), key("another")).load_state_dict(sealed)
    for at in (0, 16, 30, 60, len(hidden) - 1):
        changed = sealed | {"state": sealed["state"].clone()}
        changed["state"][at] ^= 1
        with pytest.raises(corrnoise.CheckpointError):
            again.load_state_dict(changed)
    assert again.next_step == 5


def test_opacus():
    """Opacus clips and sums; the noise is ours: the optimiser's gradients are the sum, the noise, and its scaling."""
    pytest.importorskip("opacus")
    from opacus import GradSampleModule

    class_code, *_ = [block for block in guide_blocks("pytorch.md") if "DPOptimizer" in block]
    scope = {}
    exec(class_code, scope)
    torch.manual_seed(5)
    model = GradSampleModule(torch.nn.Linear(30, 20))
    sgd = torch.optim.SGD(model.parameters(), lr=0.5)
    noise = CorrelatedNoise(model, plan(), key())
    optimizer = scope["CorrelatedDPOptimizer"](
        sgd, correlated_noise=noise, noise_multiplier=0.0, max_grad_norm=0.1, expected_batch_size=4
    )
    model(torch.randn(4, 30)).square().sum().backward()
    optimizer.pre_step()
    reference = corrnoise.Mechanism(plan(), key(), noise._layout)
    sums = [p.summed_grad.clone().contiguous() for p in model.parameters()]
    norm = sum(s.square().sum() for s in sums) ** 0.5
    assert 0.0 < norm <= 0.4001, "Opacus clipped"
    reference.add_to(sums)
    for p, s in zip(model.parameters(), sums):
        assert torch.equal(p.grad, s.view_as(p) / 4)
    assert noise.next_step == 1


def test_the_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = {}
    for block in guide_blocks("pytorch.md"):
        if "opacus" not in block and "torchrun" not in block:
            exec(compile(block, "docs/pytorch.md", "exec"), scope)
    made = scope["plan"]
    assert scope["noise"].next_step == made.num_steps == 30 and made.epsilon <= 2


def test_overhead_and_speed_are_reported(capsys):
    """This is no benchmark, but a gross mistake (a copy, a lock held) would show."""
    import time

    count = 20
    tensors = [torch.zeros(64) for _ in range(count)]
    layout = corrnoise.Layout({str(i): 64 for i in range(count)})
    many = corrnoise.Plan.from_json(CASES["independent"]["plan"])
    times = []
    for attempt in range(40):
        mechanism = corrnoise.Mechanism(many, key(f"run {attempt}"), layout, threads=1)
        for _ in range(5):
            start = time.perf_counter()
            mechanism.add_to(tensors)
            times.append(time.perf_counter() - start)
    with capsys.disabled():
        print(f"\n{count} tensors of 64 values: {np.median(times) * 1e6:.1f} µs a call, engine included")
    assert np.median(times) < 1e-3
