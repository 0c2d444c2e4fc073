"""Contrast: an X-DNN does not notice it, a regular network does."""

import pytest
import torch
from torch import nn

from axiograd import InputXGradient, IntegratedGradients, XGradient
from axiograd.errors import ConfigurationError, TargetError
from axiograd.metrics import contrast_robustness


def network(*, bias):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 24, bias=bias), nn.ReLU(), nn.Linear(24, 3, bias=bias)).double()


def test_an_x_dnn_does_not_change():
    x = torch.randn(20, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    model = network(bias=False)
    labels = model(x).argmax(1)
    found = contrast_robustness(XGradient(model, degree=1.0), x, labels)
    assert found.accuracy.tolist() == [100.0] * 10
    assert float(found.attribution_change.max()) < 1e-12


def test_a_regular_network_changes_as_computed_by_hand():
    x = torch.randn(20, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    model = network(bias=True)
    labels = model(x).argmax(1)
    found = contrast_robustness(IntegratedGradients(model), x, labels, factors=(0.5, 0.05))
    for row, alpha in enumerate((0.5, 0.05)):
        right = (model(alpha * x).argmax(1) == labels).double().mean()
        assert float(found.accuracy[row]) == pytest.approx(100 * float(right))
        full, scaled = (IntegratedGradients(model).attribute(s, labels) for s in (x, alpha * x))
        change = (full / full.norm(dim=1, keepdim=True) - scaled / scaled.norm(dim=1, keepdim=True)).norm(dim=1)
        assert float(found.attribution_change[row]) == pytest.approx(float(change.mean()))
    assert float(found.accuracy[1]) < 100
    assert float(found.attribution_change[1]) > float(found.attribution_change[0]) > 0.01
    assert found.accuracy_standard_error.shape == found.attribution_change_standard_error.shape == (2,)


def test_a_single_logit_needs_no_target():
    model = nn.Linear(3, 1)
    x = torch.randn(4, 3)
    found = contrast_robustness(InputXGradient(model), x, (model(x) > 0).long().flatten(), factors=(1.0,))
    assert found.accuracy.tolist() == [100.0]


def test_wrong_arguments_are_named():
    with pytest.raises(ConfigurationError, match="factors"):
        contrast_robustness(InputXGradient(nn.Linear(2, 2)), torch.ones(1, 2), [0], factors=(0.0,))
    with pytest.raises(TargetError, match="2 labels for 3 samples"):
        contrast_robustness(InputXGradient(nn.Linear(2, 2)), torch.ones(3, 2), [0, 1])
