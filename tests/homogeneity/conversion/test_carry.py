"""Carried biases: degree 1, piecewise linear, and the original itself where the signal has its typical size."""

import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from captum.attr import IntegratedGradients
from torch import nn

import axiograd
from axiograd import XGradient, certify, to_xdnn
from axiograd.errors import ConfigurationError, ConversionError, InputError
from axiograd.layers import CarriedBatchNorm, CarriedBias, CarriedConv1d, CarriedConv3d, carry
from axiograd.models import get_model


def _trained_norm(norm, *shape):
    """With a mean, a variance, a scale and a shift of its own."""
    for _ in range(20):
        norm(torch.randn(16, *shape) * 2 + 1)
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    nn.init.normal_(norm.bias)
    return norm.eval()


class Functional(nn.Module):
    """Biases, constants and bounds in code of one's own."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(5, 4)), nn.Parameter(torch.randn(5))
        self.position = nn.Parameter(torch.randn(4))

    def forward(self, x):
        h = F.linear(x + self.position, self.weight, self.bias)
        return torch.addmm(self.bias[:2], F.hardtanh(F.relu6(h), -0.5, 2.0), self.weight[:, :2])


MODELS = {
    "linear": (lambda: nn.Linear(4, 3), (4,)),
    "conv": (lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, 2)), (2, 6, 6)),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose2d(2, 3, 3), nn.ReLU()), (2, 4, 4)),
    "batch norm": (lambda: nn.Sequential(nn.Conv2d(2, 3, 3), _trained_norm(nn.BatchNorm2d(3), 3, 4, 4)), (2, 6, 6)),
    "mlp with norm": (
        lambda: nn.Sequential(nn.Linear(4, 6), _trained_norm(nn.BatchNorm1d(6), 6), nn.ReLU6(), nn.Linear(6, 2)),
        (4,),
    ),
    "functional": (Functional, (4,)),
}


@pytest.fixture(params=MODELS)
def converted(request):
    build, shape = MODELS[request.param]
    torch.manual_seed(0)
    model = build().double().eval()
    x = torch.randn(1, *shape).double()
    return model, x, to_xdnn(model, x.repeat(3, *[1] * len(shape)), how="carry")


def test_it_is_the_original_where_the_signal_has_its_typical_size(converted):
    model, x, conversion = converted
    torch.testing.assert_close(conversion.model(x), model(x))


def test_it_is_piecewise_linear_of_degree_one(converted, assert_degree):
    _, x, conversion = converted
    certificate = conversion.certificate
    assert (certificate.degree, certificate.exact, certificate.piecewise_linear) == (1.0, True, True)
    assert_degree(conversion.model, torch.cat([x, torch.randn_like(x)]))


def test_one_gradient_is_integrated_gradients(converted):
    _, x, conversion = converted
    x = torch.cat([x, torch.randn_like(x)])

    def score(inputs):
        return conversion.model(inputs).flatten(1)[:, 0]

    ours = XGradient(conversion.model).attribute(x, lambda y: y.flatten(1)[:, 0])
    torch.testing.assert_close(ours, IntegratedGradients(score).attribute(x, n_steps=20))


def test_weights_keep_their_keys_and_typical_sizes_are_the_mean_over_the_examples():
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(9, 3)
    conversion = to_xdnn(model, x, how="carry")
    assert conversion.removed == ()
    assert conversion.added == ("0.typical", "2.typical")
    first = F.linear(x, model[0].weight).abs().mean()
    second = F.linear(model[:2](x), model[2].weight).abs().mean()
    torch.testing.assert_close(conversion.model[0].typical, first.detach())
    torch.testing.assert_close(conversion.model[2].typical, second.detach())
    assert "Linear with a carried bias" in str(conversion)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (CarriedBias(3), (3, 4, 4)),
        (CarriedBias(), (5,)),
        (CarriedConv1d(2, 3, 3), (2, 8)),
        (CarriedConv3d(2, 3, 2), (2, 4, 4, 4)),
    ],
)
def test_a_layer_by_hand(layer, shape):
    """x + b·mean |x|, sample by sample."""
    nn.init.normal_(layer.bias)
    x = torch.randn(4, *shape)
    before = x if isinstance(layer, CarriedBias) else layer._conv_forward(x, layer.weight, None)
    for row, made in zip(before, layer(x), strict=True):
        bias = layer.bias.reshape(-1, *[1] * (row.dim() - 1)) if len(layer.bias) > 1 else layer.bias
        torch.testing.assert_close(made, row + bias * row.abs().mean())


@pytest.mark.parametrize("name", ["xalexnet", "xvgg11", "xfixup_resnet20", "xsqueezenet1_1", "xmlp"])
def test_models_with_carried_biases_are_x_dnns(name):
    small = {"width": 0.125, "hidden": 16, "pool": 1} if name in {"xalexnet", "xvgg11"} else {}
    model = get_model(name, biases="carried", num_classes=5, **small).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.1)
    regular = get_model(name[1:], num_classes=5, **small)
    assert {key for key, _ in model.named_parameters()} == {key for key, _ in regular.named_parameters()}
    certificate = certify(model, torch.randn(2, 118) if name == "xmlp" else torch.randn(2, 3, 64, 64))
    assert (certificate.degree, certificate.exact, certificate.piecewise_linear) == (1.0, True, True)


@pytest.mark.parametrize(("name", "biases"), [("alexnet", "carried"), ("xalexnet", "worn")])
def test_a_regular_network_has_its_own_biases(name, biases):
    with pytest.raises(ConfigurationError, match="'none' or 'carried'; a regular network has its own"):
        get_model(name, biases=biases)


def test_a_held_step_of_it_has_the_gradients_of_a_double_backward():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    model = to_xdnn(net, torch.randn(20, 1, 6, 6), how="carry").model.double()
    x, y, mask = torch.randn(7, 1, 6, 6).double(), torch.randint(0, 3, (7,)), torch.rand(7, 1, 6, 6).double()
    found = []
    for twice in (False, True):
        model.zero_grad()
        loss = axiograd.AttributionLoss(
            F.cross_entropy, axiograd.priors.RightReasons(), 2.0, outputs="residual", double_backward=twice
        )
        loss(model, x, y, mask=mask).total.backward()
        assert bool(loss.why_twice) == twice
        found.append([parameter.grad.clone() for parameter in model.parameters()])
    for held, double in zip(*found, strict=True):
        torch.testing.assert_close(held, double, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"momentum": None}, {"affine": False}])
def test_batch_norm_trains_as_torchs(options):
    """Equal outputs, gradients and statistics where all samples of a batch have the same size: c = 1."""
    norm, torchs = CarriedBatchNorm(3, **options), nn.BatchNorm2d(3, **options)
    for _ in range(3):
        values = torch.randn(48) * 3 + 1
        x = torch.stack([values[torch.randperm(48)] for _ in range(8)]).reshape(8, 3, 4, 4)
        both = [x.clone().requires_grad_() for _ in range(2)]
        outputs = [layer(each) for layer, each in zip((norm, torchs), both, strict=True)]
        torch.testing.assert_close(*outputs)
        weights = torch.randn_like(x)
        for output in outputs:
            (output * weights).sum().backward()
    torch.testing.assert_close(norm.running_mean, torchs.running_mean)
    torch.testing.assert_close(norm.running_var, torchs.running_var)
    for ours, theirs in zip(norm.parameters(), torchs.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-4)


def test_a_network_with_batch_norm_that_is_to_be_trained():
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)).train()
    conversion = to_xdnn(net, torch.randn(8, 1, 6, 6), how="carry")
    assert conversion.certificate.piecewise_linear
    assert all(module.training for module in conversion.model.modules())
    assert conversion.added == ("0.typical", "1.running_size", "4.typical")
    plain, x = CarriedBatchNorm(4), torch.randn(8, 4, 4, 4)
    torch.testing.assert_close(conversion.model[1](x), plain(x))  # in train mode, too, its code is not rewritten


class OwnNorm(nn.BatchNorm2d):
    """With torch's code and a name of its own."""


def test_shifts_of_norms_are_kept_and_subclasses_are_carried():
    torch.manual_seed(0)
    net = nn.Sequential(_trained_norm(OwnNorm(3), 3, 4, 4), nn.Flatten(), nn.LayerNorm(48), nn.Linear(48, 2)).eval()
    nn.init.normal_(net[2].bias)
    x = torch.randn(1, 3, 4, 4)
    conversion = to_xdnn(net, x.repeat(3, 1, 1, 1), how="carry")
    assert isinstance(conversion.model[0], CarriedBatchNorm)
    torch.testing.assert_close(conversion.model(x), net(x))


def test_a_batch_of_one_value_per_channel_is_refused_and_zeros_are_no_problem():
    norm = CarriedBatchNorm(3)
    with pytest.raises(InputError, match="more than one value per channel"):
        norm(torch.randn(1, 3))
    assert torch.equal(norm(torch.zeros(4, 3)), torch.zeros(4, 3))


class Masked(nn.Module):
    """A mean over the tokens that count."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x, attention_mask):
        return (self.linear(x) * attention_mask[..., None]).sum(1)


def test_padding_would_count():
    inputs = {"x": torch.randn(2, 5, 4), "attention_mask": torch.ones(2, 5)}
    with pytest.raises(ConversionError, match="would count padding"):
        to_xdnn(Masked(), inputs, how="carry")


def test_batch_norm_in_train_mode_is_refused():
    norm = CarriedBatchNorm(3).train()
    assert not certify(norm, torch.randn(8, 3, 4, 4)).ok


def test_an_exported_file_has_its_integrated_gradients(tmp_path):
    """Outputs of PyTorch and attributions of Captum, in onnxruntime, with a batch norm and a ReLU6."""
    torch.manual_seed(0)
    norm = _trained_norm(nn.BatchNorm2d(4), 4, 6, 6)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), norm, nn.ReLU6(), nn.Flatten(), nn.Linear(144, 3)).eval()
    x = torch.randn(5, 3, 8, 8) + 0.5
    model = to_xdnn(net, x, how="carry").model
    axiograd.export_onnx(model, x[:2], tmp_path / "x.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "x.onnx")
    target = torch.ones(5, dtype=torch.long)
    output, attribution, _ = session.run(None, {"input": x.numpy(), "target": target.numpy()})
    torch.testing.assert_close(torch.from_numpy(output), model(x).detach(), rtol=1e-4, atol=1e-5)
    wanted = IntegratedGradients(model.double()).attribute(x.double(), target=1, n_steps=64).float()
    torch.testing.assert_close(torch.from_numpy(attribution), wanted, rtol=1e-4, atol=1e-5)


def test_no_bias_is_no_change():
    x = torch.randn(2, 3)
    assert carry(x, None) is x
