"""Models of the usual families: the right degree, or every violation named."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from axiograd.homogeneity import certify, verify
from support.certificates.models import (
    MLP,
    BiasFreeDenoiser,
    ConvNet,
    Encoder,
    Lifted,
    Polynomial,
    ResNet,
    Transformer,
)

VECTOR = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
IMAGE = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
TOKENS = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
GREY = IMAGE[:, :1]

CERTIFIED = [
    (MLP(bias=False), VECTOR, 1, True),
    (ConvNet(bias=False).eval(), IMAGE, 1, True),
    (ConvNet(bias=False).train(), IMAGE, 1, True),
    (ResNet(3, nn.Identity, bias=False), IMAGE, 1, True),
    (BiasFreeDenoiser(), GREY, 1, True),
    (Transformer(kind="qk-norm"), TOKENS, 1, False),
    (Transformer(kind="relu", depth=1, residual=False), TOKENS, 3, True),
    (Transformer(kind="relu", depth=2, residual=False), TOKENS, 9, True),
    (Polynomial(), VECTOR, 2, True),
    (Lifted(MLP(bias=True)), VECTOR, 1, True),
    (Lifted(ConvNet(bias=True)).eval(), IMAGE, 1, True),
    (Lifted(Encoder()).eval(), TOKENS, 1, True),
    (Lifted(ResNet(2)).eval(), IMAGE, 1, True),
    (nn.RNN(6, 4, nonlinearity="relu", bias=False), VECTOR, 1, True),
]


def _id(value):
    return type(value).__name__ if isinstance(value, nn.Module) else ""


@pytest.mark.parametrize(("model", "inputs", "degree", "exact"), CERTIFIED, ids=_id)
def test_certified(model, inputs, degree, exact):
    certificate = certify(model, inputs)
    assert certificate.ok, str(certificate)
    assert certificate.degree == pytest.approx(degree)
    assert certificate.exact is exact
    assert bool(certificate.epsilons) is not exact
    assert "is homogeneous in x of degree" in str(certificate)
    check = verify(model, inputs, degree=degree)
    assert check.ok, str(check)


def test_every_bias_is_named():
    certificate = certify(ConvNet(bias=True), IMAGE)
    named = {name for violation in certificate.violations for name in violation.parameters}
    assert named == {name for name, _ in ConvNet(bias=True).named_parameters() if name.endswith("bias")}
    assert {v.kind for v in certificate.violations} == {"bias"}
    assert not certificate
    assert not verify(ConvNet(bias=True).eval(), IMAGE).ok


def test_resnet_names_every_normalisation():
    model = ResNet(2).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)
    certificate = certify(model, IMAGE)
    found = {v.module for v in certificate.violations if v.kind == "normalisation"}
    assert found == {name for name, m in model.named_modules() if isinstance(m, nn.BatchNorm2d)}
    assert [v.module for v in certificate.violations if v.kind == "bias"] == ["fc"]


def test_fresh_batch_norm_in_eval_mode_is_a_scale():
    """A new BatchNorm has mean and shift zero: certified, until its buffers move."""
    model = ResNet(1, bias=False).eval()
    assert certify(model, IMAGE).degree == 1
    model.bn.running_mean[0] = 0.5
    certificate = certify(model, IMAGE)
    assert [v.module for v in certificate.violations] == ["bn"]
    assert certificate.violations[0].parameters == ("bn.running_mean",)


def test_batch_norm_in_train_mode_is_degree_zero_and_refused():
    certificate = certify(nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)).train(), VECTOR)
    assert [v.parameters for v in certificate.violations if v.kind == "bias"] == [("0.bias",)]
    certificate = certify(nn.Sequential(nn.Linear(6, 4, bias=False), nn.BatchNorm1d(4)).train(), VECTOR)
    assert not certificate.ok
    assert certificate.degree == 0
    assert not certificate.exact
    assert certificate.violations[0].kind == "output"
    assert "below 1" in certificate.violations[0].reason


def test_encoder_names_each_origin_once():
    certificate = certify(Encoder().eval(), TOKENS)
    kinds = [v.kind for v in certificate.violations]
    assert "degrees" in kinds
    named = {name for violation in certificate.violations for name in violation.parameters}
    assert {"position", "head.bias"} <= named
    places = [(v.module, v.op, v.source, v.reason) for v in certificate.violations]
    assert len(places) == len(set(places))
    assert len(certificate.violations) <= 5


def test_violations_carry_the_users_line():
    certificate = certify(MLP(bias=True), VECTOR)
    assert "support/certificates/models.py:" in certificate.violations[0].source
    assert "self.out(F.relu(self.hidden(x)))" in certificate.violations[0].code
    assert certificate.violations[0].op == "aten.linear"


def test_downstream_of_a_violation_is_silent():
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6, bias=False), nn.ReLU(), nn.MaxPool1d(2))
    assert len(certify(model, VECTOR).violations) == 1


def test_softmax_names_itself():
    certificate = certify(nn.Sequential(nn.Linear(6, 3, bias=False), nn.Softmax(-1)), VECTOR)
    assert [v.op for v in certificate.violations] == ["aten.softmax"]


def test_several_outputs_have_a_degree_each():
    certificate = certify(lambda x: {"a": x, "b": (x * x, x.argmax(1)), "c": x + 1}, VECTOR)
    assert certificate.degrees == (1.0, 2.0, 0.0, None)
    assert not certificate.ok
    same = certify(lambda x: (x, 2 * x, x.argmax(1)), VECTOR)
    assert same.ok
    assert same.degree == 1


def test_outputs_of_different_degree_are_refused():
    certificate = certify(lambda x: (x, x * x), VECTOR)
    assert not certificate.ok
    assert "degrees 1 and 2" in certificate.violations[0].reason


def test_degree_below_one_is_refused():
    for function, degree in ((lambda x: x.abs().sqrt(), 0.5), (torch.sign, 0), (lambda x: 1 / x, -1)):
        certificate = certify(function, VECTOR)
        assert not certificate.ok
        assert certificate.degree == degree


def test_a_model_that_is_zero_has_every_degree():
    certificate = certify(lambda x: x * 0, VECTOR)
    assert certificate.ok
    assert certificate.degrees == (float("inf"),)


def test_joint_and_chosen_inputs():
    def bilinear(a, b):
        return (a * b).sum(1)

    pair = (VECTOR, VECTOR.flip(0))
    assert certify(bilinear, pair).degree == 2
    assert certify(bilinear, pair, wrt=0).degree == 1
    assert certify(bilinear, pair, wrt=[1]).degree == 1
    assert certify(bilinear, {"a": pair[0], "b": pair[1]}, wrt="b").degree == 1
    assert certify(bilinear, {"b": pair[1], "a": pair[0]}).degree == 2
    assert not certify(lambda a, b: a + b, pair, wrt=0).ok


def test_additional_arguments_are_constants():
    def masked(x, mask, factor):
        return x * mask * factor

    mask = torch.rand(4, 6)
    assert certify(masked, VECTOR, additional_forward_args=(mask, 2.0)).degree == 1
    shifted = certify(lambda x, shift: x + shift, VECTOR, additional_forward_args=torch.zeros(6))
    assert not shifted.ok, "a zero passed by the caller is no promise for the next call"


def test_integer_inputs_are_constants():
    table = torch.randn(10, 6)
    certificate = certify(lambda x, ids: x * F.embedding(ids, table), (VECTOR, torch.arange(4)))
    assert certificate.degree == 1


@pytest.mark.parametrize("baseline", [2.0, torch.full((6,), 2.0), torch.full((4, 6), 2.0)])
def test_baseline(baseline):
    mean = torch.full((6,), 2.0)

    class Centred(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", mean)
            self.inner = MLP(bias=False)

        def forward(self, x):
            return self.inner((x - self.mean) / 3.0)

    model = Centred()
    assert not certify(model, VECTOR).ok
    certificate = certify(model, VECTOR, baseline=baseline)
    assert certificate.ok, str(certificate)
    assert "x − b" in str(certificate)
    assert verify(model, VECTOR, baseline=baseline).ok
    assert not certify(model, VECTOR, baseline=1.0).ok
    assert not certify(MLP(bias=False), VECTOR, baseline=baseline).ok


def test_baseline_still_in_the_output():
    assert not certify(lambda x: 2 * x, VECTOR, baseline=1.0).ok
    assert not certify(lambda x: (x - 1) * x, VECTOR, baseline=1.0).ok
    assert not certify(lambda x: 1 / x - 1, VECTOR, baseline=1.0).ok
    assert certify(lambda x: (2 * x).view(-1) - 2, VECTOR, baseline=1.0).ok


def test_dynamic_batch_is_listed():
    assert certify(MLP(bias=False), VECTOR).dynamic == ("x[0] ≥ 2",) or certify(MLP(bias=False), VECTOR).dynamic
    assert certify(MLP(bias=False), VECTOR[:1]).dynamic == ()


def test_product_over_the_batch_has_a_degree_only_for_a_fixed_batch():
    certificate = certify(lambda x: x.prod(0), VECTOR)
    assert certificate.degree in {4, None}
    assert not (certificate.ok and certificate.dynamic)


def test_cond_is_followed():
    def choose(x):
        return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: -x, (x,))

    assert certify(choose, VECTOR).degree == 1

    def unequal(x):
        return torch.cond(x.sum() > 0, lambda x: x * x, lambda x: -x, (x,))

    assert not certify(unequal, VECTOR).ok


def test_control_flow_on_values_is_a_violation_with_its_line():
    def branches(x):
        if x.sum() > 0:
            return x
        return -x

    certificate = certify(branches, VECTOR)
    assert [v.kind for v in certificate.violations] == ["export"]
    assert certificate.violations[0].code == "if x.sum() > 0:"
    assert "test_certification.py:" in certificate.violations[0].source


def test_the_model_is_left_as_it_was():
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.ReLU(inplace=True)).train()
    model[0].weight.requires_grad_(requires_grad=False)
    model[0].bias.grad = torch.ones(4)
    calls = []
    handle = model[1].register_forward_hook(lambda *_: calls.append(1))
    before = copy.deepcopy(model.state_dict())
    inputs = VECTOR.clone().requires_grad_()
    state = torch.get_rng_state()
    for run in (certify, verify):
        run(model, inputs)
        assert torch.equal(state, torch.get_rng_state())
        assert all(torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True))
        assert all(m.training for m in model.modules())
        assert not model[0].weight.requires_grad
        assert torch.equal(model[0].bias.grad, torch.ones(4))
        assert inputs.grad is None
        assert torch.equal(inputs, VECTOR)
        assert all(type(p) is nn.Parameter for p in model.parameters())
    handle.remove()


def test_attributes_that_forward_sets_are_taken_back():
    class Remembers(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0
            self.register_buffer("mean", torch.zeros(6))

        def forward(self, x):
            self.last = x
            self.calls += 1
            self.mean.mul_(0.5)
            return 2 * x

    model = Remembers()
    assert certify(model, VECTOR).degree == 1
    assert not hasattr(model, "last")
    assert model.calls == 0
    assert type(model.mean) is torch.Tensor
    assert "mean" in model.state_dict()
