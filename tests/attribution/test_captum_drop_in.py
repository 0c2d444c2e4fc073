"""Our classes in the place of Captum's: the calls that its users and its own tests make, with Captum's answers."""

import captum.attr as ca
import pytest
import torch
from torch import nn

import axiograd
from support.captum_cases import directly, pairs

#: Captum rounds α and step sizes to float32.
FLOAT32_STEPS = {"rtol": 1e-6, "atol": 1e-7}
RULES = ["gausslegendre", "riemann_left", "riemann_right", "riemann_middle", "riemann_trapezoid"]


class Layers(nn.Module):
    """One input or two of the same shape, a class or several."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x, z=None):
        return self.second(self.first(x if z is None else x + z).relu())


def weighted(x, z, row, power=1):
    """An additional argument with a row per sample, and one that is a number."""
    return torch.relu(x[:, 0] * row[:, 0] - z[:, 1]) ** power + (x * row).sum(1)


def listed(x, z, numbers, power):
    """A list that is no tensor: it stays as it is."""
    return torch.relu(x[:, 0] * numbers[0] ** power - z[:, 1] * numbers[1])


def scalars(x, z):
    """Inputs that are one number per sample, without a dimension for features."""
    return torch.relu(torch.relu(x) - 1 - torch.relu(z))


def flat(x):
    return 1 - torch.relu(1 - x)


def case(name):
    """Model, inputs, baselines, target and additional arguments."""
    torch.manual_seed(1)
    x, z, row = (torch.randn(4, 3, dtype=torch.double) for _ in range(3))
    one, two = torch.tensor([3.14, 2.23, -1.41]).double(), torch.tensor([1.17, 0.57, 2.31]).double()
    return {
        "one number": (flat, (one,), (torch.zeros(3).double(),), None, None),
        "two numbers": (scalars, (one, two), (torch.zeros(3).double(), torch.zeros(3).double()), None, None),
        "number and tensor": (scalars, (one, two), (0.0, torch.full((3,), 0.1).double()), None, None),
        "rows beside": (weighted, (x, z), (torch.zeros(1, 3).double(), 0.25), None, (row, 2)),
        "a list beside": (listed, (x, z), (0, 0.00001), None, ([2, 3], 1)),
        "batch": (Layers().double(), (x,), (torch.zeros(4, 3).double(),), 0, None),
        "two inputs": (Layers().double(), (x, z), None, [1, 0, 1, 1], None),
        "nothing given": (Layers().double(), x, None, torch.tensor([1, 0, 1, 1]), None),
    }[name]


CASES = ["one number", "two numbers", "number and tensor", "rows beside", "a list beside", "batch", "two inputs"]


def copied(inputs):
    return tuple(x.clone() for x in inputs) if isinstance(inputs, tuple) else inputs.clone()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", [*CASES, "nothing given"])
def test_baseline_in_second_place_and_target_by_name(name, rule):
    model, inputs, baselines, target, further = case(name)
    theirs, ours = ca.IntegratedGradients(model), axiograd.IntegratedGradients(model)
    call = {"target": target, "additional_forward_args": further, "n_steps": 20, "method": rule}
    expected = directly(lambda: theirs, copied(inputs), baselines, **call)
    if rule == "riemann_trapezoid":  # Captum's 20 weights add up to 19/20, ours to 1
        scaled = [20 / 19 * e for e in (expected if isinstance(expected, tuple) else (expected,))]
        expected = tuple(scaled) if isinstance(expected, tuple) else scaled[0]
    for size in (None, 5):
        found, delta = ours.attribute(
            inputs, baselines, **call, internal_batch_size=size, return_convergence_delta=True
        )
        torch.testing.assert_close(found, expected, **FLOAT32_STEPS)
        start = 0 if baselines is None else baselines
        outside = ours.compute_convergence_delta(found, start, inputs, target=target, additional_forward_args=further)
        assert torch.equal(delta, outside)
        theirs_outside = theirs.compute_convergence_delta(found, baselines, inputs, target, further)
        torch.testing.assert_close(outside, theirs_outside, **FLOAT32_STEPS)


@pytest.mark.parametrize("kind", ["smoothgrad", "smoothgrad_sq", "vargrad"])
@pytest.mark.parametrize("name", CASES)
def test_noise_tunnels_go_around(name, kind):
    model, inputs, baselines, target, further = case(name)
    noise = {"nt_type": kind, "nt_samples": 5, "stdevs": 0.1, "target": target, "additional_forward_args": further}
    steps = {"baselines": baselines, "n_steps": 20, "method": "riemann_middle"}
    kinds = [("IntegratedGradients", steps), ("InputXGradient", {}), ("Saliency", {})]
    for cls, settings in kinds:
        for size in (None, 1, 2):
            found = {}
            for library in (ca, axiograd):
                torch.manual_seed(2)
                tunnel = ca.NoiseTunnel(getattr(library, cls)(model))
                found[library] = directly(
                    lambda: tunnel,  # noqa: B023 - called at once
                    copied(inputs),
                    nt_samples_batch_size=size,
                    **noise,
                    **settings,
                )
            torch.testing.assert_close(found[axiograd], found[ca], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("cls", ["InputXGradient", "Saliency"])
@pytest.mark.parametrize("name", [*CASES, "nothing given"])
def test_one_gradient(cls, name):
    model, inputs, _, target, further = case(name)
    ours, theirs = getattr(axiograd, cls)(model), getattr(ca, cls)(model)
    assert ours.multiplies_by_inputs == theirs.multiplies_by_inputs
    expected = directly(lambda: theirs, copied(inputs), target, additional_forward_args=further)
    found = ours.attribute(inputs, target, additional_forward_args=further)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
    delta = ours.compute_convergence_delta(found, 0.5, inputs, target, further)
    starts = 0.5 if isinstance(inputs, torch.Tensor) else (0.5,) * len(inputs)
    torch.testing.assert_close(delta, theirs.compute_convergence_delta(found, starts, inputs, target, further))


def test_without_the_factor_there_is_a_delta_as_there():
    model, inputs, baselines, target, _ = case("two numbers")
    call = {"target": target, "n_steps": 50, "return_convergence_delta": True}
    expected, delta = ca.IntegratedGradients(model, False).attribute(copied(inputs), baselines, **call)
    found, ours = axiograd.IntegratedGradients(model, multiply_by_inputs=False).attribute(inputs, baselines, **call)
    torch.testing.assert_close(found, expected, **FLOAT32_STEPS)
    torch.testing.assert_close(ours, delta, **FLOAT32_STEPS)


def test_a_gradient_that_was_there_stays():
    x = torch.randn(4, 3, requires_grad=True)
    x.grad = torch.randn(4, 3)
    before = x.grad.clone()
    for cls in (axiograd.Saliency, axiograd.InputXGradient, axiograd.IntegratedGradients):
        cls(Layers()).attribute(x, target=1)
    assert torch.equal(x.grad, before)
    assert x.requires_grad


def test_the_delta_of_token_ids():
    torch.manual_seed(0)
    words = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(20, 3)).double()
    ids, start = torch.randint(9, (2, 5)), torch.full((2, 5), 7)
    found = torch.randn(2, 5, 4).double()
    ours = axiograd.IntegratedGradients(words, layer="0").compute_convergence_delta(found, start, ids, 1)
    torch.testing.assert_close(ours, found.sum((1, 2)) - (words(ids) - words(start))[:, 1].detach())


def test_futures_are_not_there_either():
    model, inputs, extra = pairs()
    for library in (ca, axiograd):
        for cls in ("IntegratedGradients", "InputXGradient", "Saliency"):
            with pytest.raises(NotImplementedError):
                getattr(library, cls)(model).attribute_future()
    with pytest.raises(NotImplementedError):
        axiograd.XGradient(model).attribute_future(inputs, additional_forward_args=extra)


def test_a_target_given_twice_is_refused():
    with pytest.raises(TypeError, match="multiple values for keyword argument 'target'"):
        axiograd.Saliency(Layers()).attribute(torch.randn(4, 3), 0, target=1)
