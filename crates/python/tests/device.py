"""The program that test_cuda.py runs where libcuda is the stand-in: tensors of a device, as PyTorch describes them."""

import ctypes

import numpy as np
import torch
from conftest import SIZES, expected, gradients, key, plan

import corrnoise

driver = ctypes.CDLL("libcuda.so")


def call(name, *arguments):
    status = getattr(driver, name)(*arguments)
    assert status == 0, f"{name}: {status}"


class Tensor:
    """Device memory with the methods that are asked of a tensor; `values` copies it back."""

    dtype, is_cpu, is_cuda = torch.float32, False, True

    def __init__(self, values, number=0):
        self.size, self.address = values.size, ctypes.c_uint64()
        self.device = type("device", (), {"index": number, "__str__": lambda _: f"cuda:{number}"})()
        call("cuMemAlloc_v2", ctypes.byref(self.address), ctypes.c_size_t(values.nbytes))
        call("cuMemcpyHtoDAsync_v2", self.address, values.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(values.nbytes), None)

    def values(self):
        out = np.zeros(self.size, np.float32)
        call("cuMemcpyDtoHAsync_v2", out.ctypes.data_as(ctypes.c_void_p), self.address, ctypes.c_size_t(out.nbytes), None)
        call("cuStreamSynchronize", None)
        return out

    def data_ptr(self):
        return self.address.value

    def numel(self):
        return self.size

    def is_contiguous(self):
        return True

    def is_neg(self):
        return False


def refused(mechanism, tensors, part):
    try:
        mechanism.add_to(tensors)
    except corrnoise.InvalidArgument as error:
        assert part in str(error), error
    else:
        raise AssertionError(f"nothing was refused: {part}")


layout = corrnoise.Layout(SIZES)
on_device = corrnoise.Mechanism(plan(), key(), layout, device="cuda:0")
assert "CUDA device 0" in repr(on_device), on_device
context = ctypes.c_void_p()
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
for _ in range(5):
    tensors = [Tensor(g) for g in gradients()]
    refused(on_device, gradients(), "gradients are on cpu: expected cuda:0")
    refused(on_device, [tensors[0], Tensor(gradients()[1], 1)], "gradient 1 is on cuda:1: expected cuda:0")
    refused(on_device, tensors[:1], "list of gradients has length 1: expected 2")
    refused(on_device, [tensors[0], tensors[0]], "gradient 1 has length 600: expected 7")
    refused(corrnoise.Mechanism(plan(), key(), layout), tensors, "gradients are on cuda:0: expected cpu")
    on_device.add_to(tensors)
assert b"".join(t.values().tobytes() for t in tensors) == expected("blt", "float32")

# Options change memory and no bit; what they ask for is seen in the text.
for options, told in [
    ({"compact": True}, ""),
    ({"rows_ahead": 3}, ", 3 rows at a time"),
    ({"rows_ahead": 2, "prepare_stream": True}, ", 2 rows at a time, prepared on a stream of its own"),
    ({"compact": True, "prepare_stream": True}, ", prepared on a stream of its own"),
]:
    noise = corrnoise.Mechanism(plan(), key(), layout, device="cuda:0", **options)
    assert told in repr(noise) and ("rows at" in repr(noise)) == ("rows at" in told), noise
    for _ in range(5):
        tensors = [Tensor(g) for g in gradients()]
        noise.add_to(tensors)
        noise.prepare()
    assert b"".join(t.values().tobytes() for t in tensors) == expected("blt", "float32"), options
try:
    corrnoise.Mechanism(plan(), key(), layout, device="cuda:0", max_state_bytes=3)
except corrnoise.InvalidArgument as error:
    assert "max_state_bytes is 3: expected at least" in str(error), error
else:
    raise AssertionError("a state that does not fit was accepted")
print("the device made the bits of Rust")
