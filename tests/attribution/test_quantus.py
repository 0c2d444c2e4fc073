"""The plug inside a real metric of Quantus, and alone."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import axiograd
from axiograd.attribution.quantus import quantus_explain
from axiograd.errors import TargetError

#: The same numbers, whatever the alignment of an array does to the order of sums.
assert_same = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)


@pytest.fixture
def cnn():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).eval()


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    return rng.normal(size=(4, 1, 8, 8)).astype(np.float32), np.array([0, 2, 1, 1])


def test_quantus_completeness_holds_for_input_x_gradient_and_not_for_the_gradient():
    import quantus

    # Quantus compares for equality, so weights and inputs are whole numbers, with which float32 does not round.
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3, bias=False)).eval()
    for p in net.parameters():
        p.data = torch.randint(-3, 4, p.shape).float()
    x, y = torch.randint(-4, 5, (4, 1, 8, 8)).float().numpy(), np.array([0, 2, 1, 1])

    def completeness(method, **kwargs):
        metric = quantus.Completeness(
            abs=False, normalise=False, perturb_baseline=0.0, disable_warnings=True, display_progressbar=False
        )
        explain = {"explain_func": quantus_explain(method), "explain_func_kwargs": kwargs}
        return metric(model=net, x_batch=x, y_batch=y, softmax=False, device="cpu", **explain)

    assert completeness(axiograd.InputXGradient) == [True] * 4
    assert completeness(axiograd.XGradient, degree=1) == [True] * 4
    assert completeness(axiograd.Gradient) == [False] * 4


def test_it_is_the_method(cnn, batch):
    x, y = batch
    found = quantus_explain(axiograd.IntegratedGradients, n_steps=8)(cnn, x, y, device="cpu", baselines=0.5)
    expected = axiograd.IntegratedGradients(cnn, 8).attribute(torch.from_numpy(x), torch.from_numpy(y), baselines=0.5)
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float32
    assert_same(found, expected.numpy())
    override = quantus_explain(axiograd.IntegratedGradients, n_steps=1)(cnn, x, y, n_steps=8, baselines=0.5)
    assert_same(override, found)
    factory = quantus_explain(lambda model: axiograd.IntegratedGradients(model, 8))
    assert_same(factory(cnn, x, y, baselines=0.5), found)


def test_kinds_of_inputs_and_targets(cnn, batch):
    x, y = batch
    explain = quantus_explain(axiograd.Saliency)
    expected = explain(cnn, x, y)
    assert_same(explain(cnn, torch.from_numpy(x), torch.from_numpy(y)), expected)
    assert_same(explain(cnn, x.astype(np.float64), y.astype(np.float64)), expected)
    assert_same(explain(cnn, x, y.tolist()), expected)
    assert_same(explain(cnn, x, 1)[2:], expected[2:])
    assert explain(cnn.bfloat16(), x, y).dtype == np.float32
    with pytest.raises(TargetError, match="integers"):
        explain(cnn, x, y + 0.5)
