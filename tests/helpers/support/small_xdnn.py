"""A small X-DNN whose attributions can be written out by hand."""

import torch
from torch import nn
from torch.nn import functional as F

from axiograd.priors import RightReasons
from axiograd.training.loss import AttributionLoss

BATCH, FEATURES, CLASSES = 5, 6, 4
Y = torch.tensor([0, 3, 1, 1, 2])
MASK = torch.zeros(BATCH, FEATURES, dtype=torch.bool)
MASK[:, :2] = True


class Net(nn.Module):
    def __init__(self, n_outputs: int = CLASSES, n_features: int = FEATURES, dtype=torch.float64) -> None:
        super().__init__()
        self.first = nn.Linear(n_features, 7, bias=False, dtype=dtype)
        self.last = nn.Linear(7, n_outputs, bias=False, dtype=dtype)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.last(self.first(x).relu())


def attributions_by_hand(model: Net, x: torch.Tensor) -> torch.Tensor:
    """[classes, batch, features]: x ⊙ ∇F_c by the chain rule written out."""
    active = (x @ model.first.weight.T > 0).to(x)
    gradients = torch.einsum("ch,bh,hf->cbf", model.last.weight, active, model.first.weight)
    return x * gradients


def grads(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def xgradient_loss(prior=None, weight=0.7, **options) -> AttributionLoss:
    return AttributionLoss(F.cross_entropy, prior or RightReasons(), weight, degree=1, **options)


def make_net() -> Net:
    torch.manual_seed(0)
    return Net()


def make_inputs() -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(BATCH, FEATURES, dtype=torch.float64)
