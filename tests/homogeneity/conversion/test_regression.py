"""The regressions of a calibrated strip against NumPy's least squares and brute force."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from axiograd.homogeneity.conversion.calibrate import Problem, change_of_weights, constant


def _problem(rows, columns, outputs, *, gated=False, groups=1, judging=None):
    generator = torch.Generator().manual_seed(rows)
    p, given, wanted = (torch.randn(groups, rows, n, generator=generator).double() for n in (columns, outputs, outputs))
    return Problem(p, given, wanted, torch.zeros(rows, dtype=torch.bool) if judging is None else judging, gated)


@pytest.mark.parametrize(("rows", "columns"), [(40, 6), (6, 40)], ids=["by columns", "by rows"])
def test_ridge_is_least_squares_with_rows_added(rows, columns):
    """λ‖w‖² is what further rows √λ·I with targets 0 add to the sum of squares."""
    problem = _problem(rows, columns, 3, groups=2)
    found, used = change_of_weights(problem, [0.2])
    assert used == 0.2
    for group in range(2):
        p, t = (part[group].numpy() for part in (problem.p, problem.wanted - problem.given))
        penalty = 0.2 * (p**2).sum() / columns
        more = np.vstack([p, math.sqrt(penalty) * np.eye(columns)])
        expected = np.linalg.lstsq(more, np.vstack([t, np.zeros((columns, 3))]), rcond=None)[0]
        np.testing.assert_allclose(found[group].numpy(), expected, rtol=1e-8, atol=1e-10)


def test_the_penalty_is_the_best_on_rows_left_out():
    """Targets that are noise want no weights at all; targets that are linear want no penalty."""
    judging = torch.arange(60) % 5 == 4
    problem = _problem(60, 10, 4, judging=judging)
    penalties = (1e-6, 0.1, 10.0, math.inf)
    noise, used = change_of_weights(problem, penalties)
    assert used == math.inf
    assert not noise.any()
    linear = Problem(problem.p, problem.given, problem.given + problem.p @ torch.ones(10, 4).double(), judging, False)
    assert change_of_weights(linear, penalties)[1] == 1e-6


def test_below_a_relu_it_does_not_matter_how_far():
    """Where all is wanted below zero, what is there already is right, and no weight moves; one above zero is met."""
    problem = _problem(80, 5, 3, gated=True)
    below = replace(problem, given=-problem.given.abs(), wanted=-3 - problem.wanted.abs())
    assert not change_of_weights(below, [1e-9])[0].any()
    assert change_of_weights(replace(below, gated=False), [1e-9])[0].abs().max() > 0.1


def test_rounds_lower_the_loss_that_they_are_for():
    """(y − z)² where z > 0, max(y, 0)² where it is not: each round is a step of majorisation."""
    problem = _problem(80, 5, 3, gated=True)

    def loss(w):
        y, z = problem.given + problem.p @ w, problem.wanted
        return float(torch.where(z > 0, y - z, y.clamp_min(0)).square().sum())

    free, _ = change_of_weights(problem, [1e-9])
    tied, _ = change_of_weights(replace(problem, gated=False), [1e-9])
    assert loss(free) < loss(tied)
    w = free.clone().requires_grad_()
    y, z = problem.given + problem.p @ w, problem.wanted
    torch.where(z > 0, y - z, y.clamp_min(0)).square().sum().backward()
    assert w.grad.abs().max() < 0.2 * (problem.p.mT @ (problem.wanted - problem.given)).abs().max()


def test_the_error_of_leave_one_out_is_that_of_leaving_one_out():
    features = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)).double() + 1
    before = torch.linspace(0.5, 1.2, 12).double()
    v, error = constant(features, [4], 0.05, before)
    scale = features.square().mean().sqrt()
    penalty = 0.05 * float((features / scale).square().sum()) / 12
    left_out = []
    for i in range(12):
        others = [j for j in range(12) if j != i]
        p, t = features[others] / scale, 1 - before[others]
        w = torch.linalg.solve(p.T @ p + penalty * torch.eye(4).double(), p.T @ t)
        left_out.append(float(1 - before[i] - features[i] / scale @ w))
    assert error == pytest.approx(math.sqrt(np.mean(np.square(left_out))), rel=1e-8)
    p = features / scale
    whole = torch.linalg.solve(p.T @ p + penalty * torch.eye(4).double(), p.T @ (1 - before)) / scale
    torch.testing.assert_close(v, whole)
