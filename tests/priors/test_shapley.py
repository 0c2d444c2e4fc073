"""Against Shapley values by all subsets, in float64."""

from itertools import combinations
from math import comb, factorial

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from axiograd import AttributionLoss, XGradient
from axiograd.errors import ConfigurationError, InputError
from axiograd.layers import CarriedLinear
from axiograd.priors import L1, Shapley
from axiograd.priors.shapley import draw_subset, shapley_error_bound, subset_gap
from axiograd.training.config import parse_config, train_from

N = 6
SUBSETS = torch.tensor([[float(i >> feature & 1) for feature in range(N)] for i in range(2**N)], dtype=torch.float64)
PROPER = [s for s in SUBSETS if 0 < s.sum() < N]


def network(seed: int = 0, outputs: int = 1) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(N, 12, bias=False), nn.ReLU(), CarriedLinear(12, 8), nn.ReLU(), nn.Linear(8, outputs, bias=False)
    ).double()


def rows(n: int = 5) -> Tensor:
    return torch.randn(n, N, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def shapley_values(model: nn.Module, x: Tensor) -> Tensor:
    """φᵢ = Σ_S |S|!·(n − |S| − 1)!/n!·(F(x_{S∪i}) − F(x_S)), straight from its definition."""
    values = torch.zeros_like(x)
    for i in range(N):
        others = [j for j in range(N) if j != i]
        for size in range(N):
            for chosen in combinations(others, size):
                inside = torch.zeros(N, dtype=x.dtype)
                inside[list(chosen)] = 1
                before = model(x * inside)[:, 0]
                inside[i] = 1
                weight = factorial(size) * factorial(N - size - 1) / factorial(N)
                values[:, i] += weight * (model(x * inside)[:, 0] - before)
    return values.detach()


def kernel(subset: Tensor) -> float:
    """The probability of a subset: 1/(s·(n − s)) for its size, all of a size alike."""
    n, s = len(subset), int(subset.sum())
    total = sum(1 / (k * (n - k)) for k in range(1, n))
    return 1 / (s * (n - s)) / total / comb(n, s)


def expected(attributions: Tensor, x: Tensor, model: nn.Module) -> Tensor:
    """E gap² of each row over all subsets."""
    gaps = [subset_gap(attributions, x, lambda x: model(x)[:, 0], s.expand_as(x)).square() * kernel(s) for s in PROPER]
    return torch.stack(gaps).sum(0)


def test_value_is_the_squared_gap() -> None:
    model, x = network(), rows()
    a = torch.randn(5, N, dtype=torch.float64)
    subset = torch.tensor([1, 0, 1, 0, 0, 1]).expand(5, N)
    gaps = [
        (model(torch.where(s == 1, row, 0.0))[0] - sum(b for b, inside in zip(one, s, strict=True) if inside)).item()
        for row, one, s in zip(x, a, subset, strict=True)
    ]
    value = Shapley()(a, inputs=x, score=lambda x: model(x)[:, 0], subset=subset)
    assert value.item() == pytest.approx(sum(gap**2 for gap in gaps) / 5, rel=1e-12)


def test_shapley_values_have_the_smallest_expectation_of_all_that_add_up() -> None:
    model, x = network(), rows()
    values = shapley_values(model, x).requires_grad_()
    torch.testing.assert_close(values.sum(1), model(x)[:, 0])
    (gradient,) = torch.autograd.grad(expected(values, x, model).sum(), values)
    # Along all directions that keep the sum there is no descent, and the objective is convex.
    torch.testing.assert_close(gradient, gradient.mean(1, keepdim=True).expand_as(gradient), rtol=0, atol=1e-12)
    assert (expected(XGradient(model).attribute(x), x, model) > expected(values, x, model)).all()


@pytest.mark.parametrize("seed", range(5))
def test_gaps_bound_the_distance_to_shapley_values(seed: int) -> None:
    model, x = network(seed), rows(40)
    a = XGradient(model).attribute(x)
    error = (shapley_values(model, x) - a).square().mean(1).sqrt()
    bound = shapley_error_bound(expected(a, x, model).sqrt()[None], N)
    assert (error <= bound).all()
    assert error.max() > 0.01


def test_the_bound_is_attained_by_additive_functions() -> None:
    """Of F = Σ cᵢxᵢ and attributions that are off by e with Σe = 0, the gap is −Σ_S e."""
    linear, x = nn.Linear(N, 1, bias=False).double(), rows()
    errors = torch.randn(5, N, dtype=torch.float64)
    errors -= errors.mean(1, keepdim=True)
    gaps = expected(x * linear.weight + errors, x, linear).sqrt()
    torch.testing.assert_close(shapley_error_bound(gaps[None], N), errors.square().mean(1).sqrt())


def test_subsets_are_drawn_by_the_kernel() -> None:
    torch.manual_seed(0)
    drawn = draw_subset(torch.zeros(40_000, 4, dtype=torch.float64))
    found = torch.stack([(drawn == s[:4]).all(1).double().mean() for s in SUBSETS[1:15]])
    wanted = torch.tensor([kernel(s[:4]) for s in SUBSETS[1:15]], dtype=torch.float64)
    assert ((found - wanted).abs() < 4 * (wanted / 40_000).sqrt()).all()
    assert draw_subset(torch.zeros(3, 2, 2)).shape == (3, 2, 2)


def test_gradient_agrees_with_differences() -> None:
    """By all weights, through the attributions and through the second pass."""
    model, x = network(), rows()
    loss = AttributionLoss(mse_loss, Shapley(), weight=3.0)
    target, subset = torch.zeros(5, 1, dtype=torch.float64), torch.tensor([1, 1, 0, 0, 1, 0]).expand(5, N)
    loss(model, x, target, subset=subset).total.backward()
    values = nn.utils.parameters_to_vector(model.parameters()).detach()
    gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
    for _ in range(5):
        direction = torch.randn_like(values)
        ends = []
        for step in (1e-6, -1e-6):
            nn.utils.vector_to_parameters(values + step * direction, model.parameters())
            ends.append(loss(model, x, target, subset=subset).total.item())
        assert (gradient @ direction).item() == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6)


def test_additive_models_have_none() -> None:
    linear, x = nn.Linear(N, 1, bias=False).double(), rows()
    assert AttributionLoss(mse_loss, Shapley())(linear, x, torch.zeros(5, 1).double()).prior < 1e-28


@pytest.mark.parametrize("outputs", ["target", "all", "random", "residual"])
def test_score_is_what_is_attributed(outputs) -> None:
    """On an additive model there is a gap as soon as the score is that of another output."""
    linear, x, target = nn.Linear(N, 3, bias=False).double(), rows(), torch.tensor([0, 1, 2, 1, 0])
    loss = AttributionLoss(nn.functional.cross_entropy, 2.0 * Shapley() + 0.0 * L1(), outputs=outputs)
    assert loss(linear, x, target).prior < 1e-28
    terms = loss(network(outputs=3), x, target)
    assert terms.prior > 1e-6
    terms.total.backward()


def test_held_steps_are_the_same_as_second_derivatives() -> None:
    x, target, gradients = rows(), torch.tensor([0, 1, 2, 1, 0]), []
    for double_backward in (True, False):
        model = nn.Sequential(nn.Linear(N, 12, bias=False), nn.ReLU(), nn.Linear(12, 3, bias=False)).double()
        torch.manual_seed(0)
        for weight in model.parameters():
            nn.init.normal_(weight)
        loss = AttributionLoss(
            nn.functional.cross_entropy, Shapley(), outputs="residual", double_backward=double_backward
        )
        loss(model, x, target).total.backward()
        assert loss.total_only is not double_backward
        gradients.append([weight.grad for weight in model.parameters()])
    torch.testing.assert_close(*gradients)


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(N, 1, bias=False), nn.Linear(2, 1, bias=False)

    def forward(self, first: Tensor, second: Tensor, scale: float) -> Tensor:
        return scale * (self.first(first) + self.second(second))


def test_other_inputs_stay_as_they_are() -> None:
    """F(a, b) = f(a) + g(b): what b adds is not of a's subset, and makes the whole gap."""
    model, inputs = Two().double(), (rows(), torch.ones(5, 2, dtype=torch.float64))
    loss = AttributionLoss(mse_loss, Shapley(), of=0)
    terms = loss(model, inputs, torch.zeros(5, 1).double(), additional_forward_args=2.0)
    torch.testing.assert_close(terms.prior, (2.0 * model.second(inputs[1])).square().mean())


def test_without_a_graph_in_eval() -> None:
    terms = AttributionLoss(mse_loss, Shapley()).eval()(network(), rows(), torch.zeros(5, 1).double())
    assert not terms.prior.requires_grad


def test_a_configuration_names_it_like_any_other(tmp_path) -> None:
    x = rows(64).round(decimals=3)
    lines = ["a,b,c,d,e,f,y", *(",".join(map(str, [*row, int(row[0] > row[1])])) for row in x.tolist())]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    config = {
        "out": str(tmp_path / "run"),
        "model": {"name": "xmlp", "options": {"hidden": [8]}},
        "data": {"name": str(tmp_path / "table.csv"), "options": {"label": "y"}},
        "loss": {"prior": "Shapley", "weight": 0.1},
        "recipe": {"epochs": 1, "batch_size": 16},
    }
    history = train_from(parse_config(config), accelerator="cpu", progress=False).history
    assert history[-1]["prior"] > 0
    assert history[-1]["total"] == pytest.approx(history[-1]["task"] + 0.1 * history[-1]["prior"], rel=1e-5)


def test_messages() -> None:
    with pytest.raises(ConfigurationError, match="prior Shapley needs the argument 'inputs'"):
        Shapley()(rows())
    model = network()
    with pytest.raises(InputError, match=r"attributions of shape \[5, 12\] for inputs of shape \[5, 6\]"):
        AttributionLoss(mse_loss, Shapley(), layer="1")(model, rows(), torch.zeros(5, 1).double())
