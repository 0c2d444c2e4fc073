"""Epsilons in divisors: accepted where the divided value is zero whenever the divisor is, refused elsewhere."""

import pytest
import torch
import torch.nn.functional as F

from axiograd.homogeneity import certify
from axiograd.homogeneity.rules.epsilons import FAR_ABOVE

W = torch.randn(4, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
#: Points on which a statistic may be zero: everything negative, whole rows and columns of zeros, sums that cancel.
POINTS = {
    "any": torch.randn(5, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64),
    "negative": -torch.rand(5, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64) - 0.1,
    "sparse": torch.tensor([[0.0] * 4, [1.0, 0.0, 0.0, -2.0], [-1.0] * 4, [0.0, 0.5, 0.0, 0.0], [-1.0, 0, 3.0, 0]]),
    "cancelling": torch.tensor([[1.0, -1.0, 2.0, -2.0]]) * torch.arange(1.0, 6.0)[:, None],
}
#: Large, so that what an epsilon does to small values is not what is measured.
SCALE = 2.0**30
EPSILONS = (1e-12, 1e-8, 1e-5)


def mean(x):
    return x.mean(1, keepdim=True)


def norm(x):
    return x.norm(dim=1, keepdim=True)


def _relu_attention(x, e):
    attention = (x @ x.t()).relu()
    return attention @ x / (attention.sum(-1, keepdim=True) + e)


def _response(x, e):
    g = x.norm(dim=0, keepdim=True)
    return x * (g / (g.mean(-1, keepdim=True) + e))


def _rms(y, e):
    return y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + e)


def _layer(y, e):
    return (y - mean(y)) / torch.sqrt((y - mean(y)).pow(2).mean(1, keepdim=True) + e)


SOUND = {
    "normalize": lambda x, e: F.normalize(x, eps=e) * x,
    "normalize relu": lambda x, e: F.normalize(x.relu(), eps=e) * x,
    "rms norm of relu": lambda x, e: _rms((x @ W).relu(), e) * x,
    "the same relu written twice": lambda x, e: x * x.relu() / (mean(x.relu()) + e),
    "layer norm by hand": lambda x, e: _layer(x.relu(), e) * x,
    "deviation by hand": lambda x, e: (x - mean(x)) / (x.std(1, keepdim=True) + e) * x,
    "response norm": _response,
    "statistic unsqueezed": lambda x, e: x * x / (x.norm(dim=1).unsqueeze(1) + e),
    "guard reshaped": lambda x, e: x * x / (x.norm(dim=1) + e).view(-1, 1),
    "guard indexed": lambda x, e: x * x / (x.norm(dim=1) + e)[:, None],
    "reciprocal": lambda x, e: x * (1 / (x.abs().amax(1, keepdim=True) + e)) * x,
    "maximum": lambda x, e: x * x / torch.maximum(norm(x), torch.tensor(e, dtype=x.dtype)),
    "whole batch": lambda x, e: x * x / (x.norm() + e),
    "nn.LayerNorm after ReLU": lambda x, e: F.layer_norm(x.relu(), (4,), W[0], W[1], e) * x,
    "nn.RMSNorm after ReLU": lambda x, e: F.rms_norm(x.relu(), (4,), W[0], e) * x,
    "nn.GroupNorm after ReLU": lambda x, e: F.group_norm(x.relu(), 2, W[0], W[1], e) * x,
    "batch norm after ReLU": lambda x, e: F.batch_norm(x.relu(), None, None, W[0], W[1], training=True, eps=e) * x,
}
#: Sound, too, and refused on purpose: only the plain form is looked for.
TOO_CAUTIOUS = {
    "gain before the division": lambda x, e: x * (torch.rsqrt(x.relu().square().mean(1, True) + e) * W[0]) * x.relu(),
    "relu attention": _relu_attention,
    "cosine": lambda x, e: (x * x.flip(1)).sum(1) / (x.norm(dim=1) * x.flip(1).norm(dim=1) + e) * x[:, 0],
    "sum of two statistics": lambda x, e: x * x / (norm(x.relu()) + norm(x) + e),
}
UNSOUND = {
    "mean of relu": lambda x, e: (x * x.abs().sum(1, keepdim=True) / (mean(x.relu()) + e)).sum(1),
    "norm of relu": lambda x, e: (x * x.abs().sum(1, keepdim=True) / norm(x.relu()).clamp_min(e)).sum(1),
    "clamp for relu": lambda x, e: x * x / (norm(x.clamp(min=0)) + e),
    "maximum for relu": lambda x, e: x * x / (norm(torch.maximum(x, torch.zeros_like(x))) + e),
    "product with relu": lambda x, e: x * x.abs() * x / (norm(x.relu() * x) + e),
    "pooled relu": lambda x, e: x * x / (norm(F.max_pool1d(x.relu(), 2)) + e),
    "dropout": lambda x, e: x * x / (norm(F.dropout(x, 0.9)) + e),
    "linear of relu": lambda x, e: x * x / (norm(x.relu() @ W) + e),
    "deviation of relu": lambda x, e: x * x / (x.relu().std(1, keepdim=True) + e),
    "free inverse root": lambda x, e: x * x * torch.rsqrt(x.relu().pow(2).mean(1, keepdim=True) + e),
    "inverse deviation of layer norm": lambda x, e: x * x * torch.native_layer_norm(x.relu(), (4,), None, None, e)[2],
    "not all of it vanishes": lambda x, e: (x.relu() + x) * x / (norm(x.relu()) + e),
    "one of two factors": lambda x, e: x * x.abs() * x.relu() / (norm(x.relu()) * norm((-x).relu()) + e),
    "zero in each entry by another factor": lambda x, e: (
        x * x.relu().sum(1, keepdim=True) * (-x).relu().sum(1, keepdim=True) / (norm(x.relu() * (-x).relu()) + e)
    ),
    "another row": lambda x, e: x * x / (norm(x.flip(0)) + e),
    "rows over columns": lambda x, e: x[:4] * x[:4] / (x[:4].norm(dim=1) + e),
    "one row for all": lambda x, e: x * x / (norm(x)[:1] + e),
    "sums of another dimension": lambda x, e: x.relu() @ x.t() @ x / (x.relu().norm(dim=0, keepdim=True) + e),
    "difference that is zero": lambda x, e: x * x / (norm(x - x) + e),
    "signed sums inside": lambda x, e: x * x / (x.sum(1, keepdim=True).abs().mean(0, keepdim=True) + e),
    "inverse in a divisor": lambda x, e: x * x.abs() / (1 / (norm(x.relu()) + e)),
}
ALL = SOUND | TOO_CAUTIOUS | UNSOUND
#: What the degree would be without an epsilon, where it is not 1.
LOOKS = {"sums of another dimension": 2, "inverse in a divisor": 3}


def _scales(function, x, degree):
    """F(αx) = αᵏF(x) by brute force, entry by entry."""
    values = {}
    for alpha in (1.0, 0.25, 4.0):
        torch.manual_seed(0)
        values[alpha] = function(alpha * x)
    return all(torch.allclose(values[a], values[1.0] * a**degree, rtol=1e-6, atol=1e-6) for a in (0.25, 4.0))


@pytest.fixture(scope="module")
def certificate():
    """One export: every function with every epsilon is an output."""

    def model(x):
        return tuple(function(x, eps) for function in ALL.values() for eps in EPSILONS)

    return certify(model, POINTS["any"])


@pytest.fixture(scope="module")
def degrees(certificate):
    keys = [(name, eps) for name in ALL for eps in EPSILONS]
    return dict(zip(keys, certificate.degrees, strict=True))


@pytest.mark.parametrize("name", SOUND)
def test_the_divided_value_vanishes_with_the_divisor(name, degrees):
    for eps in EPSILONS:
        degree = degrees[name, eps]
        assert degree is not None
        for x in POINTS.values():
            assert _scales(lambda x, eps=eps: SOUND[name](x, eps), SCALE * x.double(), degree)


@pytest.mark.parametrize("name", TOO_CAUTIOUS)
def test_other_forms_are_refused(name, degrees):
    assert {degrees[name, eps] for eps in EPSILONS} == {None}


@pytest.mark.parametrize("name", UNSOUND)
def test_the_divided_value_stays(name, degrees):
    for eps in EPSILONS:
        assert degrees[name, eps] is None
        degree = LOOKS.get(name, 1)
        function = lambda x, eps=eps: UNSOUND[name](x, eps)  # noqa: E731
        assert not all(_scales(function, SCALE * x.double(), degree) for x in POINTS.values())


def test_epsilons_and_what_is_taken_as_given_are_said():
    certificate = certify(lambda x: F.normalize(x, eps=1e-8) * x, POINTS["any"])
    assert (certificate.ok, certificate.degree, certificate.exact) == (True, 1.0, False)
    assert [epsilon.size for epsilon in certificate.epsilons] == [1e-8]
    assert FAR_ABOVE in certificate.assumptions


def test_the_violation_says_what_to_do():
    def guarded(x):
        return x * x / (norm(x.relu()) + 1e-6)

    def fixed(x):
        n = norm(x.relu())
        return x * x / n.masked_fill(n == 0, torch.inf)

    (violation,) = certify(guarded, POINTS["any"]).violations
    assert "1e-06" in violation.reason
    assert "masked_fill" in violation.fix
    assert certify(fixed, POINTS["any"]).exact
    assert all(_scales(fixed, x.double(), 1) for x in POINTS.values())
