"""Agreement of converted networks with their originals, against SciPy and Captum."""

import pytest
import torch
from captum.attr import IntegratedGradients
from scipy import stats
from torch import nn

import axiograd
from axiograd.metrics import agreement


@pytest.mark.parametrize("how", ["carry", "lift"])
def test_both_correlations_are_scipys(how):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 3)).double().eval()
    x = torch.randn(5, 12).double().relu()  # with ties
    conversion = axiograd.to_xdnn(net, x, how=how)
    found = agreement(conversion, x)
    target = net(x).argmax(1)
    wanted = IntegratedGradients(net).attribute(x, target=target, n_steps=128)
    ours = axiograd.XGradient(conversion.model).attribute(x, target)
    for i in range(5):
        assert float(found.correlation[i]) == pytest.approx(stats.pearsonr(ours[i], wanted[i])[0], abs=1e-4)
        assert float(found.rank_correlation[i]) == pytest.approx(stats.spearmanr(ours[i], wanted[i])[0], abs=0.02)


def test_an_x_dnn_agrees_with_itself_and_stays_as_it_was():
    net = nn.Sequential(nn.Linear(12, 20, bias=False), nn.ReLU(), nn.Dropout(), nn.Linear(20, 3, bias=False)).train()
    x = torch.randn(5, 12)
    found = agreement(axiograd.to_xdnn(net, x, how="strip"), x)
    torch.testing.assert_close(found.correlation, torch.ones(5).double(), atol=1e-5, rtol=0)
    assert net.training
    assert str(found).startswith("correlation 1.00 (1.00 to 1.00), rank correlation")


def test_a_lift_around_a_baseline():
    net, x = nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 3)).eval(), torch.randn(5, 12)
    found = agreement(axiograd.to_xdnn(net, x, how="lift", baseline=0.5), x)
    assert bool((found.correlation > 0).all())
