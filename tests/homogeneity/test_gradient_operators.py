"""Operators whose backward pass is not the derivative: refused, and central differences say that it is right to."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from axiograd.homogeneity import certify

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TWICE, ONCE = torch.tensor([0, 1, 1]), torch.tensor([0, 2, 1])
ONES, EYE = torch.ones(6, dtype=torch.float64), torch.eye(4, dtype=torch.float64)
STEP = 1e-6


def unit(x):
    return x / x.norm()


def assign(x, index):
    y = torch.zeros_like(x)
    y[:, index] = x[:, :3]
    return y


def scatter(x, index):
    return torch.zeros_like(x).scatter(1, index, x[:, : index.shape[1]])


def assign_pairs(x):
    y = torch.zeros_like(x)
    y[TWICE, TWICE] = x[0, :3]
    return y


def assign_strided(x):
    y = torch.zeros(6, dtype=x.dtype)
    y.as_strided((2, 4), (1, 1)).copy_(x[:2, :4])
    return y


def unpool(x, kernel, stride):
    return F.max_unpool1d(*F.max_pool1d(x[None], kernel, stride, return_indices=True), kernel, stride)


OVERLAPPING = {
    "assignment": lambda x: assign(x, TWICE),
    "assignment of degree 0": lambda x: x.norm() * assign(unit(x), TWICE),
    "an index from the end": lambda x: assign(x, torch.tensor([0, 5, -1])),
    "pairs": assign_pairs,
    "scatter": lambda x: scatter(x, TWICE.expand(4, 3)),
    "scatter an index expanded": lambda x: scatter(x, torch.ones(1, 1, dtype=torch.long).expand(x.shape[0], 3)),
    "scatter to the largest": lambda x: scatter(x, x.argmax(1, keepdim=True).expand(-1, 3)),
    "scatter across": lambda x: x.scatter(0, x.argsort(1) % 4, 2 * x),
    "index_put": lambda x: x.index_put((TWICE,), x[:3]),
    "index_copy": lambda x: x.index_copy(1, TWICE, x[:, :3]),
    "put": lambda x: x.put(TWICE, x[0, :3]),
    "strided": assign_strided,
    "unpooling": lambda x: unpool(x, 3, 1),
}
HALF = {
    "a radius below zero": lambda x: torch.view_as_real(torch.polar(x, torch.ones_like(x))),
    "eigvalsh": lambda x: torch.linalg.eigvalsh(x[:, :4]),
    "eigvalsh, upper half": lambda x: torch.linalg.eigvalsh(x[:, :4] @ x[:, 2:], UPLO="U"),
    "eigvalsh of columns scaled": lambda x: torch.linalg.eigvalsh((x @ x.mT) * x.norm(dim=1)),
    "eigvalsh of rows divided": lambda x: torch.linalg.eigvalsh(
        (x @ x.mT) * x[:, 0].abs() / x.norm(dim=1, keepdim=True)
    ),
    "eigh": lambda x: torch.linalg.eigh(x[:, :4]).eigenvectors * x[:, :4],
    "cholesky": lambda x: x.norm() * torch.linalg.cholesky(unit(x)[:, :4] + 9 * EYE),
    "pinv": lambda x: torch.linalg.pinv(x[:, :4], hermitian=True) @ x @ x.t(),
}
LOST = {
    "padding row": lambda x: F.embedding(ONCE, x, padding_idx=2),
    "scaled by frequency": lambda x: F.embedding(TWICE, x, scale_grad_by_freq=True),
    "mean of native_layer_norm": lambda x: torch.native_layer_norm(x, (6,), None, None, 0.0)[1] * x,
    "linspace": lambda x: torch.linspace(x[0, 0], x[0, 1], 5, dtype=x.dtype) * x[0, 2].abs(),
    "normal": lambda x: torch.normal(x, x.abs()) + x,
    "beyond a slice": lambda x: x[:2].as_strided((4, 6), (6, 1)),
}


@pytest.mark.parametrize("function", [pytest.param(f, id=n) for n, f in (OVERLAPPING | HALF | LOST).items()])
def test_a_backward_that_is_not_the_derivative_is_refused(function):
    certificate = certify(function, X)
    assert not certificate.ok
    assert "gradient" in {violation.kind for violation in certificate.violations}, str(certificate)
    assert _gap(function) > 1e-3


FORBIDDEN = {
    "running mean": lambda x: F.batch_norm(x, x[0], ONES),
    "running mean of degree 0": lambda x: x.norm() * F.batch_norm(unit(x), unit(x)[0], ONES),
    "running variance": lambda x: F.batch_norm(x, 0 * ONES, unit(x)[0].abs()),
}


@pytest.mark.parametrize("function", [pytest.param(f, id=n) for n, f in FORBIDDEN.items()])
def test_what_autograd_forbids_is_refused(function):
    assert "gradient" in {violation.kind for violation in certify(function, X).violations}
    with pytest.raises(RuntimeError, match="not differentiable"):
        function(X.clone().requires_grad_())


def _top(x):
    values, places = x.topk(2)
    return torch.zeros_like(x).scatter(-1, places, values)


def _top_by_rows(x):
    values, places = x.topk(2)
    y = torch.zeros_like(x)
    y[torch.arange(x.shape[0])[:, None], places] = values
    return y


def _largest(x):
    y = torch.zeros_like(x)
    y[torch.arange(x.shape[0]), x.argmax(1)] = x.amax(1)
    return y


def _masked(x):
    y = torch.zeros_like(x)
    y[x > 0] = x[x > 0]
    return y


SHARED = nn.BatchNorm1d(6, eps=1e-12).double()
FAITHFUL = {
    "assignment": lambda x: assign(x, ONCE),
    "a mask": _masked,
    "the largest": _top,
    "the one largest": _largest,
    "sorted": lambda x: scatter(x, x.argsort(1)),
    "a constant expanded": lambda x: scatter(x, ONCE.expand(x.shape[0], 3)),
    "constants written twice": lambda x: x.scatter(1, TWICE.expand(4, 3), 0.0),
    "added twice": lambda x: x.index_add(1, TWICE, x[:, :3]),
    "accumulated": lambda x: x.index_put((TWICE,), x[:3], accumulate=True),
    "index_copy": lambda x: x.index_copy(1, ONCE, 2 * x[:, :3]),
    "one number twice": lambda x: x.index_fill(1, TWICE, x.sum()),
    "windows apart": lambda x: unpool(x, 2, 2),
    "eigvalsh of a Gram matrix": lambda x: torch.linalg.eigvalsh(x @ x.mT),
    "eigvalsh of a mean": lambda x: torch.linalg.eigvalsh((x[:, :4] + x[:, :4].t()) / 2),
    "eigvalsh of a centred one": lambda x: torch.linalg.eigvalsh(
        (x - x.mean(1, keepdim=True)) @ (x - x.mean(1, keepdim=True)).t() / 5
    ),
    "cholesky of a Gram matrix": lambda x: torch.linalg.cholesky(x @ x.t()),
    "a table": lambda x: F.embedding(ONCE, x),
    "strided inside": lambda x: x.as_strided((3, 4), (4, 1)),
    "a batch norm used twice": lambda x: SHARED(SHARED(x)) * x,
    "weights of a batch norm": lambda x: F.batch_norm(x, 0 * ONES, ONES, x[0]),
}
#: Right, too, and refused on purpose: only plain forms are looked for.
TOO_CAUTIOUS = {
    "the largest, row by row": _top_by_rows,
    "eigvalsh of a weighted one": lambda x: torch.linalg.eigvalsh(x @ torch.diag(ONES + ONES.cumsum(0)) @ x.mT),
    "eigvalsh of a scaled one": lambda x: torch.linalg.eigvalsh((x @ x.mT) * x.norm()),
}


@pytest.mark.parametrize("function", [pytest.param(f, id=n) for n, f in TOO_CAUTIOUS.items()])
def test_other_forms_are_refused(function):
    assert [violation.kind for violation in certify(function, X).violations] == ["gradient"]
    assert _gap(function) < 1e-5


@pytest.mark.parametrize("function", [pytest.param(f, id=n) for n, f in FAITHFUL.items()])
def test_what_differentiates_is_not_refused(function):
    certificate = certify(function, X)
    assert certificate.ok, str(certificate)
    assert _gap(function) < 1e-5
    base = function(X)
    for alpha in (0.25, 4.0):
        torch.testing.assert_close(function(alpha * X), alpha**certificate.degree * base, rtol=1e-9, atol=1e-9)


def _gap(function):
    """How far autograd's derivative along random directions is from a central difference, relative to its size."""
    worst = []
    generator = torch.Generator().manual_seed(3)
    for _ in range(3):
        direction = torch.randn(X.shape, generator=generator, dtype=X.dtype)
        weight = None

        def score(x):
            nonlocal weight
            torch.manual_seed(0)
            out = function(x)
            weight = torch.randn(out.shape, generator=generator, dtype=X.dtype) if weight is None else weight
            return (out * weight).sum()

        leaf = X.clone().requires_grad_()
        value = score(leaf)
        gradient = torch.autograd.grad(value, leaf)[0] if value.requires_grad else torch.zeros_like(X)
        slope = (gradient.to_dense() * direction).sum()
        with torch.no_grad():
            measured = (score(X + STEP * direction) - score(X - STEP * direction)) / (2 * STEP)
        worst.append(float((slope - measured).abs() / (slope.abs() + measured.abs())))
    return max(worst)
