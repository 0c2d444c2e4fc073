"""The one table of methods: complete, buildable from common settings, and what it says is so."""

import pytest
import torch
from torch import nn

import axiograd
from axiograd import attribution
from axiograd.attribution.methods import METHODS, find_method
from axiograd.errors import ConfigurationError, NotFiniteError


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


def test_completeness_where_the_baseline_is_zero_over_zero():
    """B-cos units, w·x |w·x| / ‖x‖, are of degree 1 and have no value at zero, but a limit there: 0."""
    torch.manual_seed(0)
    w = torch.randn(3, 6, dtype=torch.double)

    def b_cos(x):
        score = x @ w.T
        return score * score.abs() / x.norm(dim=1, keepdim=True)

    x = torch.randn(4, 6, dtype=torch.double)
    assert bool(b_cos(torch.zeros_like(x)).isnan().all())
    for method in (axiograd.InputXGradient(b_cos), axiograd.IntegratedGradients(b_cos, 8)):
        found = method.completeness(x, 1)
        torch.testing.assert_close(found.delta, method.attribute(x, 1).sum(1) - b_cos(x)[:, 1])
        assert float(found.relative.max()) < 1e-12
        assert "e-" in str(found)
    constant = axiograd.InputXGradient(lambda x: (x / x.norm(dim=1, keepdim=True))[:, 0])  # of degree 0: no limit of 0
    assert float(constant.completeness(x).delta.abs().max()) < 1e-12
    with pytest.raises(NotFiniteError, match="for sample 0, 1, 2, 3: the model is not finite at the baseline"):
        axiograd.InputXGradient(lambda x: x.square().sum(1).log()).completeness(x)


def test_explanations_are_compared_by_identity():
    method, x = axiograd.InputXGradient(torch.nn.Linear(3, 2)), torch.randn(4, 3)
    one, other = method.explain(x, 1), method.explain(x, 1)
    assert (one == other) is False
    assert one in [other, one]
    assert len({one, other}) == 2
    assert (method.completeness(x, 1) == method.completeness(x, 1)) is False
