import numpy as np
import pytest
import torch
from torch import nn

from axiograd.homogeneity.conversion.counterparts import ACTIVATIONS, TwoSlopes, fit_slopes


def _make(kind: type[nn.Module]) -> nn.Module:
    return kind(0.1, 0.0) if kind is nn.Threshold else kind()


@pytest.mark.parametrize("kind", ACTIVATIONS, ids=lambda kind: kind.__name__)
def test_counterpart_has_degree_one(kind, assert_degree):
    counterpart = TwoSlopes(_make(kind))
    counterpart.calibrate(torch.randn(50))
    assert_degree(counterpart, torch.randn(3, 7))


@pytest.mark.parametrize("kind", ACTIVATIONS, ids=lambda kind: kind.__name__)
def test_slopes_are_numpy_least_squares(kind):
    x = torch.randn(400, dtype=torch.float64)
    original = _make(kind)
    y = original(x).numpy()
    z = x.numpy()
    basis = np.stack([np.maximum(z, 0), np.minimum(z, 0)], axis=1)
    expected = np.linalg.lstsq(basis, y, rcond=None)[0]
    np.testing.assert_allclose(fit_slopes(original, x).numpy(), expected, rtol=1e-9, atol=1e-12)


def test_gelu_stays_close_at_the_scale_of_its_data():
    x = torch.randn(2000) * 3
    counterpart = TwoSlopes(nn.GELU())
    counterpart.calibrate(x)
    error = (counterpart(x) - nn.GELU()(x)).square().mean() / nn.GELU()(x).square().mean()
    plain = (torch.relu(x) - nn.GELU()(x)).square().mean() / nn.GELU()(x).square().mean()
    assert error <= plain < 0.01


def test_a_side_never_seen_falls_back_to_normal_values():
    slopes = fit_slopes(nn.ELU(), torch.tensor([1.0, 2.0]))
    assert slopes[0].item() == 1.0
    assert 0 < slopes[1].item() < 1


def test_two_calls_are_calibrated_together():
    counterpart = TwoSlopes(nn.ReLU6())
    counterpart.calibrate(torch.tensor([3.0]))
    counterpart.calibrate(torch.tensor([12.0]))
    assert counterpart.slopes[0].item() == pytest.approx((1.0 + 0.5) / 2)
