"""The experiment's Shapley values against shap's, and its many networks at a time against the library's loss."""

from itertools import permutations

import numpy as np
import shap
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from axiograd import AttributionLoss
from axiograd.priors import Shapley
from experiments.shapley import shapley_values
from experiments.shapley_networks import network, objectives


def test_all_orders_give_shaps_exact_values():
    torch.manual_seed(0)
    model, widths = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1)).double(), torch.tensor([1, 2, 1, 2])
    x, orders = torch.randn(3, 6, dtype=torch.float64), [torch.tensor(order) for order in permutations(range(4))]
    found = shapley_values(model, x, widths, orders)
    for row, values in zip(x, found, strict=True):
        game = lambda there, row=row: (  # noqa: E731
            model(row * torch.from_numpy(there).repeat_interleave(widths, 1))[:, 0].detach().numpy()
        )
        explainer = shap.ExactExplainer(game, shap.maskers.Independent(np.zeros((1, 4))))
        np.testing.assert_allclose(values, explainer(np.ones((1, 4))).values[0], atol=1e-12)


def test_absent_columns_from_other_rows():
    """Of F = Σ cᵢxᵢ the value of a column is cᵢ·(xᵢ − mean of the absent ones)."""
    linear, x = nn.Linear(4, 1, bias=False).double(), torch.randn(2, 4, dtype=torch.float64)
    absent, orders = torch.randn(5, 4, dtype=torch.float64), [torch.randperm(4) for _ in range(5)]
    found = shapley_values(linear, x, torch.ones(4, dtype=torch.long), orders, absent)
    torch.testing.assert_close(found, linear.weight.detach() * (x - absent.mean(0)))


def test_the_objective_is_the_librarys():
    model = network(5, 0, homogeneous=True)
    x, y, subset = torch.randn(8, 5), torch.randint(2, (8,)).float(), torch.rand(8, 5) < 0.5
    _, total = objectives(model, binary_cross_entropy_with_logits)
    found = total(dict(model.named_parameters()), torch.tensor(0.0), x, y, torch.tensor(10.0), subset)
    loss = AttributionLoss(lambda scores, y: binary_cross_entropy_with_logits(scores[:, 0], y), Shapley(), 10.0)
    torch.testing.assert_close(found, loss(model, x, y, subset=subset).total)
