import pytest
import torch
from torch import nn

from axiograd.errors import StorageError
from axiograd.training.checkpoint import load_model, load_optimizer, model_tensors, optimizer_tensors


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.b = nn.Linear(3, 3)
        self.b.weight = self.a.weight
        self.unused = nn.Linear(2, 2)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x):
        return self.norm(self.b(self.a(x)))


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1),
}


def step(model, optimizer):
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    optimizer.zero_grad()
    model(x).square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_copy_goes_on_like_the_original(name):
    torch.manual_seed(0)
    model = Tied()
    optimizer = OPTIMIZERS[name](model.parameters())
    step(model, optimizer)
    weights, memory = model_tensors(model), optimizer_tensors(model, optimizer)
    assert not any(key.startswith("unused") for key in memory)
    copy = Tied()
    copied = OPTIMIZERS[name](copy.parameters())
    load_model(copy, weights)
    load_optimizer(copy, copied, memory)
    for _ in range(3):
        step(model, optimizer)
        step(copy, copied)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), copy.parameters(), strict=True))


def test_what_does_not_fit_is_named():
    with pytest.raises(StorageError, match="Missing key"):
        load_model(nn.Linear(2, 2), {})
    model = nn.Linear(2, 2)
    with pytest.raises(StorageError, match="other"):
        load_optimizer(model, torch.optim.SGD(model.parameters(), lr=1), {"other|momentum_buffer": torch.zeros(2)})


def test_states_that_are_not_tensors_are_refused():
    with pytest.raises(StorageError, match="_extra_state"):
        model_tensors(_WithExtra())


class _WithExtra(nn.Linear):
    def __init__(self):
        super().__init__(2, 2)

    def get_extra_state(self):
        return {"code": 1}
