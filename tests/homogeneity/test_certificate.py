"""What a certificate says, to people and to machines."""

import json

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from axiograd.homogeneity import Certificate, certify, verify
from support.certificates.models import MLP, ConvNet, Encoder, ResNet, Transformer

X = torch.randn(4, 6)
TOKENS = torch.randn(2, 5, 8)


@pytest.mark.parametrize(
    ("model", "inputs"),
    [(MLP(bias=True), X), (Encoder().eval(), TOKENS), (Transformer(kind="qk-norm"), TOKENS)],
)
def test_json_round_trip(model, inputs):
    certificate = certify(model, inputs)
    assert Certificate.from_json(certificate.to_json()) == certificate
    content = json.loads(certificate.to_json())
    assert content["ok"] is certificate.ok
    assert len(content["violations"]) == len(certificate.violations)


def test_json_of_a_zero_output():
    certificate = certify(lambda x: x * 0, X)
    assert Certificate.from_json(certificate.to_json()) == certificate


def test_an_error_that_is_not_a_number_is_not_measured():
    """√(x²) has no derivative at 0, where autograd gives NaN: nothing can be said of single attributions there."""

    def model(x):
        return x.square().sqrt() * F.layer_norm(x, (6,))

    x = torch.cat([X[:1], torch.zeros(1, 6)]).requires_grad_()
    assert torch.autograd.grad(model(x).sum(), x)[0].isnan().any()
    certificate = certify(model, x.detach())
    assert certificate.ok
    assert certificate.error is None
    assert json.loads(certificate.to_json())["error"] is None


def test_table_of_a_refusal():
    text = str(certify(MLP(bias=True), X))
    assert text.splitlines()[0] == "MLP is not certified as homogeneous in x of a degree k ≥ 1: 2 violations."
    for part in ("train", "x: float32 4×6, scales", "hidden.bias", "out.bias", "certificates/models.py:", "fix: "):
        assert part in text
    assert max(len(line) for line in text.splitlines()) <= 140


def test_table_of_a_proof():
    text = str(certify(Transformer(kind="qk-norm"), TOKENS))
    assert text.splitlines()[0] == "Transformer is homogeneous in x of degree 1, up to its epsilons."
    assert "1e-12 in aten.clamp_min of blocks.0" in text
    assert "any size  x[0]" in text


def test_epsilons_are_named_with_their_size():
    certificate = certify(lambda x: x.norm(dim=1, keepdim=True) * F.layer_norm(x, (6,), eps=1e-4), X)
    assert certificate.ok
    assert not certificate.exact
    assert [(e.op, e.size) for e in certificate.epsilons] == [("aten.layer_norm", 1e-4)]
    exact = certify(lambda x: x.norm(dim=1, keepdim=True) * F.layer_norm(x / x.norm(), (6,), eps=1e-4), X)
    assert exact.exact


def test_random_draws_are_an_assumption():
    assert any(
        "random draws" in text for text in certify(ConvNet(bias=False).train(), torch.randn(2, 3, 8, 8)).assumptions
    )
    assert not any(
        "random draws" in text for text in certify(ConvNet(bias=False).eval(), torch.randn(2, 3, 8, 8)).assumptions
    )


def test_work_grows_linearly():
    """Visits per block are constant, whatever the depth."""
    image = torch.randn(1, 3, 8, 8)
    small, large = (certify(ResNet(n, nn.Identity, width=2, bias=False), image).nodes for n in (2, 8))
    per_block = (large - small) / 6
    assert per_block == certify(ResNet(3, nn.Identity, width=2, bias=False), image).nodes - small
    assert per_block <= 12


def test_verification_says_what_it_is():
    good, bad = verify(MLP(bias=False), X), verify(MLP(bias=True), X)
    assert "proves nothing" in str(good)
    assert "is not homogeneous of degree 1" in str(bad)
    assert good.degree == pytest.approx(1)
    assert bad.scaling_error > 1e-3
    assert bad.euler_error > 1e-3
