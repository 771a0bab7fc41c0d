"""CUDA devices: what is said without one, and bits on the stand-in for libcuda where it was built (crates/cuda-sim)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import key, plan

import corrnoise
from corrnoise import errors


def test_devices_are_named():
    for device in ("tpu", "cuda:x", "cuda:-1", ""):
        with pytest.raises(corrnoise.InvalidArgument, match="device is"):
            corrnoise.Mechanism(plan(), key(), 5, device=device)
    with pytest.raises(corrnoise.InvalidArgument, match="stream is 0x10"):
        corrnoise.Mechanism(plan(), key(), 5, stream=16)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rows_ahead": 8}, "rows_ahead is 8: expected None on cpu"),
        ({"rows_ahead": 1}, "rows_ahead is 1: expected None on cpu"),
        ({"prepare_stream": True}, "prepare_stream is True: expected False on cpu"),
        ({"max_state_bytes": 0}, "max_state_bytes is 0: expected None on cpu"),
        ({"compact": True, "rows_ahead": 8, "device": "cuda"}, "rows_ahead is 8: expected None or 1 with compact=True"),
    ],
)
def test_options_of_other_devices_are_refused(options, text):
    with pytest.raises(corrnoise.InvalidArgument, match=text):
        corrnoise.Mechanism(plan(), key(), 5, **options)
    with pytest.raises(corrnoise.InvalidArgument, match=text):
        corrnoise.Mechanism.resume(plan(), key(), 5, ["nowhere"], **options)


def test_without_a_driver_there_is_an_exception():
    with pytest.raises((errors.DeviceError, corrnoise.InvalidArgument), match="driver|CUDA"):
        corrnoise.Mechanism(plan(), key(), 5, device="cuda:99")


def test_bits_on_the_stand_in():
    pytest.importorskip("torch")
    folder = os.environ.get("CORRNOISE_CUDA_SIM", "")
    if not (Path(folder) / "libcuda.so").exists():
        pytest.skip("CORRNOISE_CUDA_SIM names no folder with libcuda.so of crates/cuda-sim")
    script = Path(__file__).with_name("device.py")
    environment = {**os.environ, "LD_LIBRARY_PATH": folder}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "the bits of Rust" in done.stdout, done.stdout + done.stderr
