"""One table: every way to call the engine × every form × every gradient type, against the bits that Rust made.

C and candle run from what `crates/python/test` has built; its variable CORRNOISE_BUILT names the folder.
"""

import ctypes
import functools
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import CASES, ROOT, SIZES, VECTORS, expected, gradients, key, plan

import corrnoise

ml_dtypes = pytest.importorskip("ml_dtypes")
DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
STEPS = 5


def arrays(dtype):
    return [gradient.astype(DTYPES[dtype]) for gradient in gradients()]


def joined(parts):
    return b"".join(np.asarray(part).tobytes() for part in parts)


def built(name):
    folder = os.environ.get("CORRNOISE_BUILT")
    if folder is None:
        pytest.skip("CORRNOISE_BUILT is not set: run crates/python/test")
    return str(Path(folder) / name)


def numpy(name, dtype):
    mechanism = corrnoise.Mechanism(plan(name), key(), corrnoise.Layout(SIZES), threads=2)
    for _ in range(STEPS):
        parts = arrays(dtype)
        mechanism.add_to(parts)
    return joined(parts)


def torch(name, dtype):
    torch = pytest.importorskip("torch")
    from corrnoise.torch import CorrelatedNoise

    parameters = [torch.nn.Parameter(torch.zeros(size, dtype=getattr(torch, dtype))) for size in SIZES.values()]
    noise = CorrelatedNoise(zip(SIZES, parameters), plan(name), key())
    for _ in range(STEPS):
        for parameter, gradient in zip(parameters, gradients()):
            parameter.grad = torch.from_numpy(gradient).to(parameter.dtype)
        noise.add_noise()
    return joined(parameter.grad.view(torch.uint8) for parameter in parameters)


def jax(name, dtype, jit=False):
    jax = pytest.importorskip("jax")
    from corrnoise.jax import transformation

    noise = transformation(corrnoise.Mechanism(plan(name), key(), corrnoise.Layout(SIZES)))
    update = jax.jit(noise.update) if jit else noise.update
    tree = [jax.numpy.asarray(part) for part in arrays(dtype)]
    state = noise.init(tree)
    for _ in range(STEPS):
        noisy, state = update(tree, state)
    assert int(state.count) == STEPS
    assert joined(tree) == joined(arrays(dtype)), "JAX's own arrays are not written to"
    return joined(jax.block_until_ready(noisy))


@functools.cache
def c_library():
    return ctypes.CDLL(built("libcorrnoise_capi.so"))


def c(name, dtype):
    library = c_library()

    def call(function, *arguments):
        status = getattr(library, f"corrnoise_{function}")(*arguments)
        library.corrnoise_last_error_message.restype = ctypes.c_char_p
        assert status == 0, library.corrnoise_last_error_message()

    def made(function, *arguments):
        handle = ctypes.c_void_p()
        call(function, *arguments, ctypes.byref(handle))
        return handle

    count = len(SIZES)
    names = (ctypes.c_char_p * count)(*(tensor.encode() for tensor in SIZES))
    shard = made("shard_tensors", names, (ctypes.c_uint64 * count)(*SIZES.values()), ctypes.c_size_t(count))
    run = made("key_from_bytes", bytes.fromhex(VECTORS["key"]), VECTORS["run_id"].encode())
    form = made("plan_from_json", CASES[name]["plan"].encode())
    mechanism = made("mechanism_new", form, run, shard, None)
    add_to = {"float32": "add_to_f32", "float16": "add_to_f16", "bfloat16": "add_to_bf16"}[dtype]
    for _ in range(STEPS):
        parts = arrays(dtype)
        addresses = (ctypes.c_void_p * count)(*(part.ctypes.data for part in parts))
        call(add_to, mechanism, addresses, (ctypes.c_size_t * count)(*SIZES.values()), ctypes.c_size_t(count))
    for kind, handle in [("shard", shard), ("key", run), ("plan", form), ("mechanism", mechanism)]:
        getattr(library, f"corrnoise_{kind}_free")(handle)
    return joined(parts)


@functools.cache
def candle_lines():
    vectors = ROOT / "tests/data/bindings.json"
    output = subprocess.run([built("examples/bindings"), vectors], capture_output=True, text=True, check=True).stdout
    return {tuple(line.split()[:2]): bytes.fromhex(line.split()[2]) for line in output.splitlines()}


def candle(name, dtype):
    return candle_lines()[name, dtype]


BINDINGS = {
    "NumPy": numpy,
    "PyTorch": torch,
    "JAX": jax,
    "JAX, compiled": functools.partial(jax, jit=True),
    "C": c,
    "candle": candle,
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("binding", BINDINGS)
def test_bits_are_those_of_rust(binding, name, dtype):
    assert BINDINGS[binding](name, dtype) == expected(name, dtype)
