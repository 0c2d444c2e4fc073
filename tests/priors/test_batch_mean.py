"""One process; two are in tests/training/test_distributed.py."""

import torch

from axiograd.priors.batch_mean import batch_mean, n_ranks


def test_mean_count_and_gradient_on_one_process() -> None:
    values = torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True)
    mean, count = batch_mean(values)
    torch.testing.assert_close(mean, values.mean(0))
    assert count == 5
    assert not count.requires_grad
    mean.sum().backward()
    torch.testing.assert_close(values.grad, torch.full_like(values, 0.2))
    assert n_ranks() == 1
