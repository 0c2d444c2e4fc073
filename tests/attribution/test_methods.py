"""The one table of methods: complete, buildable from common settings, and what it says is so."""

import pytest
import torch
from torch import nn

import axiograd
from axiograd import attribution
from axiograd.attribution.methods import METHODS, find_method
from axiograd.errors import ConfigurationError


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 1, bias=False)).double()


def test_every_public_method_is_in_the_table():
    public = {
        one
        for one in vars(attribution).values()
        if isinstance(one, type) and issubclass(one, attribution.Attribution) and one.__module__.startswith("axiograd")
    }
    assert public - {attribution.Attribution, attribution.CaptumMethod} == {e.method for e in METHODS.values()}


@pytest.mark.parametrize("name", METHODS)
def test_all_are_built_by_one_call(name):
    model, x = _model(), torch.randn(3, 4, dtype=torch.float64)
    settings = {"steps": 3, "references": torch.randn(9, 4, dtype=torch.float64), "internal_batch_size": 4}
    method = METHODS[name].build(model, **settings, generator=torch.Generator().manual_seed(0))
    assert type(method) is find_method(name).method
    if METHODS[name].count is not None:
        assert getattr(method, METHODS[name].count) == 3
    found = method.attribute(x)
    assert found.shape == x.shape
    adds_up = torch.allclose(found.sum(1), model(x)[:, 0])
    assert adds_up == METHODS[name].adds_up  # on an X-DNN, where F(0) = 0


def test_titles_say_how_many_gradients():
    assert METHODS["expected-gradients"].titled() == "Expected Gradients (1)"
    assert METHODS["gradient"].titled(128) == "Gradient"


def test_names_of_classes_and_near_misses():
    assert find_method("XGradient").method is axiograd.XGradient
    with pytest.raises(ConfigurationError, match=r"no method 'saliancy': did you mean 'saliency'\?"):
        find_method("saliancy")
    with pytest.raises(ConfigurationError, match="needs references"):
        METHODS["expected-gradients"].build(_model())
