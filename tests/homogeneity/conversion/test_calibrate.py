"""Strip with calibration, against closed forms and brute force in float64."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

from axiograd.errors import ConfigurationError, ConversionError, InputError
from axiograd.homogeneity import calibrated_layout, certify, to_xdnn
from axiograd.homogeneity.conversion import Calibration, ConversionWarning, OverfittingWarning

EXACT = {"ridge": 1e-13, "bias_ridge": 1e-13}


def _warm(net, shape, shift=0.5):
    """A network whose norms have seen data."""
    net.train()
    for _ in range(5):
        net(torch.randn(32, *shape) + shift)
    return net.eval()


class Residual(nn.Module):
    def __init__(self, channels, *, groups=1, capped=False):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, groups=groups, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, padding=2, dilation=2)
        self.norms = nn.ModuleList([nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)])
        self.act = nn.ReLU6() if capped else nn.ReLU()

    def forward(self, x):
        h = self.act(self.norms[0](self.first(x)))
        return (self.norms[1](self.second(h)) + x).relu_()


def _network(blocks=2, **kwargs):
    stem = [nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(), nn.Linear(8, 5)]
    return _warm(nn.Sequential(*stem, *(Residual(8, **kwargs) for _ in range(blocks)), *head), (3, 20, 20))


@pytest.fixture(scope="module")
def images():
    return torch.randn(90, 3, 20, 20, generator=torch.Generator().manual_seed(3)) + 0.5


@pytest.mark.parametrize(
    "kwargs",
    [{}, pytest.param({"groups": 2}, marks=pytest.mark.long), {"groups": 8, "capped": True}],
    ids=["plain", "grouped", "caps"],
)
def test_the_original_is_reproduced_where_strip_loses_it(images, kwargs, assert_degree):
    net = _network(**kwargs)
    conversion = to_xdnn(net, images[:4], calibration=images[:80], how="calibrate")
    assert (conversion.certificate.degree, conversion.certificate.exact) == (1.0, True)
    assert conversion.certificate.piecewise_linear
    assert_degree(conversion.model, images[80:])
    assert [layer.name for layer in conversion.layers][:3] == ["0", "4.first", "4.second"]
    assert all(layer.held_out > 0.9 for layer in conversion.layers[:-1])
    wanted = net(images[80:]).detach()
    spread = (wanted - wanted.mean(0)).norm()
    error = (conversion.model(images[80:]) - wanted).norm() / spread
    stripped = to_xdnn(net, images[:4], how="strip").model
    assert error < 0.5 < (stripped(images[80:]) - wanted).norm() / spread


@pytest.mark.parametrize(
    "form", [{"fit_weights": False}, {"read_biases": False}, {}], ids=["biases", "weights", "both"]
)
def test_activations_that_carry_a_constant_are_reproduced_exactly(form):
    """One input is always 1: a linear network can read its biases off it, and least squares must find that."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 6), nn.Linear(6, 4)).double()
    x = torch.randn(200, 5).double()
    x[:, 0] = 1
    conversion = to_xdnn(net, x[:4], calibration=Calibration(x, **EXACT, **form))
    fresh = torch.randn(50, 5).double()
    fresh[:, 0] = 1
    torch.testing.assert_close(conversion.model(fresh), net(fresh), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(conversion.model(3 * fresh), 3 * net(fresh), rtol=1e-6, atol=1e-6)
    assert all(layer.held_out == pytest.approx(1) for layer in conversion.layers)


def _with_range(n, generator=None):
    """Images of all contrasts whose brightest value is 1."""
    x = torch.rand(n, 3, 12, 12, generator=generator).double() - 0.5
    x = x * torch.rand(n, 1, 1, 1, generator=generator).double()
    x[:, 0, 3, 4] = 1
    return x


def test_a_constant_range_is_found_and_carried_through_all_layers():
    """c is the range of the input in every layer, so that the twin is c·f(x/c), which is f where c = 1."""
    generator = torch.Generator().manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(384, 4))
    net = net.double()
    x, fresh = _with_range(60, generator), _with_range(20, generator)
    found = to_xdnn(net, x[:2], calibration=Calibration(x, bias_ridge=1e-12, fit_weights=False), how="calibrate")
    assert all(layer.bias_error < 1e-6 for layer in found.layers)
    torch.testing.assert_close(found.model(fresh), net(fresh), rtol=1e-5, atol=1e-5)
    fainter = 0.2 * fresh
    torch.testing.assert_close(found.model(fainter), 0.2 * net(fainter / 0.2), rtol=1e-5, atol=1e-5)
    chosen = to_xdnn(net, x[:2], calibration=x, how="calibrate")
    assert all(layer.held_out > 0.99 for layer in chosen.layers)
    weights = [layer.weight for layer in net if hasattr(layer, "weight")]
    kept = [layer.weight for layer in chosen.model.children() if hasattr(layer, "weight")]
    assert all(torch.equal(a, b) for a, b, layer in zip(weights, kept, chosen.layers, strict=True) if layer.penalty > 9)


class Excited(nn.Module):
    """Squeeze and excitation; the gate may be brought into the images' shape behind it."""

    def __init__(self, channels, act, gate, shape=None):
        super().__init__()
        one = nn.Conv2d if shape is None else nn.Linear
        self.down, self.up = (one(a, b, *([1] if shape is None else [])) for a, b in ((channels, 3), (3, channels)))
        self.act, self.gate, self.shape = act, gate, shape

    def forward(self, x):
        gate = self.gate(self.up(self.act(self.down(x.mean((2, 3), keepdim=self.shape is None)))))
        if self.shape == "view":
            gate = gate.view(x.shape[0], x.shape[1], 1, 1).expand_as(x)
        elif self.shape == "index":
            gate = gate[:, :, None, None]
        return x * gate


@pytest.mark.parametrize(
    ("gate", "acts"),
    [
        (nn.Sigmoid(), [nn.SiLU(inplace=True), nn.GELU("tanh"), nn.Mish(), nn.ELU(0.7), nn.Sigmoid()]),
        (nn.Hardsigmoid(), [nn.Hardswish(), nn.SELU(), nn.CELU(), nn.Softplus(), nn.Tanh(), nn.Hardtanh()]),
    ],
    ids=["sigmoid", "hardsigmoid"],
)
def test_smooth_activations_and_gates_are_taken_at_the_scale_that_is_read(gate, acts):
    """c is the range of the input, exactly, so that the twin is c·f(x/c) with whatever activations f has."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    tail = [part for act in acts[1:] for part in (nn.Linear(8, 8), act)]
    stem = [nn.Conv2d(3, 6, 3), acts[0], Excited(6, acts[0], gate), nn.Flatten(), nn.Linear(600, 8), nn.ReLU()]
    net = nn.Sequential(*stem, *tail, nn.Linear(8, 4)).double().eval()
    x, fresh = _with_range(60, generator), _with_range(20, generator)
    found = to_xdnn(net, x[:2], calibration=Calibration(x, bias_ridge=1e-12, fit_weights=False), how="calibrate")
    assert (found.certificate.degree, found.certificate.exact) == (1.0, True)
    assert not found.certificate.piecewise_linear
    torch.testing.assert_close(found.model(fresh), net(fresh), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.model(0.2 * fresh), 0.2 * net(fresh), rtol=1e-5, atol=1e-5)
    assert not found.model(torch.zeros_like(fresh)).any()
    for twin in (copy.deepcopy(found.model), pickle.loads(pickle.dumps(found.model))):
        assert torch.equal(twin(fresh), found.model(fresh))


@pytest.mark.parametrize(
    ("shape", "bias"),
    [
        ("view", False),
        ("index", True),
        *(pytest.param(*one, marks=pytest.mark.long) for one in (("view", True), ("index", False))),
    ],
)
def test_a_gate_is_one_in_any_shape(shape, bias):
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    stem = [nn.Conv2d(3, 6, 3), nn.ReLU(), Excited(6, nn.ReLU(), nn.Sigmoid(), shape), nn.Flatten()]
    net = nn.Sequential(*stem, nn.Linear(600, 4, bias=bias)).double().eval()
    x, fresh = _with_range(60, generator), _with_range(20, generator)
    found = to_xdnn(net, x[:2], calibration=Calibration(x, bias_ridge=1e-12, fit_weights=False), how="calibrate")
    assert found.certificate.degree == 1
    torch.testing.assert_close(found.model(0.2 * fresh), 0.2 * net(fresh), rtol=1e-5, atol=1e-5)


def test_a_product_of_two_values_that_grow_is_refused():
    class Squared(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 2, bias=False)

        def forward(self, x):
            hidden = self.first(x).relu()
            return self.last(hidden * hidden)

    x = torch.randn(40, 4)
    with pytest.raises(ConversionError, match="degree 2, where degree 1 is wanted"):
        to_xdnn(Squared(), x, calibration=x, how="calibrate")


def test_probabilities_are_refused():
    x = torch.randn(30, 4)
    with pytest.raises(
        ConversionError, match=r"(?s)has aten\.sigmoid in 1, for which calibration has no homogeneous form.*lift"
    ):
        to_xdnn(nn.Sequential(nn.Linear(4, 2), nn.Sigmoid()), x, calibration=x, how="calibrate")


def test_weights_are_those_of_ridge_regression():
    """Without biases to read, W + ΔW minimises ‖(W + ΔW) h − W h − b‖² + λ‖ΔW‖²: the normal equations, by hand."""
    torch.manual_seed(0)
    net, x = nn.Linear(4, 3).double(), torch.randn(60, 4).double()
    model = to_xdnn(net, x, calibration=Calibration(x, read_biases=False, held_out=0, ridge=0.1), how="calibrate").model
    gram = x.T @ x
    change = torch.linalg.solve(gram + 0.1 * gram.diagonal().mean() * torch.eye(4), x.T @ net.bias.expand(60, 3))
    torch.testing.assert_close(model(x), x @ (net.weight.T + change))


def test_patches_are_what_the_convolution_sees():
    """With a constant channel in each group the bias can be built from weights; only right patches find it."""
    layer = nn.Conv2d(4, 6, (3, 2), stride=(1, 2), dilation=(2, 1), groups=2).double()
    x = torch.randn(40, 4, 7, 7).double()
    x[:, ::2] = 1
    calibration = Calibration(x, read_biases=False, ridge=1e-13, patches=100)
    model = to_xdnn(layer, x[:2], calibration=calibration, how="calibrate").model
    torch.testing.assert_close(model(x), layer(x), rtol=1e-6, atol=1e-6)


def test_any_batch_can_be_exported(images):
    assert to_xdnn(_network(), images, how="calibrate").certificate.dynamic == ("x[0] ≥ 2",)


@pytest.mark.parametrize("read_biases", [True, False])
def test_it_is_loaded_without_the_original(images, read_biases):
    """Its numbers and a fresh network of the same architecture are enough; the bias-free form has no biases."""
    form = {"read_biases": read_biases}
    model = to_xdnn(
        _network(capped=True), images[:4], calibration=Calibration(images, **form), how="calibrate"
    ).model.eval()
    assert any("bias" in name or "reader" in name for name, _ in model.named_parameters()) == read_biases
    fresh = _network(capped=True)
    for parameter in fresh.parameters():
        nn.init.ones_(parameter)
    again = calibrated_layout(fresh, images[:4], **form)
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(images[:6]), model(images[:6]))


def test_a_norm_before_the_convolution():
    net = _warm(
        nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 2)), (3, 8, 8)
    )
    x = torch.randn(60, 3, 8, 8) + 0.5
    assert to_xdnn(net, x[:2], calibration=x, how="calibrate").layers[0].calibration > 0.9


def test_it_is_the_same_every_time_and_the_model_stays_as_it_was(images):
    net = _network(blocks=1).train()
    before, state = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    one, two = (to_xdnn(net, images[:4], calibration=images, how="calibrate").model for _ in range(2))
    assert torch.equal(one(images[:8]), two(images[:8]))
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert net.training
    assert one.training


def test_tensors_loaders_and_generators_are_one(images):
    x = images.flatten(1)[:, :6].contiguous()
    net = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, torch.zeros(90)), batch_size=7)
    forms = (x, loader, (batch for batch in x.split(11)), Calibration(x))
    first, *others = (to_xdnn(net, x[:4], calibration=form, how="calibrate").model(x[:6]) for form in forms)
    for other in others:
        assert torch.equal(first, other)


def test_it_is_saved_loaded_and_trained(images):
    net = _network(blocks=1, capped=True)
    model = to_xdnn(net, images[:4], calibration=images, how="calibrate").model
    expected = model(images[:6])
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for twin in (torch.load(file, weights_only=False), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(images[:6]), expected)
    other = to_xdnn(
        _network(blocks=1, capped=True), images[:4], calibration=Calibration(images, patches=1), how="calibrate"
    ).model
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(images[:6]), expected)
    model(images).square().mean().backward()
    assert all(p.grad is not None for p in model.parameters())
    assert certify(model, images[:4]).degree == 1.0


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (torch.randn(1, 3, 20, 20), "1 images; it needs at least 8"),
        (torch.randn(20, 3, 24, 24), r"shape \(3, 24, 24\), the example inputs \(3, 20, 20\)"),
        (torch.full((20, 3, 20, 20), torch.nan), "have NaN"),
        (torch.randint(9, (20, 3, 20, 20)), "int64"),
        ([], "0 images"),
        (3, "is a int"),
        (["photo.jpg"], "batch of str"),
    ],
)
def test_bad_images_are_refused(bad, message):
    with pytest.raises(InputError, match=message):
        to_xdnn(_network(), torch.randn(2, 3, 20, 20), calibration=bad, how="calibrate")


def test_too_few_images_are_noticed():
    """60 weights build a constant out of noise on 30 samples, and not on others."""
    net, x = nn.Linear(60, 5), torch.randn(40, 60)
    nn.init.normal_(net.bias, std=3.0)
    with pytest.warns(OverfittingWarning, match="use more images"), pytest.warns(ConversionWarning, match="of 10 held"):
        to_xdnn(net, x[:2], calibration=Calibration(x, read_biases=False, ridge=1e-6, held_out=0.25), how="calibrate")


@pytest.mark.parametrize("layer", [nn.LayerNorm(6), nn.Softmax(-1), nn.LogSigmoid()])
def test_what_has_no_such_form_is_refused(layer):
    x = torch.randn(30, 4)
    with pytest.raises(ConversionError, match=r"(?s)for which calibration has no homogeneous form.*lift"):
        to_xdnn(nn.Sequential(nn.Linear(4, 6), layer, nn.Linear(6, 2)), x, calibration=x, how="calibrate")


def test_misplaced_options_are_refused():
    x = torch.randn(30, 4)
    with pytest.raises(ConfigurationError, match="belongs to how='calibrate'"):
        to_xdnn(nn.Linear(4, 2), x, how="lift", calibration=x)
    with pytest.raises(ConfigurationError, match="ridge=-1"):
        Calibration(x, ridge=-1)
    with pytest.raises(ConversionError, match="models of one input"):
        to_xdnn(nn.Bilinear(4, 4, 2), (x, x), calibration=x, how="calibrate")


class SequenceFirst(nn.Module):
    """Attention that torch computes with places first, so that no layer in it can be fitted sample by sample."""

    def __init__(self):
        super().__init__()
        self.norm, self.last = nn.LayerNorm(8), nn.Linear(8, 2)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        y = self.norm(x)
        return self.last((x + self.attention(y, y, y, need_weights=False)[0]).mean(1))


def test_a_norm_is_named_before_anything_is_fitted():
    x, asked = torch.randn(30, 5, 8), []
    calibration = Calibration(x, progress=lambda *done: asked.append(done))
    with pytest.raises(
        ConversionError, match=r"(?s)^SequenceFirst has aten\.layer_norm in norm, for which .*lift"
    ) as told:
        to_xdnn(SequenceFirst(), x[:2], calibration=calibration, how="calibrate")
    assert "RuntimeError" not in str(told.value)
    assert not asked
