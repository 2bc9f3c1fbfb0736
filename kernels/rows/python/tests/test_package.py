"""The installed package: its version and its annotations."""
import importlib.metadata
import pathlib
import subprocess
import sys

import pytest

import bertha_kernels as bk


def test_version():
    assert bk.__version__ == importlib.metadata.version("bertha-kernels")


def test_annotations_are_checked_by_mypy(tmp_path):
    pytest.importorskip("mypy")
    user = tmp_path / "user.py"
    user.write_text("""import torch
import bertha_kernels as bk
x = torch.ones(2, 3)
right: list[torch.Tensor] = [bk.softmax(x, dim=-1), bk.layer_norm(x, (3,), x[0]), bk.prelu(x, x[0]),
                             bk.log_softmax(x, dtype=torch.float64)]
version: str = bk.__version__
bk.softmax(x, dim="last")
bk.layer_norm(x, 3)
text: str = bk.prelu(x, x)
bk.BatchNormAddReLU(num_features="8")
""")
    package = pathlib.Path(bk.__file__).parent
    checked = subprocess.run([sys.executable, "-m", "mypy", "--follow-imports=silent", "--cache-dir", tmp_path,
                              user, package], capture_output=True, text=True, check=False)
    errors = [line.split(":")[:2] for line in checked.stdout.splitlines() if ": error:" in line]
    assert errors == [[str(user), str(line)] for line in range(7, 11)], checked.stdout + checked.stderr
