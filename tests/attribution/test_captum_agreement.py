"""Captum is the oracle for our gradient methods on regular networks: biases, max-pool, GELU, several inputs."""

import captum.attr as ca
import numpy as np
import pytest
import torch

import axiograd
from support.captum_cases import EXACT, directly, images, pairs

RULES = ["gausslegendre", "riemann_left", "riemann_right", "riemann_middle"]
#: Captum's path methods round α and the step sizes to float32, with a relative error of up to 2⁻²⁴ ≈ 6e-8 each.
FLOAT32_STEPS = {"rtol": 1e-6, "atol": 1e-7}


@pytest.fixture(name="images")
def make_images():
    return images()


@pytest.fixture(name="pairs")
def make_pairs():
    return pairs()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (axiograd.InputXGradient, ca.InputXGradient),
        (axiograd.Saliency, ca.Saliency),
        (axiograd.Gradient, lambda m: ca.IntegratedGradients(m, multiply_by_inputs=False)),
    ],
)
def test_gradient_methods_equal_captum(ours, theirs, images, pairs):
    # Captum has no signed gradient: IG without the factor x and with both ends of the path at x is one.
    path = {"n_steps": 1} if ours is axiograd.Gradient else {}

    def at(x):
        return path | ({"baselines": x} if path else {})

    tolerance = FLOAT32_STEPS if path else EXACT
    model, x, y = images
    expected = directly(lambda: theirs(model), x.clone(), target=y, **at(x))
    torch.testing.assert_close(ours(model).attribute(x, y), expected, **tolerance)
    model, inputs, extra = pairs
    expected = directly(
        lambda: theirs(model), tuple(map(torch.clone, inputs)), target=1, additional_forward_args=extra, **at(inputs)
    )
    found = ours(model).attribute(inputs, 1, additional_forward_args=extra)
    torch.testing.assert_close(found, expected, **tolerance)


@pytest.mark.parametrize(("window", "stride"), [(3, 3), (3, 2), (5, 1), (40, 40)])
def test_occlusion_equals_captum(window, stride, images):
    model, x, y = images
    baseline = torch.randn_like(x)
    width = min(window, x.shape[-1])
    shapes, strides = (x.shape[1], width, width), (x.shape[1], min(stride, width), min(stride, width))
    theirs = directly(lambda: ca.Occlusion(model), x.clone(), shapes, strides=strides, baselines=baseline, target=y)
    found = axiograd.Occlusion(model, window, stride).attribute(x, y, baselines=baseline)
    # Captum sums up in float32, whatever the model's numbers are.
    torch.testing.assert_close(found.float(), theirs)


def test_occlusion_of_several_inputs_equals_captums_ablation(pairs):
    model, inputs, extra = pairs
    theirs = directly(
        lambda: ca.FeatureAblation(model), tuple(map(torch.clone, inputs)), target=1, additional_forward_args=extra
    )
    found = axiograd.Occlusion(model).attribute(inputs, 1, additional_forward_args=extra)
    torch.testing.assert_close(found, theirs, **EXACT)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("n_steps", [2, 7, 50])
def test_integrated_gradients_equals_captum(rule, n_steps, images, pairs):
    model, x, y = images
    baseline = torch.randn_like(x)
    theirs = directly(
        lambda: ca.IntegratedGradients(model), x.clone(), baseline, target=y, n_steps=n_steps, method=rule
    )
    ours = axiograd.IntegratedGradients(model, n_steps, rule).attribute(x, y, baselines=baseline)
    # A float32 α moves a point of the path across a kink of ReLU or max-pool only if it is within 6e-8 of it.
    torch.testing.assert_close(ours, theirs, **FLOAT32_STEPS)
    model, inputs, extra = pairs
    theirs = directly(
        lambda: ca.IntegratedGradients(model),
        tuple(map(torch.clone, inputs)),
        target=2,
        additional_forward_args=extra,
        n_steps=n_steps,
        method=rule,
    )
    ours = axiograd.IntegratedGradients(model, n_steps, rule).attribute(inputs, 2, additional_forward_args=extra)
    torch.testing.assert_close(ours, theirs, **FLOAT32_STEPS)


def test_trapezoid_is_numpys_rule_and_captums_weights_do_not_add_up_to_one():
    # F(x) = Σ x⁴: IGᵢ = xᵢ ∫ 4 (αxᵢ)³ dα, whose integrand numpy can sum up by itself.
    x, n = torch.tensor([[1.0, -2.0]], dtype=torch.float64), 5
    alphas = np.linspace(0, 1, n)
    values = x.numpy()[0, :, None] * 4 * (alphas * x.numpy()[0, :, None]) ** 3
    expected = torch.from_numpy(np.trapezoid(values, alphas, axis=1))[None]

    def quartic(x):
        return (x**4).sum(1)

    ours = axiograd.IntegratedGradients(quartic, n, "riemann_trapezoid").attribute(x)
    torch.testing.assert_close(ours, expected, **EXACT)

    linear = directly(
        lambda: ca.IntegratedGradients(lambda x: x.sum(1)), x.clone(), n_steps=n, method="riemann_trapezoid"
    )
    torch.testing.assert_close(linear, x * (n - 1) / n, **FLOAT32_STEPS)
    exact = axiograd.IntegratedGradients(lambda x: x.sum(1), n, "riemann_trapezoid").attribute(x)
    torch.testing.assert_close(exact, x, **EXACT)
