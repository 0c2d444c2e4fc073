"""A model in functional style, and what becomes of its copies, files and state."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from axiograd.errors import ConversionError
from axiograd.homogeneity.conversion import to_xdnn


class Tokens(nn.Module):
    """A little vision transformer in functional style."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(5, 8)
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.position = nn.Parameter(torch.randn(1, 4, 8))
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.weight, self.bias = nn.Parameter(torch.ones(8)), nn.Parameter(torch.ones(8))

    def forward(self, x):
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), self.embed(x)], dim=1) + self.position
        q, k, v = self.qkv(F.layer_norm(x, (8,), self.weight, self.bias)).chunk(3, -1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v))
        return F.dropout(F.gelu(x), 0.1, self.training)[:, 0]


class Switch(nn.Module):
    def __init__(self):
        super().__init__()
        self.extra = False

    def forward(self, x):
        return torch.relu(x) + 1 if self.extra else torch.relu(x) * torch.sigmoid(x)


@pytest.fixture(scope="module")
def converted():
    torch.manual_seed(0)
    model, x = Tokens().eval(), torch.randn(3, 3, 5)
    return model, x, to_xdnn(model, x, how="strip")


def test_functional_code_is_stripped_and_proved(converted, assert_degree):
    _, x, conversion = converted
    assert (conversion.certificate.degree, conversion.certificate.exact) == (1.0, True)
    assert_degree(conversion.model, x)
    kinds = {e.before for e in conversion.edits if e.source}
    assert kinds == {"cat", "add", "layer_norm", "scaled_dot_product_attention", "gelu"}
    assert all("test_functional_code.py:" in e.source for e in conversion.edits if e.source)


def test_tokens_and_positions_are_kept_and_matter(converted):
    model, x, conversion = converted
    assert torch.equal(conversion.model.token, model.token)
    before = conversion.model(x)
    with torch.no_grad():
        moved = copy.deepcopy(conversion.model)
        moved.position.add_(1)
    assert not torch.allclose(moved(x), before)


def test_the_original_is_untouched(converted):
    model, _, conversion = converted
    assert "forward" not in vars(model)
    assert model.embed.bias is not None
    assert set(conversion.removed) == {"embed.bias", "qkv.bias", "out.bias"}
    kept = set(model.state_dict()) - set(conversion.removed)
    assert all(torch.equal(conversion.model.state_dict()[k], model.state_dict()[k]) for k in kept)


def test_it_copies_pickles_exports_and_trains(converted):
    _, x, conversion = converted
    model = copy.deepcopy(conversion.model)
    expected = model(x)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin.forward.module is twin
        torch.testing.assert_close(twin(x), expected)
    torch.testing.assert_close(torch.export.export(model, (x,)).module()(x), expected)
    model.train()
    model(x).square().sum().backward()
    assert all(p.grad is not None for n, p in model.named_parameters() if n != "bias")
    torch.testing.assert_close(model.eval()(x), expected)


def test_state_dict_carries_the_calibration(converted):
    model, x, conversion = converted
    other = to_xdnn(model, 50 * x, how="strip").model
    assert not torch.allclose(other(x), conversion.model(x))
    other.load_state_dict(conversion.model.state_dict())
    torch.testing.assert_close(other(x), conversion.model(x))


def test_a_path_not_seen_before_says_so():
    model = Switch()
    converted = to_xdnn(model, torch.randn(2, 3), how="strip").model
    converted.extra = True
    with pytest.raises(ConversionError, match=r"'add' at .*test_functional_code.py:\d+ on a path"):
        converted(torch.randn(2, 3))
