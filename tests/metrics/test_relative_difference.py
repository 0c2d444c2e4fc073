"""The paper's formula by hand, and what happens near zero."""

import math

import pytest
import torch

from axiograd import InputXGradient, IntegratedGradients
from axiograd.errors import ConfigurationError, InputError, NotFiniteError
from axiograd.metrics import mean_absolute_relative_difference


def test_the_formula():
    generator = torch.Generator().manual_seed(0)
    a, ig = torch.randn(2, 5, 2, 3, dtype=torch.float64, generator=generator)
    total = 0.0
    for sample in range(5):
        for i in range(6):
            reference = float(ig[sample].flatten()[i])
            total += abs(reference - float(a[sample].flatten()[i])) / abs(reference)
    found = mean_absolute_relative_difference(a, ig, threshold=0.0)
    assert found.value == pytest.approx(total / 30)
    assert found.plain == pytest.approx(total / 30)
    assert found.excluded_fraction == 0
    assert found.excluded_difference == 0


def test_near_zero_components_are_left_out_and_reported():
    ig = torch.tensor([[1.0, 1.0, 1e-8, 0.0], [2.0, 2.0, 2.0, 2.0]], dtype=torch.float64)
    a = torch.tensor([[1.1, 1.0, 5e-8, 0.1], [2.0, 2.0, 3.0, 2.0]], dtype=torch.float64)
    found = mean_absolute_relative_difference(a, ig, threshold=1e-3)
    assert found.value == pytest.approx((0.05 + 0.125) / 2)
    assert found.excluded_fraction == pytest.approx(2 / 8)
    assert found.excluded_difference == pytest.approx((4e-8 + 0.1) / 2 / 1.25)
    assert found.plain == pytest.approx((0.1 + 0 + 4 + 0 + 0 + 0.5 + 0) / 7)
    assert "25.00 % of components" in str(found)


def test_a_sample_without_any_attribution_has_no_difference():
    ig = torch.tensor([[0.0, 0.0], [1.0, 2.0]])
    found = mean_absolute_relative_difference(torch.tensor([[1.0, 1.0], [1.0, 3.0]]), ig)
    assert found.value == pytest.approx(0.25)
    assert math.isnan(float(found.per_sample[0]))
    assert found.excluded_fraction == pytest.approx(0.5)
    assert math.isnan(mean_absolute_relative_difference(torch.ones(1, 2), torch.zeros(1, 2)).value)


def test_wrong_arguments_are_named():
    with pytest.raises(InputError, match=r"\(2, 3\) against \(3, 2\)"):
        mean_absolute_relative_difference(torch.zeros(2, 3), torch.zeros(3, 2))
    with pytest.raises(NotFiniteError, match="sample 1"):
        mean_absolute_relative_difference(torch.ones(2, 1), torch.tensor([[1.0], [torch.nan]]))
    with pytest.raises(ConfigurationError, match="threshold=-1"):
        mean_absolute_relative_difference(torch.ones(1, 1), torch.ones(1, 1), threshold=-1)


@pytest.mark.parametrize(("bias", "lowest", "highest"), [(False, 0.0, 1e-9), (True, 0.1, 100.0)])
def test_without_biases_input_x_gradient_is_integrated_gradients(bias, lowest, highest):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(5, 16, bias=bias), torch.nn.ReLU(), torch.nn.Linear(16, 1, bias=bias)
    ).double()
    x = torch.randn(8, 5, dtype=torch.float64)
    a, ig = (method(model).attribute(x) for method in (InputXGradient, IntegratedGradients))
    assert lowest <= mean_absolute_relative_difference(a, ig).value < highest
