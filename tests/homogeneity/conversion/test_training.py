"""Every counterpart trains: gradients by brute force on a network whose constants are frozen, in train mode."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from axiograd import AttributionLoss, XGradient, to_xdnn
from axiograd.homogeneity.conversion import UncentredBatchNorm
from axiograd.priors import L1


class Last(nn.Module):
    """The output of a recurrent or attention layer, without its state."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x, x, x)[0] if isinstance(self.layer, nn.MultiheadAttention) else self.layer(x)[0]


def _sequence(layer):
    return nn.Sequential(nn.Linear(6, 4), Last(layer), nn.Flatten(), nn.Linear(20, 3)), (4, 5, 6)


def _image(layer, kind=nn.Conv2d, axes=2):
    return nn.Sequential(kind(2, 4, 2), layer, nn.ReLU(), nn.Flatten(), nn.Linear(4 * 2**axes, 3)), (4, 2, *[3] * axes)


def _row(*layers, width=8):
    return nn.Sequential(nn.Linear(6, 8), *layers, nn.Linear(width, 3)), (4, 6)


NETWORKS_OF_NORMS = {
    nn.LayerNorm: _row(nn.LayerNorm(8)),
    nn.RMSNorm: _row(nn.RMSNorm(8)),
    nn.GroupNorm: _image(nn.GroupNorm(2, 4)),
    nn.LocalResponseNorm: _image(nn.LocalResponseNorm(2)),
    nn.InstanceNorm1d: _image(nn.InstanceNorm1d(4, affine=True), nn.Conv1d, 1),
    nn.InstanceNorm2d: _image(nn.InstanceNorm2d(4, affine=True)),
    nn.InstanceNorm3d: _image(nn.InstanceNorm3d(4), nn.Conv3d, 3),
    nn.BatchNorm1d: _row(nn.BatchNorm1d(8), nn.GELU()),
    nn.BatchNorm2d: _image(nn.BatchNorm2d(4, momentum=None)),
    nn.BatchNorm3d: _image(nn.BatchNorm3d(4), nn.Conv3d, 3),
    nn.SyncBatchNorm: _row(nn.SyncBatchNorm(8)),
}
OTHERS = {
    "activation": _row(nn.GELU()),
    "gate": _row(nn.Sigmoid()),
    "hard gate": _row(nn.Hardsigmoid()),
    "glu": _row(nn.GLU(), width=4),
    "attention": _sequence(nn.MultiheadAttention(4, 2, batch_first=True)),
    "lstm": _sequence(nn.LSTM(4, 4, batch_first=True)),
    "gru": _sequence(nn.GRU(4, 4, batch_first=True)),
    "rnn": _sequence(nn.RNN(4, 4, batch_first=True)),
}
NETWORKS = {kind.__name__: network for kind, network in NETWORKS_OF_NORMS.items()} | OTHERS


#: Whose scale follows the data in train mode.
NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.LocalResponseNorm, nn.modules.instancenorm._InstanceNorm)
#: What differs from another one by its number of axes or gates alone.
ALIKE = {"InstanceNorm1d", "InstanceNorm3d", "BatchNorm3d", "SyncBatchNorm", "RMSNorm", "hard gate", "lstm", "rnn"}


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.long) if name in ALIKE else name for name in NETWORKS],
)
def converted(request):
    torch.manual_seed(0)
    network, shape = NETWORKS[request.param]
    x = torch.randn(shape, dtype=torch.float64)
    return to_xdnn(copy.deepcopy(network).double().eval(), x, how="strip").model.train(), 2 * x


@pytest.fixture
def step(converted):
    """A stripped network in train mode, inputs at another scale than those it was calibrated on, and classes."""
    model, x = converted
    return copy.deepcopy(model), x, torch.tensor([0, 1, 2, 0])


def _gradients(model):
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def _frozen(model):
    """The same network with constants that stay: what train mode computes before it moves them."""
    return copy.deepcopy(model).eval()


def test_a_training_step(step):
    model, x, y = step
    oracle = _frozen(model)
    F.cross_entropy(oracle(x), y).backward()
    F.cross_entropy(model(x), y).backward()
    torch.testing.assert_close(_gradients(model), _gradients(oracle))


def test_buffers_that_move_before_the_backward_pass(step):
    """As a second forward pass moves them, and a broadcast of buffers between processes."""
    model, x, y = step
    oracle = _frozen(model)
    F.cross_entropy(oracle(x), y).backward()
    loss = F.cross_entropy(model(x), y)
    for buffer in model.buffers():
        buffer.mul_(2)
    loss.backward()
    torch.testing.assert_close(_gradients(model), _gradients(oracle))


def test_a_step_with_a_prior_and_attributions_that_move_nothing(step):
    model, x, y = step
    before = copy.deepcopy(model.state_dict())
    chosen = _frozen(model)(x)[torch.arange(4), y]
    torch.testing.assert_close(XGradient(model).attribute(x, y).flatten(1).sum(1), chosen)
    torch.testing.assert_close(model.state_dict(), before)
    terms = AttributionLoss(F.cross_entropy, L1(), weight=0.5)(model, x, y)
    terms.total.backward()
    torch.testing.assert_close(terms.attributions.flatten(1).sum(1), chosen)
    assert all(gradient.isfinite().all() and gradient.any() for gradient in _gradients(model).values())
    learns = any(isinstance(module, (UncentredBatchNorm, *NORMS)) for module in model.modules())
    assert learns == any(not torch.equal(value, before[name]) for name, value in model.named_buffers())
