import copy

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

import axiograd


class Attention(nn.Module):
    """A transformer's block with everything that is not homogeneous in it."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.place = nn.Parameter(torch.randn(1, 16, 16) * 0.1)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, activation="gelu", batch_first=True, norm_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.place
        return self.head(self.block(tokens).mean(1))


class Products(nn.Module):
    """Of degree 2, on two inputs that scale together, and a mask that does not."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 6, bias=False), nn.Linear(3, 6, bias=False)

    def forward(self, left, right, mask):
        return self.a(left) * self.b(right).relu() * mask


class Around(nn.Module):
    """Homogeneous around a baseline that is not zero."""

    def __init__(self):
        super().__init__()
        self.register_buffer("origin", torch.tensor([0.5, -1.0, 2.0, 0.25]))
        self.net = nn.Sequential(nn.Linear(4, 8, bias=False), nn.PReLU(), nn.Linear(8, 1, bias=False))

    def forward(self, x):
        return self.net(x - self.origin).squeeze(1)


def convolutional():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        nn.Conv2d(8, 8, 3, padding=1, groups=4),
        nn.Hardtanh(-0.5, 0.5),
        nn.AvgPool2d(2, ceil_mode=True),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 4),
    )


def settled(model):
    """In eval mode, with statistics and shifts that are not those of a new network."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.normal_(module.running_mean)
            nn.init.normal_(module.bias)
    return model.eval()


def build(name):
    """A model, inputs for it, and options of the export."""
    torch.manual_seed(0)
    if name in {"strip", "lift"}:
        x = torch.randn(1, 3, 21, 19)
        model = axiograd.to_xdnn(settled(convolutional()), x, how=name).model
        return model.eval(), x, {"pool": 4} if name == "strip" else {}
    if name == "attention":
        x = torch.randn(2, 3, 16, 16)
        return axiograd.to_xdnn(Attention().eval(), x, how="lift").model.eval(), x, {"target": "weights"}
    if name == "products":
        inputs = {"left": torch.randn(3, 5), "right": torch.randn(3, 3), "mask": torch.tensor([[1], [0], [1]])}
        return Products().eval(), inputs, {}
    model = Around().eval()
    return model, torch.randn(2, 4), {"baseline": model.origin.clone()}


#: The network with attention is lifted too.
NAMES = ("strip", pytest.param("lift", marks=pytest.mark.long), "attention", "products", "around")


@pytest.fixture(scope="session", params=NAMES)
def exported(request, tmp_path_factory):
    """(name, model, example inputs, options, card, session) of a file."""
    model, x, options = build(request.param)
    path = tmp_path_factory.mktemp(request.param) / "model.onnx"
    before = copy.deepcopy(model.state_dict())
    card = axiograd.export_onnx(model, x, path, **options)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return request.param, model, x, options, card, session, path


@pytest.fixture(scope="session")
def quadrature():
    return integrated_gradients


def integrated_gradients(function, inputs, baselines, steps=16):
    """Integrated Gradients in float64, by Gauss and Legendre's rule on the straight line from the baselines."""
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    total = [torch.zeros_like(x) for x in inputs]
    for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        points = [(b + node * (x - b)).requires_grad_() for x, b in zip(inputs, baselines, strict=True)]
        gradients = torch.autograd.grad(function(*points).sum(), points)
        total = [t + weight * g for t, g in zip(total, gradients, strict=True)]
    return [(x - b) * t for x, b, t in zip(inputs, baselines, total, strict=True)]
