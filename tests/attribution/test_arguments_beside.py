"""Additional arguments: which have a row per sample and which are constants, against one sample and step at a time."""

import pytest
import torch
from torch import nn

import axiograd


def summed(x, w):
    """A constant that happens to have as many rows as the batch."""
    return x[:, 0] ** 2 * w.sum()


def mixed(x, w):
    """A constant matrix."""
    return (x @ w).square().sum(1)


def averaged(x, w):
    """Copies of all rows leave a mean as it is, some of the rows do not."""
    return (x * w.mean(0)).square().sum(1)


def gated(x, w):
    """At the baseline and on half of the path, the constant cannot be seen."""
    return torch.relu(x[:, 0] * w.sum() - 3) ** 2


def weighted(x, w):
    """A row per sample."""
    return (x * w).square().sum(1)


def by_steps(model, x, baseline, w, n=500):
    """∫ by the middle of n steps, the whole batch in one call, so that nothing is repeated or sliced."""
    total = torch.zeros_like(x)
    for t in (torch.arange(n, dtype=x.dtype) + 0.5) / n:
        point = (baseline + t * (x - baseline)).requires_grad_()
        total += torch.autograd.grad(model(point, w).sum(), point)[0] / n
    return (x - baseline) * total


@pytest.mark.parametrize("rows", [None, 3, 100])
@pytest.mark.parametrize("model", [summed, mixed, averaged, gated, weighted])
def test_integrated_gradients(model, rows):
    torch.manual_seed(0)
    x, w = torch.rand(4, 4, dtype=torch.double) + 1, torch.rand(4, 4, dtype=torch.double)
    method = axiograd.IntegratedGradients(model, 200, internal_batch_size=rows)
    expected = by_steps(model, x, torch.full_like(x, 0.1), w)
    for given in ({"w": w}, w, (w,)):
        found = method.attribute(x, baselines=0.1, additional_forward_args=given)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert float(method.completeness(x, additional_forward_args=w).relative.max()) < 1e-4


@pytest.mark.parametrize("model", [summed, mixed, averaged, weighted])
def test_a_batch_of_one(model):
    torch.manual_seed(0)
    x = torch.rand(1, 4, dtype=torch.double)
    w = torch.rand(4 if model is mixed else 1, 4, dtype=torch.double)
    found = axiograd.IntegratedGradients(model, 20).attribute(x, additional_forward_args=w)
    torch.testing.assert_close(found, by_steps(model, x, torch.zeros_like(x), w), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("model", [summed, mixed, averaged, weighted])
def test_expected_gradients(model):
    """One reference, and attributions that are linear in α: draws average to the integral, whatever they are."""
    torch.manual_seed(0)
    x, w = torch.rand(4, 4, dtype=torch.double), torch.rand(4, 4, dtype=torch.double)
    generator = torch.Generator().manual_seed(0)
    method = axiograd.ExpectedGradients(model, torch.zeros(1, 4, dtype=torch.double), 4000, generator=generator)
    found = method.attribute(x, additional_forward_args=w)
    torch.testing.assert_close(found, by_steps(model, x, torch.zeros_like(x), w), rtol=0.05, atol=1e-7)


@pytest.mark.parametrize("model", [summed, mixed, averaged, gated, weighted])
def test_occlusion(model):
    """F(x) − F(x without feature i), a feature at a time."""
    torch.manual_seed(0)
    x, w = torch.rand(4, 4, dtype=torch.double) + 1, torch.rand(4, 4, dtype=torch.double)
    expected = torch.stack([model(x, w) - model(x.index_fill(1, torch.tensor(i), 0.1), w) for i in range(4)], 1)
    found = axiograd.Occlusion(model).attribute(x, baselines=0.1, additional_forward_args=w)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("rows", [None, 1, 3, 100])
@pytest.mark.parametrize("model", [summed, mixed, averaged, gated, weighted])
def test_masking_curves(model, rows):
    """The whole batch in one call for each number of kept features, so that nothing is repeated or sliced."""
    torch.manual_seed(0)
    x, w = torch.rand(4, 4, dtype=torch.double) + 1, torch.rand(4, 4, dtype=torch.double)
    a = torch.randn(4, 4, dtype=torch.double)
    rank = (-a).argsort(1).argsort(1)
    expected = torch.stack([model(torch.where((rank < n) & (a > 0), x, 0.1), w) for n in (1, 2, 3, 4)], 1)
    found = axiograd.metrics.masking_curves(
        model,
        x,
        a,
        metrics=("KPM",),
        fractions=(0.25, 0.5, 0.75, 1.0),
        masking=0.1,
        additional_forward_args=w,
        max_rows=rows,
    )
    torch.testing.assert_close(found["KPM"].scores, expected)


def test_one_argument_of_two_has_a_row_per_sample():
    """One is a constant of the batch's length, the other is not."""
    torch.manual_seed(0)
    x, matrix, row = (torch.rand(4, 4, dtype=torch.double) for _ in range(3))
    model = lambda x, matrix, row: ((x @ matrix) * row).square().sum(1)  # noqa: E731
    found = axiograd.IntegratedGradients(model, 20).attribute(x, additional_forward_args=(matrix, row))
    alone = [
        axiograd.IntegratedGradients(model, 20, internal_batch_size=1).attribute(
            x[i : i + 1], additional_forward_args=(matrix, row[i : i + 1])
        )
        for i in range(4)
    ]
    torch.testing.assert_close(found, torch.cat(alone))


def test_rows_per_sample_are_not_run_one_step_at_a_time():
    torch.manual_seed(0)
    seen = []

    class Masked(nn.Module):
        def forward(self, x, mask):
            seen.append(len(x))
            return (x * mask).square().sum(1)

    x, mask = torch.randn(4, 3), torch.randint(2, (4, 3))
    axiograd.IntegratedGradients(Masked().eval(), 64).attribute(x, additional_forward_args=mask)
    assert max(seen) == 4 * 64
    assert sum(seen) <= 1.1 * 4 * 64
