"""Robust attribution training against Captum, completeness, a grid of all corners, and finite differences."""

import itertools

import pytest
import torch
from captum.attr import IntegratedGradients as Captum
from torch import nn
from torch.nn import functional as F

from axiograd.errors import ConfigurationError, InputError
from axiograd.training import Recipe, RobustAttribution, fit

EPSILON = 0.2
Y = torch.tensor([0, 2, 1, 1, 0])


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16, bias=False), nn.ReLU(), nn.Linear(16, 3, bias=False)).double()


@pytest.fixture
def x():
    return torch.rand(5, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def captum_of_the_loss(model, x, moved, steps=2000):
    each = Captum(lambda z, y: F.cross_entropy(model(z), y, reduction="none"))
    return each.attribute(moved, baselines=x, additional_forward_args=Y, n_steps=steps, method="riemann_middle")


def test_ig_norm_is_captums_and_its_sum_the_change_of_the_loss(model, x):
    objective = RobustAttribution(F.cross_entropy, EPSILON, integrated_gradients=0.7, n_steps=500, steps=2)
    terms = objective(model, x, Y)
    theirs = captum_of_the_loss(model, x, terms.moved)
    # Gates switch along the line: a midpoint rule of n steps is off by 1/n of such a jump.
    torch.testing.assert_close(terms.change, 0.7 * theirs.abs().sum(1).mean(), rtol=2e-3, atol=0)
    losses = [F.cross_entropy(model(z), Y, reduction="none") for z in (x, terms.moved)]
    torch.testing.assert_close(theirs.sum(1), losses[1] - losses[0], rtol=2e-3, atol=1e-5)
    torch.testing.assert_close(terms.total, losses[0].mean() + terms.change)


def test_x_gradient_is_captums_integrated_gradients_at_both_ends(model, x):
    terms = RobustAttribution(F.cross_entropy, EPSILON, x_gradient=0.5)(model, x, Y)
    ends = [Captum(model).attribute(z, target=Y, n_steps=50) for z in (x, terms.moved)]
    torch.testing.assert_close(terms.change, 0.5 * (ends[1] - ends[0]).abs().sum(1).mean())


def test_loss_alone_is_adversarial_training_and_terms_add_up(model, x):
    adversarial = RobustAttribution(F.cross_entropy, EPSILON, loss=1.0)(model, x, Y)
    torch.testing.assert_close(adversarial.total, F.cross_entropy(model(adversarial.moved), Y))
    both = RobustAttribution(F.cross_entropy, EPSILON, loss=1.0, integrated_gradients=0.1, n_steps=500)(model, x, Y)
    norm = captum_of_the_loss(model, x, both.moved).abs().sum(1).mean()
    torch.testing.assert_close(both.total, F.cross_entropy(model(both.moved), Y) + 0.1 * norm, rtol=1e-3, atol=0)


@pytest.mark.parametrize("weights", [{"loss": 1.0}, {"integrated_gradients": 1.0}, {"x_gradient": 1.0}])
def test_the_search_stays_in_the_ball_and_beats_a_random_one(model, x, weights):
    def changes(steps):
        torch.manual_seed(3)
        objective = RobustAttribution(F.cross_entropy, EPSILON, steps=steps, n_steps=20, **weights)
        terms = [objective(model, x, Y) for _ in range(10)]
        for one in terms:
            assert (one.moved - x).abs().max() <= EPSILON + 1e-12
            assert 0 <= one.moved.min() <= one.moved.max() <= 1
        return torch.stack([one.change for one in terms]).mean()

    assert changes(5) > 1.2 * changes(0)


def test_the_search_finds_nearly_the_worst_corner(model, x):
    signs = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=4)), dtype=torch.float64)
    corners = x + EPSILON * signs[:, None]
    worst = torch.stack([F.cross_entropy(model(z), Y, reduction="none") for z in corners]).amax(0)
    moved = RobustAttribution(F.cross_entropy, EPSILON, loss=1.0, steps=10, bounds=None).search(model, x, Y)
    found = F.cross_entropy(model(moved), Y, reduction="none")
    torch.testing.assert_close(found, worst, rtol=0.02, atol=0)


@pytest.mark.parametrize(
    "weights", [{"x_gradient": 0.5}, {"integrated_gradients": 0.5}, {"loss": 0.5, "x_gradient": 1.0}]
)
def test_gradients_of_parameters_are_differences(model, x, weights, monkeypatch):
    objective = RobustAttribution(F.cross_entropy, EPSILON, n_steps=7, **weights)
    moved = objective.search(model, x, Y)
    assert all(p.grad is None for p in model.parameters())
    monkeypatch.setattr(objective, "search", lambda *_: moved)
    objective(model, x, Y).total.backward()
    for parameter in model.parameters():
        for place in ((0, 0), (2, 3)):
            values = []
            for step in (1e-6, -1e-6):
                with torch.no_grad():
                    parameter[place] += step
                values.append(objective(model, x, Y).total.item())
                with torch.no_grad():
                    parameter[place] -= step
            assert abs((values[0] - values[1]) / 2e-6 - parameter.grad[place].item()) < 1e-6


def test_statistics_see_the_data_and_not_the_search():
    torch.manual_seed(0)
    seen = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    x = torch.rand(5, 4)
    before = {name: value.clone() for name, value in seen.state_dict().items()}
    RobustAttribution(F.cross_entropy, EPSILON, loss=1.0).search(seen, x, Y)
    for name, value in seen.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_fit_lowers_the_change_and_keeps_the_task():
    torch.manual_seed(0)
    x = torch.rand(256, 6)
    y = torch.arange(256) % 2
    # Apart by more than the ball: what is asked for can be had.
    x[:, 0], x[:, 1] = torch.where(y == 0, 0.9, 0.1), torch.where(y == 0, 0.1, 0.9)
    judged = RobustAttribution(F.cross_entropy, EPSILON, x_gradient=1.0)

    def trained(objective):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(6, 32, bias=False), nn.ReLU(), nn.Linear(32, 2, bias=False))
        fit(model, (x, y), loss=objective, recipe=Recipe(epochs=30, lr=1e-2), accelerator="cpu")
        terms = judged(model, x, y)
        return terms.change, (terms.outputs.argmax(1) == y).float().mean()

    plain, _ = trained(F.cross_entropy)
    robust, right = trained(RobustAttribution(F.cross_entropy, EPSILON, x_gradient=1.0))
    assert robust < 0.8 * plain
    assert right > 0.95


def test_what_it_refuses(model, x):
    with pytest.raises(ConfigurationError, match="epsilon=0"):
        RobustAttribution(F.cross_entropy, 0, loss=1.0)
    with pytest.raises(ConfigurationError, match=r"x_gradient=0.0, integrated_gradients=0.0, loss=0.0"):
        RobustAttribution(F.cross_entropy, 0.1)
    with pytest.raises(ConfigurationError, match="steps=-1"):
        RobustAttribution(F.cross_entropy, 0.1, loss=1.0, steps=-1)
    with pytest.raises(InputError, match="got mask"):
        RobustAttribution(F.cross_entropy, 0.1, loss=1.0)(model, x, Y, mask=x)
