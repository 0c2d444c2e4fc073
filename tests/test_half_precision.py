"""A stand-in for torch that is killed as the real one is where the processor advertises what it does not allow."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from axiograd import _half_precision
from axiograd.errors import ConfigurationError
from axiograd.training import fit
from axiograd.training.recipe import Recipe

ROOT = Path(__file__).parents[1]
#: Imports as torch does; dies unless the limit is one of the two that help on the machine where this was seen.
DEADLY = """
import os, signal
if os.environ.get("ONEDNN_MAX_CPU_ISA") not in {"AVX512_CORE_BF16", "AVX2"}:
    os.kill(os.getpid(), signal.SIGILL)
raise SystemExit(0)
"""
DATA = (torch.ones(4, 2), torch.ones(4, 1))


@pytest.fixture
def deadly(tmp_path, monkeypatch):
    """Children of this process import the stand-in; nothing is remembered from before or for later."""
    (tmp_path / "torch.py").write_text(DEADLY)
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.delenv(_half_precision.LIMIT, raising=False)
    monkeypatch.delenv(_half_precision.PROBED, raising=False)
    _half_precision._advice.cache_clear()
    yield
    _half_precision._advice.cache_clear()


def test_products_work_in_this_run():
    assert _half_precision.products_work()


def test_the_first_limit_that_works_is_found(deadly):
    assert not _half_precision.products_work()
    assert _half_precision.working_limit() == "AVX512_CORE_BF16"


def test_a_child_without_torch_says_nothing(deadly, tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    assert _half_precision.products_work()


def test_a_wrong_product_does_not_work(deadly, tmp_path):
    (tmp_path / "torch.py").write_text(f"raise SystemExit({_half_precision._WRONG})")
    assert not _half_precision.products_work()
    assert _half_precision.working_limit() is None


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true", "16-true"])
def test_fit_says_what_to_do_instead_of_being_killed(deadly, precision):
    model = torch.nn.Linear(2, 1, bias=False)
    recipe = Recipe(epochs=1, batch_size=4)
    loss = torch.nn.functional.mse_loss
    with pytest.raises(ConfigurationError, match=r"set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 before Python starts, or"):
        fit(model, DATA, loss=loss, recipe=recipe, accelerator="cpu", precision=precision)


def test_single_precision_asks_nothing(deadly, monkeypatch):
    monkeypatch.setattr(_half_precision, "products_work", lambda *_: pytest.fail("probed"))
    model = torch.nn.Linear(2, 1, bias=False)
    result = fit(
        model, DATA, loss=torch.nn.functional.mse_loss, recipe=Recipe(epochs=1, batch_size=4), accelerator="cpu"
    )
    assert result.steps == 1


def test_the_test_command_sets_the_limit_and_says_so(deadly):
    code = "import conftest, os; print(conftest.SAID); print(os.environ['ONEDNN_MAX_CPU_ISA'])"
    for known in ({}, {_half_precision.LIMIT: "AVX512_CORE_FP16"}):  # a limit that does not help is replaced
        environment = {**os.environ, **known}
        run = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        said, limit = run.stdout.splitlines()
        assert said.endswith("so this run sets ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16")
        assert limit == "AVX512_CORE_BF16"


def test_children_of_tests_inherit_the_answer():
    assert os.environ[_half_precision.PROBED] == os.environ.get(_half_precision.LIMIT, "")
