import copy
import pickle

import pytest
import torch
from torch import nn

from axiograd.errors import ConversionError
from axiograd.homogeneity import certify
from axiograd.homogeneity.conversion import to_xdnn


class SqueezeExcite(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.act = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.SiLU(inplace=True)
        self.fc, self.gate = nn.Conv2d(4, 4, 1), nn.Sigmoid()
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        x = self.act(self.norm(self.conv(x)))
        x = x * self.gate(self.fc(x.mean((2, 3), keepdim=True)))
        return self.head(x.mean((2, 3)))


class Rounding(nn.Module):
    def forward(self, x):
        return torch.round(x)


@pytest.fixture(scope="module")
def gated():
    torch.manual_seed(0)
    model, x = SqueezeExcite().eval(), torch.randn(3, 3, 8, 8)
    return model, x, to_xdnn(model, x, how="strip")


def test_gates_norms_and_biases(gated, assert_degree):
    model, x, conversion = gated
    assert (conversion.certificate.degree, conversion.certificate.exact) == (1.0, True)
    assert_degree(conversion.model, x)
    assert {(e.module, e.after) for e in conversion.edits} == {
        ("conv", "Conv2d without bias"),
        ("norm", "UncentredBatchNorm"),
        ("act", "two slopes"),
        ("fc", "Conv2d without bias"),
        ("gate", "sigmoid(s/ρ), ρ = RMS(s)/r"),
        ("head", "Linear without bias"),
    }
    assert isinstance(model.norm, nn.BatchNorm2d)


def test_train_mode_is_certified_too(gated):
    _, x, conversion = gated
    assert certify(copy.deepcopy(conversion.model).train(), x).degree == 1.0


def test_a_step_of_training_keeps_the_certificate(gated):
    _, x, conversion = gated
    model = pickle.loads(pickle.dumps(conversion.model)).train()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.head.weight.clone()
    model(x).square().mean().backward()
    optimiser.step()
    assert not torch.equal(model.head.weight, before)
    assert certify(model.eval(), x).degree == 1.0


def test_zero_goes_to_zero_with_finite_gradients(gated):
    _, x, conversion = gated
    zero = torch.zeros_like(x, requires_grad=True)
    output = conversion.model(zero)
    (gradient,) = torch.autograd.grad(output.sum(), zero)
    assert output.abs().max() == 0
    assert torch.isfinite(gradient).all()


def test_sigmoid_that_is_no_gate_becomes_an_activation(assert_degree):
    net, x = nn.Sequential(nn.Linear(4, 5), nn.Sigmoid(), nn.Linear(5, 2)), torch.randn(6, 4)
    conversion = to_xdnn(net, x, how="strip")
    assert conversion.certificate.degree == 1.0
    assert_degree(conversion.model, x)


def test_what_cannot_be_stripped_is_listed_with_its_line():
    net = nn.Sequential(nn.Linear(3, 3), Rounding())
    with pytest.raises(ConversionError, match=r"(?s)violations remain.*test_strip.py:\d+.*lift"):
        to_xdnn(net, torch.randn(2, 3), how="strip")


def test_an_x_dnn_needs_no_edits():
    net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.ReLU(), nn.Linear(4, 2, bias=False))
    conversion = to_xdnn(net, torch.randn(2, 3), how="strip")
    assert conversion.edits == conversion.removed == conversion.added == ()


def test_recurrent_and_transformer_layers_of_torch():
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", batch_first=True), 1, enable_nested_tensor=False
    ).eval()
    x = torch.randn(1, 4, 8)
    assert to_xdnn(encoder, x, how="strip").certificate.degree == 1.0


class PreActivation(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(3), nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x):
        return x + self.conv(torch.relu(self.norm(x)))


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (lambda: nn.TransformerEncoderLayer(8, 2, 16, norm_first=True, batch_first=True), (2, 4, 8)),
        (PreActivation, (2, 3, 5, 5)),
    ],
)
def test_pre_norm_blocks_are_stripped_in_train_mode_and_trained(build, shape):
    """Their input goes on beside the norm, which reads it to update its running scale."""
    model, x = build().train(), torch.randn(shape)
    conversion = to_xdnn(model, x, how="strip")
    assert (conversion.certificate.degree, conversion.certificate.exact) == (1.0, True)
    assert certify(conversion.model.eval(), x).degree == 1.0
    conversion.model.train()(x).square().mean().backward()
    assert all(p.grad is not None for p in conversion.model.parameters())


class OwnNorm(nn.Module):
    """RMSNorm as people write it, with its epsilon."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(size) + 0.5)

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def test_a_hand_written_norm_keeps_the_scale(assert_degree):
    net, x = nn.Sequential(nn.Linear(4, 6), OwnNorm(6)).eval(), torch.randn(1, 5, 4)
    conversion = to_xdnn(net, x, how="strip")
    assert (conversion.certificate.degree, conversion.certificate.exact) == (1.0, True)
    assert ("1", "OwnNorm") in {(edit.module, edit.before) for edit in conversion.edits}
    assert_degree(conversion.model, x)
    no_bias = copy.deepcopy(net)
    no_bias[0].bias = None
    torch.testing.assert_close(conversion.model(x), no_bias(x), rtol=1e-4, atol=1e-5)
    assert certify(conversion.model.train(), x).degree == 1.0
    conversion.model(x).square().sum().backward()
    assert conversion.model[1].weight.grad is not None


class Stage(nn.Module):
    """As in PiT: tokens and class tokens are passed on as one tuple, and put side by side inside."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, both):
        x, token = both
        h = nn.functional.gelu(self.linear(torch.cat((token, x), dim=1)))
        return h[:, 1:], h[:, :1]


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.stages = nn.Parameter(torch.randn(1, 1, 4)), nn.Sequential(Stage(), Stage())

    def forward(self, x):
        return self.stages((x, self.token.expand(len(x), -1, -1)))[1][:, 0]


def test_class_tokens_that_are_passed_on_in_a_tuple(assert_degree):
    model, x = Tokens().eval(), torch.randn(3, 5, 4)
    conversion = to_xdnn(model, x, how="strip")
    assert (conversion.certificate.degree, conversion.certificate.exact) == (1.0, True)
    assert_degree(conversion.model, x)


def test_every_kind_of_bias_goes_and_weights_stay():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(
                [nn.Conv1d(2, 2, 1), nn.Conv2d(2, 2, 1), nn.ConvTranspose3d(2, 2, 1), nn.Linear(1, 2)]
            )

        def forward(self, x):
            for layer in self.layers:
                x = layer(x).unsqueeze(-1)
            return x

    net = Net()
    conversion = to_xdnn(net, torch.randn(3, 2, 4), how="strip")
    weights = {name for name in net.state_dict() if name.endswith("weight")}
    assert set(conversion.model.state_dict()) == weights
    assert all(torch.equal(conversion.model.state_dict()[name], net.state_dict()[name]) for name in weights)
    assert [e.module for e in conversion.edits] == [f"layers.{i}" for i in range(4)]


def test_a_shared_module_is_listed_once_and_stripping_twice_changes_nothing_more():
    act = nn.GELU()
    net, x = nn.Sequential(nn.Linear(2, 2), act, nn.Sequential(act), act, nn.BatchNorm1d(2)).eval(), torch.randn(4, 2)
    once = to_xdnn(net, x, how="strip")
    assert [edit.before for edit in once.edits] == ["Linear with bias", "GELU", "BatchNorm1d"]
    twice = to_xdnn(once.model, x, how="strip")
    torch.testing.assert_close(twice.model(x), once.model(x))


def test_mode_dtype_and_requires_grad_are_kept():
    net = nn.Sequential(nn.Linear(2, 2), nn.GELU(), nn.BatchNorm1d(2)).double().eval()
    net[0].weight.requires_grad_(requires_grad=False)
    stripped = to_xdnn(net, torch.randn(3, 2).double(), how="strip").model
    assert not any(m.training for m in stripped.modules())
    assert not stripped[0].weight.requires_grad
    assert stripped(torch.randn(3, 2).double()).dtype == torch.float64
