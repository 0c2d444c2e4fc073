"""The MLP of the NHANES experiment."""

import torch

from axiograd.models import MLP, get_model


def test_default_is_the_papers():
    assert [p.shape[0] for p in MLP(homogeneous=True).parameters()] == [512, 128, 32, 1]
    assert sum(p.numel() for p in MLP().parameters()) == 118 * 512 + 512 + 512 * 128 + 128 + 128 * 32 + 32 + 32 + 1


def test_keys_are_those_of_a_plain_sequential():
    assert list(get_model("xmlp").state_dict()) == ["0.weight", "2.weight", "4.weight", "6.weight"]


def test_dropout_is_between_the_layers():
    model = MLP(2, 3, hidden=(4,), dropout=0.5)
    assert [type(layer).__name__ for layer in model] == ["Linear", "ReLU", "Dropout", "Linear"]
    assert model(torch.rand(5, 3)).shape == (5, 2)
