"""What Captum's users are used to: its order of arguments, multiply_by_inputs, and NoiseTunnel around our methods."""

import captum.attr as ca
import pytest
import torch
from torch import nn

import axiograd
from axiograd.errors import ConfigurationError, TargetError
from support.captum_cases import EXACT, directly, pairs

#: Captum rounds α and step sizes to float32.
FLOAT32_STEPS = {"rtol": 1e-6, "atol": 1e-7}


@pytest.fixture(name="regular")
def make_regular():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 3)).double()


@pytest.fixture(name="x_dnn")
def make_x_dnn():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16, bias=False), nn.ReLU(), nn.Linear(16, 3, bias=False)).double()


@pytest.fixture(name="batch")
def make_batch():
    torch.manual_seed(1)
    return torch.randn(8, 6, dtype=torch.double), torch.randn(8, 6, dtype=torch.double), torch.randint(3, (8,))


@pytest.mark.parametrize("multiply", [True, False])
def test_integrated_gradients_in_captums_order(multiply, regular, batch):
    x, baseline, y = batch
    theirs = ca.IntegratedGradients(regular, multiply)
    ours = axiograd.IntegratedGradients(regular, multiply_by_inputs=multiply)
    for given in [(baseline, y, None, 20), (0.5, y, None, 20, "riemann_middle"), (0, 2, None, 20), (None, 1, None, 20)]:
        expected = directly(lambda: theirs, x.clone(), *given)
        torch.testing.assert_close(ours.attribute(x, *given), expected, **FLOAT32_STEPS)
    expected = directly(lambda: theirs, x.clone(), baseline, target=y, n_steps=128)
    torch.testing.assert_close(ours.attribute(x, baseline, target=y), expected, **FLOAT32_STEPS)


def test_several_inputs_in_captums_order():
    model, inputs, extra = pairs()
    baselines = tuple(torch.randn_like(x) for x in inputs)
    expected = directly(lambda: ca.IntegratedGradients(model), tuple(map(torch.clone, inputs)), baselines, 1, extra, 20)
    found = axiograd.IntegratedGradients(model).attribute(inputs, baselines, 1, extra, 20)
    torch.testing.assert_close(found, expected, **FLOAT32_STEPS)
    expected = directly(lambda: ca.InputXGradient(model), tuple(map(torch.clone, inputs)), 1, extra)
    torch.testing.assert_close(axiograd.InputXGradient(model).attribute(inputs, 1, extra), expected, **EXACT)


def test_our_order_stays(x_dnn, batch):
    x, baseline, y = batch
    method = axiograd.XGradient(x_dnn)
    torch.testing.assert_close(method.attribute(x, 2), method.attribute(x, target=2), **EXACT)
    torch.testing.assert_close(method.attribute(x, 0, 2), method.attribute(x, target=2), **EXACT)  # from zero, class 2
    with pytest.raises(axiograd.AxiogradError, match="one baseline only"):
        method.attribute(x, baseline, y)
    with pytest.raises(TargetError):  # a regression's truth is no baseline, though it would broadcast
        axiograd.IntegratedGradients(x_dnn).attribute(x[:6], torch.randn(6, dtype=torch.double))
    with pytest.raises(TypeError, match="multiple values for keyword argument 'target'"):
        method.attribute(x, 0, 2, target=2)
    with pytest.raises(ConfigurationError, match="got 5 arguments"):
        method.attribute(x, 0, 2, None, False, 7)


def test_without_the_factor(regular, batch):
    x, baseline, y = batch
    ours = axiograd.ExpectedGradients(regular, baseline[:1], 500, multiply_by_inputs=False)
    average = ca.IntegratedGradients(regular, False).attribute(x, baseline[:1].expand_as(x), y, n_steps=64).detach()
    draws = torch.stack([ours.attribute(x, y) for _ in range(10)])
    error = (draws.var(0) / 10).sqrt()
    assert bool(((draws.mean(0) - average).abs() <= 6 * error + 1e-9).all())
    for method in (ours, axiograd.IntegratedGradients(regular, multiply_by_inputs=False)):
        with pytest.raises(ConfigurationError, match="do not add up"):
            method.completeness(x, y)
        assert "multiply_by_inputs=False" in repr(method)
    with pytest.raises(ConfigurationError, match="multiply_by_inputs=False"):
        axiograd.IntegratedGradients(regular, False)


@pytest.mark.parametrize("kind", ["smoothgrad", "smoothgrad_sq", "vargrad"])
def test_captums_noise_tunnel_goes_around_ours(kind, x_dnn, regular, batch):
    x, _, y = batch
    noise = {"nt_type": kind, "nt_samples": 7, "nt_samples_batch_size": 3, "stdevs": 0.3, "target": y}
    pairs_of_methods = [
        (axiograd.XGradient(x_dnn), ca.InputXGradient(x_dnn), {}),
        (axiograd.Saliency(regular), ca.Saliency(regular), {}),
        (axiograd.IntegratedGradients(regular, 30), ca.IntegratedGradients(regular), {"n_steps": 30}),
    ]
    for ours, theirs, steps in pairs_of_methods:
        torch.manual_seed(3)
        expected = directly(lambda: ca.NoiseTunnel(theirs), x.clone(), **noise, **steps)  # noqa: B023 - called at once
        torch.manual_seed(3)
        found, delta = ca.NoiseTunnel(ours).attribute(x, **noise, return_convergence_delta=True)
        torch.testing.assert_close(found, expected, **FLOAT32_STEPS)
        assert delta.shape == (7 * 8,)
        assert ca.NoiseTunnel(ours).multiplies_by_inputs == theirs.multiplies_by_inputs
    assert bool(found.abs().sum() > 0)
