"""Contextual decomposition against sums, closed forms, numbers by hand, a plain loop in NumPy, and differences."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from axiograd.attribution import contextual_decomposition
from axiograd.errors import InputError


class Residual(nn.Module):
    """A branch beside the identity, written with functions and in place."""

    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        out = self.conv(x)
        out += x
        return torch.relu(out)


@pytest.fixture
def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.PixelUnshuffle(2),
        nn.Conv2d(4, 6, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        Residual(6),
        nn.Dropout(0.4),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(24, 5),
        nn.ReLU(),
        nn.Linear(5, 3),
    ).double()


@pytest.fixture
def images():
    return torch.randn(4, 1, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_the_parts_sum_to_the_output(network, images):
    corner = torch.zeros(1, 1, 16, 16, dtype=torch.bool)
    corner[..., :5, :7] = True
    region, rest = contextual_decomposition(network.eval(), images, corner)
    assert_close(region + rest, network(images))
    assert region.abs().max() > 0.01
    # In training, dropout draws the same for both parts.
    torch.manual_seed(2)
    region, rest = contextual_decomposition(network.train(), images, corner)
    torch.manual_seed(2)
    assert_close(region + rest, network(images))


class InPlace(nn.Module):
    """What is changed in place is used again, under the name that it had."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.relu = nn.Linear(6, 4), nn.Linear(4, 4), nn.ReLU(inplace=True)

    def forward(self, x):
        h = self.first(x)
        branch = self.second(self.relu(h))
        branch.relu_()
        h.add_(branch, alpha=2)
        return h


def test_changes_in_place_reach_every_name():
    torch.manual_seed(0)
    model, x = InPlace().double(), torch.randn(5, 6, dtype=torch.float64)
    found = contextual_decomposition(model, x, torch.arange(6) < 3)
    assert_close(found.region + found.rest, model(x))


def test_the_whole_input_has_it_all_and_nothing_has_nothing(network, images):
    network.eval()
    for whole, part in ((True, 0), (False, 1)):
        found = contextual_decomposition(network, images, torch.full((1, 1, 1, 1), whole))
        assert_close(found[part], network(images))
        assert_close(found[1 - part], torch.zeros(4, 3, dtype=torch.float64), atol=1e-12, rtol=0)


def test_a_linear_layer_by_its_formula():
    torch.manual_seed(3)
    layer = nn.Linear(6, 4).double()
    x = torch.randn(5, 6, dtype=torch.float64)
    mask = torch.tensor([1, 1, 0, 0, 1, 0])
    w, b = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    inside, outside = (x * mask).numpy() @ w.T, (x * (1 - mask)).numpy() @ w.T
    share = abs(inside) / (abs(inside) + abs(outside))
    region, rest = contextual_decomposition(layer, x, mask)
    np.testing.assert_allclose(region.detach(), inside + share * b, rtol=1e-12)
    np.testing.assert_allclose(rest.detach(), outside + (1 - share) * b, rtol=1e-12)


def test_without_biases_only_the_nonlinearities_divide():
    linear = nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.Flatten(), nn.Linear(8, 3, bias=False)).double()
    x, mask = torch.randn(2, 1, 4, 4, dtype=torch.float64), torch.rand(1, 1, 4, 4) > 0.5
    assert_close(contextual_decomposition(linear, x, mask).region, linear(mask * x))


def test_a_relu_and_a_maximum_by_hand():
    x = torch.tensor([[[3.0, -5.0, 2.0, 4.0]]])
    inside = torch.tensor([[[True, False, False, True]]])
    region, rest = contextual_decomposition(nn.MaxPool1d(2), x, inside)
    assert region.tolist() == [[[3.0, 4.0]]]
    assert rest.tolist() == [[[0.0, 0.0]]]
    # β = (−1, 2), γ = (3, −5): ReLU(β) = (0, 2), ReLU(β + γ) = (2, 0).
    weights = nn.Linear(2, 2, bias=False)
    weights.load_state_dict({"weight": torch.tensor([[-1.0, 3.0], [2.0, -5.0]])})
    region, rest = contextual_decomposition(nn.Sequential(weights, nn.ReLU()), torch.ones(1, 2), torch.tensor([1, 0]))
    assert region.tolist() == [[0.0, 2.0]]
    assert rest.tolist() == [[2.0, -2.0]]


def test_the_gradient_by_differences(images):
    torch.manual_seed(4)
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3, stride=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 2)
    ).double()
    mask = torch.rand(1, 1, 16, 16) > 0.5

    def prior(*parameters):
        names = [name for name, _ in model.named_parameters()]
        given = dict(zip(names, parameters, strict=True))

        def with_them(x):
            return torch.func.functional_call(model, given, (x,))

        return contextual_decomposition(with_them, images[:2], mask).region.abs().sum(1).mean()

    assert torch.autograd.gradcheck(prior, tuple(model.parameters()))


def test_a_bias_that_nobody_has_a_part_in_trains():
    layer = nn.Linear(2, 2)
    region, rest = contextual_decomposition(layer, torch.zeros(1, 2), torch.tensor([True, False]))
    (region.sum() + rest.sum()).backward()
    assert layer.weight.grad.isfinite().all()
    assert layer.bias.grad.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.Sigmoid()), "sigmoid"),
        (nn.BatchNorm1d(2), "batch_norm"),
        (lambda x: x + 1.0, "a sum with float"),
        (lambda x: x * x, "mul"),
        (lambda x: torch.cat([x, x]), "cat"),
        (lambda x: (x,), "one tensor, got tuple"),
    ],
)
def test_what_cannot_be_decomposed_is_refused_by_name(model, name):
    with pytest.raises(InputError, match=name):
        contextual_decomposition(model, torch.ones(3, 2), torch.tensor([True, False]))


def test_a_region_that_does_not_fit_is_refused():
    with pytest.raises(InputError, match=r"\[3\] does not fit inputs of shape \[1, 2\]"):
        contextual_decomposition(nn.Linear(2, 1), torch.ones(1, 2), torch.ones(3))
