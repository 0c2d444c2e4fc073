"""The gap of attributions from wherever, against each method's own account."""

import pytest
import torch

from axiograd import InputXGradient, IntegratedGradients
from axiograd.errors import InputError, TargetError
from axiograd.metrics import completeness_gap


def model(x, y=None):
    return ((x**3).sum(1) + (0 if y is None else (x * y).sum(1))).unsqueeze(1).repeat(1, 2) * torch.tensor([1.0, -2.0])


@pytest.mark.parametrize("method", [InputXGradient(model), IntegratedGradients(model, n_steps=2)])
def test_agrees_with_the_methods_own_account(method):
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    expected = method.completeness(x, 1)
    found = completeness_gap(model, x, method.attribute(x, 1), 1)
    assert torch.allclose(found.delta, expected.delta, atol=1e-5)
    assert found.scale == pytest.approx(expected.scale)
    assert torch.allclose(found.relative, expected.relative, atol=1e-5)
    assert found.baseline == "zero"


def test_several_inputs_and_a_baseline():
    x, y = torch.randn(2, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ig = IntegratedGradients(model, n_steps=4)
    attributions = ig.attribute((x, y), 0, baselines=(0.5, 1.0))
    gap = completeness_gap(model, (x, y), attributions, 0, baselines=(0.5, 1.0))
    assert float(gap.relative.max()) < 1e-12
    assert gap.baseline == "given"
    with pytest.raises(InputError, match="expected the inputs' own shapes"):
        completeness_gap(model, (x, y), attributions[:1], 0)
    with pytest.raises(TargetError, match="one scalar per sample"):
        completeness_gap(model, (x, y), attributions, "all")
