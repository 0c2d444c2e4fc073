import numpy as np
import pytest
import torch

import axiograd
from axiograd.attribution.integrated_gradients import nodes_and_weights
from axiograd.errors import BaselineError, ConfigurationError
from support.networks import REGULAR, build
from support.oracles import integrated_gradients

RULES = ["gausslegendre", "riemann_left", "riemann_right", "riemann_middle", "riemann_trapezoid"]
SMOOTH = ["layer norm", "attention", "lstm"]


@pytest.mark.parametrize("name", REGULAR)
def test_equals_quadrature_one_point_at_a_time(name):
    network, x = build(name)
    baseline = torch.randn_like(x)
    ours = axiograd.IntegratedGradients(network, n_steps=20).attribute(x, target=2, baselines=baseline)
    torch.testing.assert_close(ours, integrated_gradients(lambda x: network(x)[:, 2], x, baseline, 20))


@pytest.mark.parametrize("name", SMOOTH)
def test_completeness_converges_for_smooth_networks(name):
    network, x = build(name)
    errors = [
        float(axiograd.IntegratedGradients(network, n_steps=n).completeness(x, target=0).relative.max())
        for n in (4, 64)
    ]
    assert errors[1] < max(1e-3 * errors[0], 1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_rules_integrate_what_they_should(rule):
    nodes, weights = nodes_and_weights(rule, 50)
    assert weights.sum() == pytest.approx(1, abs=1e-14)
    exact_degree = {"gausslegendre": 99, "riemann_middle": 1, "riemann_trapezoid": 1}.get(rule, 0)
    for power in range(exact_degree + 1):
        assert weights @ nodes**power == pytest.approx(1 / (power + 1), abs=1e-13)
    assert weights @ np.exp(nodes) == pytest.approx(np.e - 1, abs=0.04)


@pytest.mark.parametrize("rule", RULES)
def test_rules_on_a_network(rule):
    network, x = build("gelu")
    fine = axiograd.IntegratedGradients(network, n_steps=64).attribute(x, target=0)
    coarse, finer = (
        float((axiograd.IntegratedGradients(network, n, rule).attribute(x, target=0) - fine).abs().max())
        for n in (8, 64)
    )
    assert finer < coarse / 4


@pytest.mark.parametrize("rows", [1, 3, 4, 9, 1000, None])
@pytest.mark.parametrize(
    "target", [1, torch.tensor([0, 1, 2, 0]), [2, 1, 0, 1], "all", lambda out: out.square().sum(1)]
)
def test_chunking_does_not_change_the_answer(rows, target):
    network, x = build("linear")
    reference = axiograd.IntegratedGradients(network, 10, internal_batch_size=10_000).attribute(x, target=target)
    chunked = axiograd.IntegratedGradients(network, 10, internal_batch_size=rows).attribute(x, target=target)
    torch.testing.assert_close(chunked, reference)


def test_callable_targets_see_whole_batches_even_in_chunks():
    network, x = build("linear")
    weights = torch.randn(4, 3, dtype=torch.float64)
    per_sample = axiograd.IntegratedGradients(network, 6, internal_batch_size=2).attribute(
        x, target=lambda out: (out * weights).sum(1)
    )
    linear = axiograd.IntegratedGradients(network, 6, internal_batch_size=2).attribute(
        x, target=axiograd.LinearTarget(weights)
    )
    torch.testing.assert_close(per_sample, linear)


def test_additional_arguments_follow_their_samples_through_chunks():
    def model(x, gain, offset):
        assert gain.shape[0] == x.shape[0]
        return (x**2 * gain).sum(1) + offset

    x, gain = torch.randn(5, 3, dtype=torch.float64), torch.rand(5, 3, dtype=torch.float64)
    ours = axiograd.IntegratedGradients(model, 4, internal_batch_size=2).attribute(
        x, additional_forward_args=(gain, 2.0)
    )
    torch.testing.assert_close(ours, gain * x**2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_steps_have_the_inputs_dtype(dtype):
    seen = set()

    def model(x):
        seen.add(x.dtype)
        return (x**2).sum(1)

    x = torch.rand(2, 3).to(dtype)
    assert axiograd.IntegratedGradients(model, 9).attribute(x).dtype == dtype
    assert seen == {dtype}


def test_float64_steps_are_not_rounded_to_float32():
    x = torch.rand(2, 3, dtype=torch.float64)
    attribution = axiograd.IntegratedGradients(lambda x: (x**5).sum(1), 8).attribute(x)
    torch.testing.assert_close(attribution, x**5, rtol=1e-13, atol=0)


@pytest.mark.parametrize(("n", "rule"), [(0, "gausslegendre"), (-3, "riemann_left"), (1, "riemann_trapezoid")])
def test_too_few_steps(n, rule):
    with pytest.raises(ConfigurationError, match=f"n_steps={n}"):
        axiograd.IntegratedGradients(torch.nn.Identity(), n, rule)


def test_unknown_rule_and_empty_chunks():
    with pytest.raises(ConfigurationError, match="simpson"):
        axiograd.IntegratedGradients(torch.nn.Identity(), method="simpson")
    with pytest.raises(ConfigurationError, match="internal_batch_size=0"):
        axiograd.IntegratedGradients(torch.nn.Identity(), internal_batch_size=0)


def test_baselines_that_do_not_fit():
    network, x = build("linear")
    with pytest.raises(BaselineError, match=r"\(6,\).*\(4, 7\)"):
        axiograd.IntegratedGradients(network).attribute(x, target=0, baselines=torch.zeros(6))
    with pytest.raises(BaselineError, match="2 baselines for 1 inputs"):
        axiograd.IntegratedGradients(network).attribute((x,), target=0, baselines=(0.0, 1.0))


@pytest.mark.parametrize("reduce", [lambda y: y.sum(), lambda y: y.sum().reshape(1), lambda y: y.sum(0)])
@pytest.mark.parametrize("create_graph", [False, True])
def test_a_single_sample_may_be_summed_over_its_rows(reduce, create_graph):
    x = torch.randn(1, 3, dtype=torch.float64)
    method = axiograd.IntegratedGradients(lambda x: reduce((x**2).sum(1)), n_steps=10)
    torch.testing.assert_close(method.attribute(x, create_graph=create_graph).detach(), x**2)


@pytest.mark.parametrize("rows", [1, 3, 8, None])
def test_tensors_inside_containers_go_with_their_samples(rows):
    x, y, w = torch.randn(4, 7), torch.randn(4, 7), torch.randn(7)

    def model(x, others):
        return (x.square() * others["y"][0] * others["w"]).sum(1)

    ours = axiograd.IntegratedGradients(model, 4, internal_batch_size=rows).attribute((x, {"y": [y], "w": w}))
    torch.testing.assert_close(ours[0], x.square() * y * w)
    further = axiograd.IntegratedGradients(model, 4, internal_batch_size=rows)
    additional = ({"y": [y], "w": w},)
    torch.testing.assert_close(further.attribute(x, additional_forward_args=additional), ours[0])


def test_batch_statistics_inside_a_model_in_eval_mode_keep_steps_apart():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    model.double().eval()
    model[1].train()
    x = torch.randn(4, 3, dtype=torch.float64)
    found = axiograd.IntegratedGradients(model, n_steps=8).attribute(x)
    one_by_one = axiograd.IntegratedGradients(model, n_steps=8, internal_batch_size=4).attribute(x)
    assert torch.allclose(found, one_by_one, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("batch", [2, 3, 4])
def test_a_constant_of_ones_with_as_many_rows_as_the_batch(batch):
    x, ones = torch.rand(batch, 4), torch.ones(batch, 3)
    model = lambda x, w: (x[:, :1] * w.sum()).square()  # noqa: E731
    found = axiograd.IntegratedGradients(model, n_steps=16).attribute(x, 0, additional_forward_args=ones)
    torch.testing.assert_close(found.sum(1), model(x, ones)[:, 0])
