"""What people write and what looks like it: accepted where brute force agrees, refused where it refutes."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from axiograd.homogeneity import certify
from support.certificates.oracle import refutes_every_degree, scales

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
ONES = torch.ones(6, dtype=torch.float64)
with torch.random.fork_rng():
    torch.manual_seed(0)  # a recurrence whose units are not all dead
    LAYER = nn.Linear(6, 6, bias=False).double()
    RNN = nn.RNN(6, 6, nonlinearity="relu").double()


def unit(x):
    return x / x.norm()


def _rotary(x):
    y = torch.empty_like(x)
    y[..., ::2], y[..., 1::2] = -x[..., 1::2], x[..., ::2]
    return y


def _halves(x):
    y, half = torch.empty(x.shape, dtype=x.dtype), x.shape[-1] // 2
    y[:, :half] = x[:, half:]
    y[:, half:] = x[:, :half]
    return y


def _columns(x):
    y = x.new_empty(x.shape[0], 3, 2)
    y[:, :, 0] = x[:, :3]
    y[:, :, 1] = x[:, 3:]
    return y.flatten(1)


def _one_half(x):
    y = torch.empty_like(x)
    y[..., ::2] = x[..., 1::2]
    return y


def _one_half_of_ones(x):
    y = torch.empty_like(x)
    y[:, :3] = x[:, :3]
    y[:, 3:] = 1.0
    return y


ACCEPTED = {
    "half precision": lambda x: x.half().double(),
}
REFUSED = {
    "one half of new memory and ones": _one_half_of_ones,
    "batch norm whose weight moves": lambda x: F.batch_norm(unit(x), 0 * ONES, ONES, x[0], ONES),
    "recurrence with biases from zeros": lambda x: x + RNN(torch.zeros_like(x))[0],
    "distance between zeros": lambda x: x[:, 0] + F.pairwise_distance(0 * x, 0 * x, eps=0.5),
    "float8": lambda x: x.to(torch.float8_e4m3fn).double(),
    "float8 by copying": lambda x: torch.zeros(4, 6, dtype=torch.float8_e5m2).copy_(1000 * x).double(),
}
#: Of one degree, and refused on purpose: operators that networks do not use have no rule, and which parts of
#: `torch.empty` have been written is not followed.
TOO_CAUTIOUS = {
    "columns of new memory": _columns,
    "halves of new memory": _halves,
    "rotary halves of new memory": _rotary,
    "entropy of shares": lambda x: torch.special.xlogy(x.abs(), x.abs() / x.abs().sum()),
    "least squares": lambda x: torch.linalg.pinv(x) @ x @ x.t(),
    "triangle": lambda x: torch.linalg.solve_triangular(x[:, :4] @ x[:, :4], x**3, upper=True),
    "polar": lambda x: torch.view_as_real(torch.polar(x.abs(), torch.atan2(x, x.flip(0)))),
}


@pytest.mark.parametrize("name", TOO_CAUTIOUS)
def test_too_cautious(name):
    assert not certify(TOO_CAUTIOUS[name], X).ok
    fits, error = scales(TOO_CAUTIOUS[name], (X,), 1.0)
    assert fits, error


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name):
    certificate = certify(ACCEPTED[name], X)
    assert certificate.ok, str(certificate)
    tolerance = 1e-3 if "half" in name else 1e-9
    for point in (X, -X.abs(), X * (X > 0)):
        fits, error = scales(ACCEPTED[name], (point,), certificate.degree, tolerance=tolerance)
        assert fits, error


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    assert not certify(REFUSED[name], X).ok
    assert refutes_every_degree(REFUSED[name], (X,))


def test_memory_that_is_read_before_it_is_written():
    assert not certify(_one_half, X).ok
    assert not certify(lambda x: x + torch.empty_like(x), X).ok
