"""Layers of torch.nn, stripped, against brute force in float64 and against themselves at the scale of their data."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from axiograd.homogeneity.conversion import UncentredBatchNorm, to_xdnn
from axiograd.homogeneity.conversion.rewrite import fit_slopes

ACTIVATIONS = [
    *(nn.CELU(), nn.ELU(), nn.GELU(), nn.Hardshrink(), nn.Hardswish(), nn.Hardtanh(), nn.LogSigmoid(), nn.Mish()),
    *(nn.ReLU6(), nn.SELU(), nn.SiLU(inplace=True), nn.Softplus(), nn.Softshrink(), nn.Softsign(), nn.Tanh()),
    *(nn.Tanhshrink(), nn.Threshold(0.1, 0.0)),
]
IMAGE, TOKENS = (3, 4, 5, 5), (3, 4, 6)
NORMS = {
    "layer": (nn.LayerNorm(6), TOKENS),
    "rms": (nn.RMSNorm(6), TOKENS),
    "group": (nn.GroupNorm(2, 4), IMAGE),
    "response": (nn.LocalResponseNorm(2), IMAGE),
    "instance": (nn.Sequential(nn.InstanceNorm2d(4, affine=True)), IMAGE),
}
GATES = [nn.Hardsigmoid(), nn.LogSoftmax(-1), nn.Sigmoid(), nn.Softmax(-1), nn.Softmax2d(), nn.Softmin(-1)]


class First(nn.Module):
    """The output of a recurrent or attention layer, without its state."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x, x, x)[0] if isinstance(self.layer, nn.MultiheadAttention) else self.layer(x)[0]


class Gate(nn.Module):
    def __init__(self, gate):
        super().__init__()
        self.gate = gate

    def forward(self, x):
        return x * self.gate(x)


RECURRENT = [kind(6, 6, batch_first=first) for kind in (nn.LSTM, nn.GRU, nn.RNN) for first in (True, False)]
ATTENTION = [
    nn.MultiheadAttention(6, 2, **options)
    for options in ({"batch_first": True}, {}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"bias": False})
]
LAYERS = [
    *((nn.Sequential(copy.deepcopy(act)), TOKENS) for act in ACTIVATIONS),
    *((norm, shape) for norm, shape in NORMS.values()),
    *((Gate(gate), IMAGE) for gate in GATES),
    *((First(layer), TOKENS) for layer in (*RECURRENT, *ATTENTION)),
    (nn.GLU(), TOKENS),
]


def _id(value):
    return str(value).split("(")[0] + str(getattr(value, "_modules", "")) if isinstance(value, nn.Module) else ""


@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=_id)
def test_a_stripped_layer_has_degree_one(layer, shape, assert_degree):
    x = 3 * torch.randn(shape)
    assert_degree(to_xdnn(layer.eval(), x, how="strip").model, x)


WITHOUT_BIAS = [
    First(nn.MultiheadAttention(6, 2, bias=False)),
    First(nn.MultiheadAttention(6, 2, bias=False, batch_first=True)),
]
SAME = [*(n for n, _ in NORMS.values()), *map(Gate, GATES), *map(First, RECURRENT[::2]), *WITHOUT_BIAS[1:], nn.GLU()]


@pytest.mark.parametrize("layer", SAME, ids=_id)
def test_it_is_the_original_at_the_scale_of_its_data(layer):
    x = 4 * torch.randn(
        1, *(IMAGE if isinstance(layer, nn.GroupNorm | nn.LocalResponseNorm | nn.Sequential | Gate) else TOKENS)[1:]
    )
    torch.testing.assert_close(to_xdnn(layer.eval(), x, how="strip").model(x), layer(x))


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=_id)
def test_slopes_are_numpy_least_squares(activation):
    x = torch.randn(400, dtype=torch.float64)
    z, y = x.numpy(), activation(x.clone()).numpy()
    basis = np.stack([np.maximum(z, 0), np.minimum(z, 0)], axis=1)
    expected = np.linalg.lstsq(basis, y, rcond=None)[0]
    np.testing.assert_allclose(fit_slopes(lambda z: activation(z.clone()), x).numpy(), expected, rtol=1e-9, atol=1e-12)


def test_a_side_never_seen_is_fitted_at_one():
    slopes = fit_slopes(nn.ELU(), torch.tensor([1.0, 2.0]))
    assert slopes[0].item() == 1.0
    assert slopes[1].item() == pytest.approx(1 - np.exp(-1))


def test_a_layer_that_is_called_twice_is_calibrated_to_the_mean_of_both():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = nn.ReLU6()

        def forward(self, x):
            return self.act(x) + self.act(4 * x)

    slopes = to_xdnn(Twice(), torch.full((1, 1), 3.0), how="strip").model.act.homogeneous_hardtanh_0
    assert slopes[0].item() == pytest.approx((1.0 + 0.5) / 2)


def test_a_gate_at_zero_is_the_gate_of_zero():
    model = to_xdnn(Gate(nn.Sigmoid()), torch.randn(4, 3), how="strip").model
    s = torch.zeros(1, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(model.gate(s).sum(), s)
    assert model.gate(s).tolist() == [[0.5, 0.5, 0.5]]
    assert torch.isfinite(gradient).all()


def test_hard_sigmoid_has_a_second_derivative():
    model, s = (
        to_xdnn(Gate(nn.Hardsigmoid()), torch.randn(2, 3), how="strip").model,
        torch.randn(2, 3, requires_grad=True),
    )
    (gradient,) = torch.autograd.grad(model(s).square().sum(), s, create_graph=True)
    (second,) = torch.autograd.grad(gradient.square().sum(), s)
    assert torch.isfinite(second).all()
    assert second.abs().sum() > 0


def test_attention_with_other_widths_and_masks():
    class Cross(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, kdim=4, vdim=6, batch_first=True)

        def forward(self, query, key, value, drop):
            return self.attention(query, key, value, key_padding_mask=drop)[0]

    inputs = torch.randn(2, 3, 8), torch.randn(2, 5, 4), torch.randn(2, 5, 6)
    drop = torch.arange(5).expand(2, 5) == 4
    model = to_xdnn(Cross().eval(), inputs, additional_forward_args=drop, how="strip").model
    output = model(*inputs, drop)
    torch.testing.assert_close(model(*(3 * x for x in inputs), drop), 3 * output)
    torch.testing.assert_close(model(*(x[1:] for x in inputs), drop[1:]), output[1:])
    value = torch.where(drop[..., None], 1e3, inputs[2])
    torch.testing.assert_close(model(*inputs[:2], value, drop), output)


def test_states_of_recurrent_layers_scale_too():
    layer = to_xdnn(nn.LSTM(5, 6, batch_first=True), torch.randn(3, 4, 5), how="strip").model
    x, state = torch.randn(3, 4, 5), (torch.randn(1, 3, 6), torch.randn(1, 3, 6))
    output, (h, c) = layer(x, state)
    doubled, (h2, c2) = layer(2 * x, (2 * state[0], 2 * state[1]))
    for one, two in ((output, doubled), (h, h2), (c, c2)):
        torch.testing.assert_close(two, 2 * one)


def test_the_scale_of_a_norm_follows_in_train_mode_only():
    norm = to_xdnn(nn.LayerNorm(6), torch.randn(8, 6), how="strip").model.train()
    before = norm.homogeneous_layer_norm_0.clone()
    norm(torch.randn(8, 6) * 100)
    assert norm.homogeneous_layer_norm_0 > before
    before = norm.homogeneous_layer_norm_0.clone()
    norm.eval()(torch.randn(8, 6) * 100)
    assert norm.homogeneous_layer_norm_0 == before


def test_uncentred_batch_norm_keeps_keys_and_weights_of_a_trained_one():
    norm = nn.BatchNorm2d(3)
    norm(torch.randn(4, 3, 5, 5) + 2)
    nn.init.uniform_(norm.weight)
    stripped = to_xdnn(norm, torch.randn(4, 3, 5, 5), how="strip").model
    assert set(stripped.state_dict()) == {"weight", "running_var", "num_batches_tracked"}
    torch.testing.assert_close(stripped.weight, norm.weight)
    torch.testing.assert_close(stripped.running_var, norm.running_var + norm.running_mean**2)


@pytest.mark.parametrize("options", [{}, {"affine": False, "track_running_stats": False}])
def test_a_fresh_batch_norm_is_calibrated(options):
    x = torch.randn(24, 3) * 4
    torch.testing.assert_close(
        to_xdnn(nn.BatchNorm1d(3, **options), x, how="strip").model.running_var, x.square().mean(0)
    )


@pytest.mark.parametrize("mode", [True, False])
def test_uncentred_batch_norm_is_linear_in_both_modes(mode):
    norm, x = UncentredBatchNorm(3).double().train(mode), torch.randn(4, 3, 5, dtype=torch.float64)
    y = copy.deepcopy(norm)(x)
    torch.testing.assert_close(copy.deepcopy(norm)(7 * x), 7 * y)
    torch.testing.assert_close(copy.deepcopy(norm)(x - 1), y - copy.deepcopy(norm)(torch.ones_like(x)))


def test_uncentred_batch_norm_learns_the_second_moment():
    norm, x = UncentredBatchNorm(2), torch.randn(64, 2) * torch.tensor([3.0, 0.5]) + 1
    for _ in range(200):
        norm(x)
    torch.testing.assert_close(norm.running_var, x.square().mean(0), rtol=1e-4, atol=1e-4)
    mean = UncentredBatchNorm(2, momentum=None)
    mean(x), mean(2 * x)
    torch.testing.assert_close(mean.running_var, 2.5 * x.square().mean(0))
