"""examples/digits.py: correlated noise trains a better model than independent noise, as tests/digits.rs asserts of the Rust example."""

import subprocess
import sys

from conftest import ROOT


def test_the_table(tmp_path):
    command = [sys.executable, ROOT / "examples/digits.py", "--seeds", "6", "--epsilons", "2"]
    table = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, encoding="utf-8").stdout
    head, _, *lines = table.splitlines()
    assert head == "| noise | ε = 2 | rate |"
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    rows = {name: tuple(float(number) for number in error.rstrip("%").split(" ± ")) for name, error, _ in cells}
    assert list(rows) == ["independent", "banded", "BLT", "banded inverse"]
    independent, error = rows["independent"]
    for name in ["banded", "BLT", "banded inverse"]:
        mean, own_error = rows[name]
        assert independent - mean > 3 * (error**2 + own_error**2) ** 0.5, table
        assert independent - mean > 8 and mean < 9, table
