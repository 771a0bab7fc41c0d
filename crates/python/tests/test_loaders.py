"""Loaders fork their workers, which does not go with the threads of JAX: loaders.py runs in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")


def test_loaders(tmp_path):
    script = str(Path(__file__).with_name("loaders.py"))
    pytest_of_its_own = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", script]
    run = subprocess.run(pytest_of_its_own, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "passed" in run.stdout and "skipped" not in run.stdout, run.stdout
