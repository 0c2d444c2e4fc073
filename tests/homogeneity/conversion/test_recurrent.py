import copy

import pytest
import torch
from torch import nn

from axiograd.homogeneity.conversion.calibration import calibrate
from axiograd.homogeneity.conversion.example import ExampleCall
from axiograd.homogeneity.conversion.strip import ModuleStripper


class First(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


def _stripped(model, x):
    stripped, _ = ModuleStripper().strip(copy.deepcopy(model))
    calibrate(stripped, ExampleCall.ensure(stripped, x))
    return stripped


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layer_has_degree_one(kind, batch_first, assert_degree):
    x = torch.randn(3, 4, 5)
    assert_degree(_stripped(First(kind(5, 6, batch_first=batch_first)), x), x)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layer_is_the_original_at_the_scale_of_its_data(kind):
    model, x = First(kind(5, 6, batch_first=True)), torch.randn(1, 4, 5) * 3
    torch.testing.assert_close(_stripped(model, x)(x), model(x))


def test_states_scale_too():
    layer, _ = ModuleStripper().strip(nn.LSTM(5, 6, batch_first=True))
    x, state = torch.randn(3, 4, 5), (torch.randn(1, 3, 6), torch.randn(1, 3, 6))
    output, (h, c) = layer(x, state)
    doubled, (h2, c2) = layer(2 * x, (2 * state[0], 2 * state[1]))
    for one, two in ((output, doubled), (h, h2), (c, c2)):
        torch.testing.assert_close(two, 2 * one)
