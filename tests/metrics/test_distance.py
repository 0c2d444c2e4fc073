"""Distances against the paper's formula by hand, attributions one by one, and each method's own account."""

import math

import pytest
import torch

from axiograd import InputXGradient, IntegratedGradients
from axiograd.errors import ConfigurationError, InputError, NotFiniteError, TargetError
from axiograd.metrics import completeness_gap, integrated_gradients_convergence, mean_absolute_relative_difference


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


def test_wrong_arguments_of_the_difference_are_named():
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


def test_a_model_that_ignores_its_input_prints_no_percentages():
    found = integrated_gradients_convergence(lambda x: 0 * x.sum(1) + 1, torch.ones(2, 3), steps=(1, 2))
    assert found.scale == 0
    assert "1 steps: 0.000e+00" in str(found)
    assert "%" not in str(found)


def cubes(x, y=None):
    return ((x**3).sum(1) + (0 if y is None else (x * y).sum(1))).unsqueeze(1).repeat(1, 2) * torch.tensor([1.0, -2.0])


@pytest.mark.parametrize("method", [InputXGradient(cubes), IntegratedGradients(cubes, n_steps=2)])
def test_agrees_with_the_methods_own_account(method):
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    expected = method.completeness(x, 1)
    found = completeness_gap(cubes, x, method.attribute(x, 1), 1)
    assert torch.allclose(found.delta, expected.delta, atol=1e-5)
    assert found.scale == pytest.approx(expected.scale)
    assert torch.allclose(found.relative, expected.relative, atol=1e-5)
    assert found.baseline == "zero"


def test_several_inputs_and_a_baseline():
    x, y = torch.randn(2, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ig = IntegratedGradients(cubes, n_steps=4)
    attributions = ig.attribute((x, y), 0, baselines=(0.5, 1.0))
    gap = completeness_gap(cubes, (x, y), attributions, 0, baselines=(0.5, 1.0))
    assert float(gap.relative.max()) < 1e-12
    assert gap.baseline == "given"
    with pytest.raises(InputError, match="expected the inputs' own shapes"):
        completeness_gap(cubes, (x, y), attributions[:1], 0)
    with pytest.raises(TargetError, match="one scalar per sample"):
        completeness_gap(cubes, (x, y), attributions, "all")
