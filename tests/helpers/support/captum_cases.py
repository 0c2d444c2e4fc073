"""Regular networks with their inputs, and Captum without our adapter."""

import warnings

import torch
from torch import nn

EXACT = {"rtol": 1e-12, "atol": 1e-14}


class TwoInputs(nn.Module):
    """Biases, GELU, two inputs of different shape, and an argument that is not attributed."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 6), nn.Linear(3, 6)
        self.head = nn.Sequential(nn.GELU(), nn.Linear(6, 3))

    def forward(self, x, z, scale=None, power=1):
        h = self.a(x) * torch.tanh(self.b(z))
        return self.head(h if scale is None else h * scale[:, None] ** power)


class ConvNet(nn.Module):
    """Captum's LRP has no rule for nn.Flatten, so flattening is a function."""

    def __init__(self, pool=nn.MaxPool2d):
        super().__init__()
        self.first, self.relu, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(4)
        self.pool, self.second, self.relu2 = pool(2), nn.Conv2d(4, 4, 3), nn.ReLU()
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.relu2(self.second(self.pool(self.relu(self.norm(self.first(x)))))).flatten(1))


def images():
    torch.manual_seed(1)
    return ConvNet().double().eval(), torch.randn(3, 2, 8, 8, dtype=torch.float64), torch.tensor([0, 2, 1])


def pairs():
    torch.manual_seed(2)
    inputs = (torch.randn(5, 4, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64))
    return TwoInputs().double(), inputs, (torch.rand(5, dtype=torch.float64), 2)


def directly(make, *args, **kwargs):
    with warnings.catch_warnings():  # Captum announces the hooks and requires_grad that it sets
        warnings.simplefilter("ignore")
        found = make().attribute(*args, **kwargs)
    return tuple(f.detach() for f in found) if isinstance(found, tuple) else found.detach()
