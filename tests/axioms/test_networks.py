"""Networks made of networks, against the functions that they should be."""

import pytest
import torch
from torch import nn

from axiograd.axioms.networks import Network, random_network, saturating, two_implementations
from axiograd.errors import TargetError

X = torch.randn(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def dense(*, bias=True, seed=0):
    return random_network((4, 7, 5, 1), torch.Generator().manual_seed(seed), bias=bias)


def given():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    return Network.of(model, X, 2)


@pytest.mark.parametrize("network", [dense(), dense(bias=False), given()], ids=["dense", "homogeneous", "given"])
def test_made_of_it(network):
    value = network(X)
    assert torch.allclose(network.permuted([2, 0, 3, 1])(X), network(X[:, [2, 0, 3, 1]]))
    frozen = X.clone()
    frozen[:, [0, 2]] = 0
    assert torch.allclose(network.masked(torch.tensor([False, True, False, True]))(X), network(frozen))
    other = network.permuted([3, 2, 1, 0])
    assert torch.allclose(network.combined(1.5, other, -2.0)(X), 1.5 * value - 2 * other(X))
    names = set()
    for name, twin in network.equivalents(torch.Generator().manual_seed(0)):
        assert torch.allclose(twin(X), value, atol=1e-12), name
        names.add(name)
    assert len(names) >= 3


def test_only_one_scalar_per_sample():
    with pytest.raises(TargetError, match=r"target=None for an output of shape \(9, 3\)"):
        Network.of(nn.Linear(4, 3).double(), X, None)
    with pytest.raises(TargetError, match="target=3"):
        Network.of(nn.Linear(4, 3).double(), X, 3)


def test_known_functions():
    generator = torch.Generator().manual_seed(0)
    subject = saturating(generator)
    assert subject.inputs[0, 0] == 2
    assert torch.allclose(subject.network(X), 1 - torch.relu(1 - X[:, 0]))
    pair = two_implementations(generator)
    x = 3 * X
    expected = torch.relu(torch.relu(x[:, 0]) - 1 - torch.relu(x[:, 1]))
    assert torch.allclose(pair.network(x), expected)
    assert torch.allclose(dict(pair.network.equivalents(generator))["the bias moved into the inner ReLU"](x), expected)
