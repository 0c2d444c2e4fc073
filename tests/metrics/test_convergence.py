"""Convergence of Integrated Gradients against differences taken one by one."""

import pytest
import torch

from axiograd import IntegratedGradients
from axiograd.metrics import integrated_gradients_convergence


def test_differences_to_three_hundred_steps():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3)).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    found = integrated_gradients_convergence(model, x, 2)
    assert found.steps == (1, 2, 4, 8, 16, 32, 64, 128, 256)
    reference = IntegratedGradients(model, 300).attribute(x, 2)
    for n, difference in zip(found.steps, found.differences, strict=True):
        own = IntegratedGradients(model, n).attribute(x, 2)
        assert float(difference) == pytest.approx(float((own - reference).abs().mean()), rel=1e-9)
    assert found.standard_errors.shape == (9,)
    assert float(found.differences[-1]) < 0.02 * float(found.differences[0])
    assert found.scale == pytest.approx(float(reference.abs().mean()))
    assert "IG(300)" in str(found)


def test_an_x_dnn_has_converged_after_one_step():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 32, bias=False), torch.nn.ReLU(), torch.nn.Linear(32, 1, bias=False))
    found = integrated_gradients_convergence(model.double(), torch.randn(5, 4, dtype=torch.float64), steps=(1, 8))
    assert float(found.differences.max()) < 1e-12
