"""What hides a dependence from autograd is no proof of anything."""

import torch
from torch import nn

from axiograd.homogeneity import certify, verify

VECTOR = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


def test_gradient_cuts_are_refused():
    for function in (lambda x: x.detach() * x, lambda x: x * (x / x.norm()).detach(), _without_grad):
        certificate = certify(function, VECTOR)
        assert [v.kind for v in certificate.violations] == ["gradient"], str(certificate)
    assert certify(lambda x: x * torch.ones(6).detach(), VECTOR).ok
    assert [v.kind for v in certify(lambda x: x * x.sum().item(), VECTOR).violations] == ["gradient"]
    assert certify(lambda x: x * (x > 0).detach(), VECTOR).ok


def test_a_constant_made_on_the_way_is_none_of_the_inputs_business():
    for function in (
        lambda x: nn.functional.prelu(x, torch.tensor(0.3)),
        lambda x: torch.where(x > 0, x, x * torch.tensor([0.2]).detach()),
    ):
        assert certify(function, VECTOR).degree == 1
        assert verify(function, VECTOR).ok

    def filled(x):
        slope = torch.empty(1)
        slope.copy_(x.detach().abs().mean())  # in a constant's memory, and yet of the input
        return nn.functional.prelu(x, slope)

    assert certify(filled, VECTOR).violations[0].kind == "gradient"


class Running(nn.Module):
    """Updates a buffer from the input; the output may or may not read it afterwards."""

    def __init__(self, *, read):
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))
        self.read = read

    def forward(self, x):
        self.mean.copy_(x.detach().mean(0))
        return x * self.mean.norm() if self.read else 2 * x


def test_a_cut_through_a_buffer():
    assert certify(Running(read=False), VECTOR).degree == 1
    assert [v.kind for v in certify(Running(read=True), VECTOR).violations] == ["gradient"]


def test_function_transforms_inside_the_model_are_not_followed():
    for inside in (
        lambda x: x * torch.func.grad(lambda z: (z**3).sum())(x),
        torch.vmap(lambda row: row * row.sum()),
    ):
        assert [v.kind for v in certify(inside, VECTOR).violations] == ["export"]


def _without_grad(x):
    with torch.no_grad():
        scale = x.mean()
    return x + scale


class RunningUnderNoGrad(Running):
    """The usual way to keep statistics: the block writes into the buffer, not into the input that it reads."""

    def forward(self, x):
        with torch.no_grad():
            self.mean.copy_(x.mean(0))
        return x * self.mean.norm() if self.read else x + x.relu()


def test_a_no_grad_block_that_only_keeps_statistics_cuts_nothing():
    assert certify(RunningUnderNoGrad(read=False), VECTOR).degree == 1
    assert [v.kind for v in certify(RunningUnderNoGrad(read=True), VECTOR).violations] == ["gradient"]


def test_a_proof_inside_inference_mode_spoils_no_later_one(monkeypatch):
    monkeypatch.setattr("axiograd.homogeneity.cuts._carried", {})  # as in a process that has proved nothing yet
    with torch.inference_mode():
        certify(torch.relu, VECTOR)
    assert certify(torch.relu, VECTOR).ok
