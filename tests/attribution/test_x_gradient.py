import captum.attr
import pytest
import torch
from torch import nn

import axiograd
from axiograd.attribution import InexactWarning
from axiograd.errors import BaselineError, ConfigurationError, NotHomogeneousError
from support.networks import HOMOGENEOUS, build
from support.oracles import integrated_gradients


def relative(a, b):
    return float((a - b).abs().max() / b.abs().max())


@pytest.mark.parametrize("name", HOMOGENEOUS)
def test_equals_integrated_gradients_by_quadrature(name):
    network, x = build(name)
    attribution = axiograd.XGradient(network).attribute(x, target=1)
    oracle = integrated_gradients(lambda x: network(x)[:, 1], x, torch.zeros_like(x), 64)
    assert relative(attribution, oracle) < 1e-12
    assert relative(attribution, axiograd.IntegratedGradients(network, n_steps=64).attribute(x, 1)) < 1e-12


@pytest.mark.parametrize("name", HOMOGENEOUS)
def test_equals_captums_integrated_gradients_up_to_its_float32_steps(name):
    network, x = build(name)
    theirs = captum.attr.IntegratedGradients(network).attribute(x, target=1, n_steps=64)
    assert relative(axiograd.XGradient(network).attribute(x, target=1), theirs) < 1e-6


@pytest.mark.parametrize("degree", [2, 3])
def test_higher_degrees_divide_by_the_degree(degree):
    class Power(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = build("mlp")[0]

        def forward(self, x):
            return self.inner(x) ** degree

    network, (_, x) = Power(), build("mlp")
    attribution = axiograd.XGradient(network).attribute(x, target=0)
    oracle = integrated_gradients(lambda x: network(x)[:, 0], x, torch.zeros_like(x), 16)
    assert relative(attribution, oracle) < 1e-12


def test_a_model_that_is_not_homogeneous_is_refused_by_name():
    network, x = build("linear")
    with pytest.raises(NotHomogeneousError, match="bias"):
        axiograd.XGradient(network).attribute(x, target=0)


def test_a_callable_target_is_part_of_what_is_certified():
    network, x = build("mlp")
    with pytest.raises(NotHomogeneousError, match="softmax"):
        axiograd.XGradient(network).attribute(x, target=lambda out: out.softmax(-1)[:, 0])
    margin = axiograd.XGradient(network).attribute(x, target=lambda out: out[:, 0] - out[:, 1])
    parts = [axiograd.XGradient(network).attribute(x, target=t) for t in (0, 1)]
    torch.testing.assert_close(margin, parts[0] - parts[1])
    squared = axiograd.XGradient(network).attribute(x, target=lambda out: out[:, 0] ** 2)
    torch.testing.assert_close(squared.sum(1), network(x)[:, 0] ** 2)


def test_linear_targets_keep_the_models_certificate():
    network, x = build("mlp")
    weights = torch.randn(len(x), 3, dtype=torch.float64)
    combined = axiograd.XGradient(network).attribute(x, target=axiograd.LinearTarget(weights))
    every = axiograd.XGradient(network).attribute(x, target="all")
    torch.testing.assert_close(combined, torch.einsum("bc,cbf->bf", weights, every))


def test_given_degree_skips_the_certificate():
    network, x = build("linear")
    with pytest.warns(InexactWarning, match="degree=2 was given, not proved"):
        skipped = axiograd.XGradient(network, degree=2).attribute(x, target=0)
    torch.testing.assert_close(skipped, axiograd.InputXGradient(network).attribute(x, target=0) / 2)


@pytest.mark.parametrize("degree", [0, 0.5, -1, float("nan")])
def test_degrees_below_one_are_refused(degree):
    with pytest.raises(ConfigurationError, match="at least 1"):
        axiograd.XGradient(nn.Identity(), degree=degree)


def test_baseline_of_a_model_that_centres_its_input():
    inner, x = build("mlp")
    b = torch.randn(7, dtype=torch.float64)

    class Centred(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner
            self.register_buffer("b", b)

        def forward(self, x):
            return self.inner(x - self.b)

    network = Centred()
    method = axiograd.XGradient(network, baseline=b)
    oracle = integrated_gradients(lambda x: network(x)[:, 1], x, b.expand_as(x), 64)
    assert relative(method.attribute(x, target=1), oracle) < 1e-12
    assert method.explain(x, target=1).baseline == "given"
    assert method.completeness(x, target=1).relative.max() < 1e-12
    with pytest.raises(NotHomogeneousError):
        axiograd.XGradient(network).attribute(x, target=1)


def test_other_baselines_are_refused():
    network, x = build("mlp")
    with pytest.raises(BaselineError, match="IntegratedGradients"):
        axiograd.XGradient(network).attribute(x, target=0, baselines=0.5)
    zero = axiograd.XGradient(network).attribute(x, target=0, baselines=torch.zeros_like(x))
    torch.testing.assert_close(zero, axiograd.XGradient(network).attribute(x, target=0))


def test_the_certificate_is_made_once(monkeypatch):
    from axiograd.homogeneity import certification

    traced = []
    trace = certification.trace
    monkeypatch.setattr(certification, "trace", lambda *a, **k: traced.append(1) or trace(*a, **k))
    network = nn.Sequential(nn.Linear(7, 5, bias=False), nn.BatchNorm1d(5), nn.Linear(5, 2, bias=False)).double().eval()
    method, (_, x) = axiograd.XGradient(network), build("mlp")
    for _ in range(3):
        method.attribute(x, target=0)
        method.explain(x, target="all")
        method.completeness(x, target=1)
    assert len(traced) == 1
    with torch.no_grad():
        network[1].bias.fill_(1)
    with pytest.raises(NotHomogeneousError, match=r"1\.bias"):
        method.attribute(x, target=0)


def test_outputs_beside_the_logits_do_not_matter():
    network, x = build("mlp")

    class WithProbabilities(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network

        def forward(self, x):
            logits = self.inner(x)
            return {"logits": logits, "probabilities": logits.softmax(-1)}

    attributions = axiograd.XGradient(WithProbabilities()).attribute(x, target=1)
    torch.testing.assert_close(attributions, axiograd.XGradient(network).attribute(x, target=1))


def test_only_what_is_attributed_scales():
    x, z = torch.randn(3, 4), torch.randn(3, 4, dtype=torch.complex64)
    attributions = axiograd.XGradient(lambda x, z: (x * z.real).sum(1)).attribute((x, z))
    torch.testing.assert_close(attributions, (x * z.real, None))


@pytest.mark.parametrize("pack", [lambda y: y, lambda y: (y,), lambda y: [y], lambda y: {"y": y}])
def test_additional_arguments_in_every_form(pack):
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    method = axiograd.XGradient(lambda x, y: (x * y).sum(1))
    torch.testing.assert_close(method.attribute(x, additional_forward_args=pack(y)), x * y)


def test_the_delta_is_that_of_the_drawn_mask():
    model = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(8, 1, bias=False)).double()
    x = torch.randn(5, 8, dtype=torch.float64)
    _, delta = axiograd.XGradient(model).attribute(x, return_convergence_delta=True)
    assert delta.abs().max() < 1e-12


def test_sparse_gradients_become_dense():
    x = torch.randn(3, 4)
    rows = torch.arange(3)
    method = axiograd.XGradient(lambda x: torch.nn.functional.embedding(rows, x, sparse=True).sum(1))
    torch.testing.assert_close(method.attribute(x), x)


def _proofs(monkeypatch):
    from axiograd.homogeneity import certification

    made, original = [], certification.trace
    monkeypatch.setattr(certification, "trace", lambda *a, **k: made.append(1) or original(*a, **k))
    return made


def test_a_callable_target_that_changed_is_certified_again():
    model = nn.Linear(3, 2, bias=False).double()
    x, power = torch.randn(4, 3, dtype=torch.float64), [1]
    target = lambda output: output[:, 0].abs() ** power[0]  # noqa: E731
    method = axiograd.XGradient(model)
    for degree in (1, 2, 1):
        power[0] = degree
        torch.testing.assert_close(method.attribute(x, target).sum(1), target(model(x)))


def test_a_callable_target_written_anew_is_not_certified_again(monkeypatch):
    made = _proofs(monkeypatch)
    model = nn.Linear(3, 2, bias=False).double()
    x, weight = torch.randn(4, 3, dtype=torch.float64), 3.0
    method = axiograd.XGradient(model)
    for _ in range(3):
        method.attribute(x, lambda output: weight * output[:, 0])
    assert len(made) == 1
    weight = 2.0
    torch.testing.assert_close(
        method.attribute(x, lambda output: weight * output[:, 0]).sum(1), 2 * model(x)[:, 0].detach()
    )
    method.attribute(x, lambda output: output[:, 0].abs())
    assert len(made) == 3


class OneNumber(nn.Module):
    """Samples of one number each, without a dimension for it."""

    def forward(self, x):
        return x.abs()[:, None] * torch.tensor([1.5, -2.0])


def test_samples_of_one_number():
    x = torch.tensor([0.5, -3.0, 2.0])
    found = axiograd.XGradient(OneNumber()).attribute(x, target=1)
    torch.testing.assert_close(found, -2 * x.abs())
