"""The package as a whole: what it imports, and what the command's skeleton does."""

import subprocess
import sys

import pytest

import axiograd

EXTRAS = ["captum", "lightning", "matplotlib", "PIL", "quantus", "rich", "safetensors", "torchmetrics", "typer"]


def run(*arguments, **options):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, **options)


def test_the_core_needs_torch_and_numpy_alone():
    code = f"""
import sys
for name in {EXTRAS!r}:
    sys.modules[name] = None
import axiograd, torch
x = torch.randn(2, 3)
model = torch.nn.Linear(3, 1, bias=False)
assert axiograd.XGradient(model).attribute(x).shape == x.shape
"""
    done = run("-c", code)
    assert done.returncode == 0, done.stderr


def test_importing_the_package_is_quick_until_a_name_is_used():
    code = """
import sys
import axiograd, axiograd.cli.app
assert "torch" not in sys.modules
from axiograd import XGradient
assert "torch" in sys.modules and axiograd.XGradient is XGradient
names = {}
exec("from axiograd import *", names)
assert {"certify", "metrics", "audit"} <= names.keys()
assert "certify" in dir(axiograd)
try:
    axiograd.certifi
except AttributeError as error:
    assert "certifi" in str(error)
else:
    raise AssertionError
"""
    done = run("-c", code)
    assert done.returncode == 0, done.stderr


def test_version():
    done = run("-m", "axiograd", "--version")
    assert (done.returncode, done.stdout.strip()) == (0, f"axiograd {axiograd.__version__}")


def test_wrong_use_has_exit_code_2_and_no_traceback():
    done = run("-m", "axiograd", "demo", "--images", "3")
    assert done.returncode == 2
    assert "--images 3" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", EXTRAS)
def test_extras_are_declared(name):
    from importlib.metadata import requires

    distribution = {"PIL": "pillow"}.get(name, name)
    assert any(r.startswith(distribution) and "extra ==" in r for r in requires("axiograd") or [])
