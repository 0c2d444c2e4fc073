"""Properties that hold for every network and input, searched for counterexamples by hypothesis."""

import torch
from hypothesis import given, settings, strategies as st

import axiograd
from support.networks import HOMOGENEOUS, REGULAR, build

seeds = st.integers(0, 2**31 - 1)
homogeneous = st.sampled_from(sorted(HOMOGENEOUS))
single_pass = st.sampled_from(["InputXGradient", "Gradient", "Saliency", "IntegratedGradients"])
ordinary = settings(deadline=None, max_examples=40)


def methods(name, network):
    return (
        axiograd.IntegratedGradients(network, 4) if name == "IntegratedGradients" else getattr(axiograd, name)(network)
    )


@ordinary
@given(homogeneous, seeds, st.floats(-6, 6))
def test_completeness(name, seed, log_scale):
    network, x = build(name, seed=seed)
    result = axiograd.XGradient(network, degree=1).completeness(x * 10.0**log_scale, target="all")
    assert result.relative.max() < 1e-12


@ordinary
@given(homogeneous, seeds, st.floats(1e-6, 1e6))
def test_nonnegative_homogeneity(name, seed, alpha):
    network, x = build(name, seed=seed)
    method = axiograd.XGradient(network, degree=1)
    torch.testing.assert_close(method.attribute(alpha * x, 1), alpha * method.attribute(x, 1), rtol=1e-9, atol=0)


@ordinary
@given(st.sampled_from(sorted([*HOMOGENEOUS, *REGULAR])), single_pass, seeds)
def test_batch_independence(name, method, seed):
    network, x = build(name, seed=seed)
    attributor = methods(method, network)
    target = torch.tensor([0, 1, 2, 0])
    together = attributor.attribute(x, target)
    one_by_one = torch.cat([attributor.attribute(x[i : i + 1], target[i : i + 1]) for i in range(len(x))])
    torch.testing.assert_close(together, one_by_one, rtol=1e-9, atol=1e-12)


@ordinary
@given(single_pass, seeds)
def test_tuple_and_single_keyword_and_positional_agree(method, seed):
    network, x = build("linear", seed=seed)
    attributor = methods(method, lambda features: network(features))  # noqa: PLW0108  # names the argument
    single = attributor.attribute(x, 1)
    (from_tuple,) = attributor.attribute((x,), 1)
    from_keyword = attributor.attribute({"features": x}, 1)["features"]
    assert torch.equal(single, from_tuple)
    assert torch.equal(single, from_keyword)


@ordinary
@given(single_pass, seeds)
def test_all_targets_agree_with_each_of_them(method, seed):
    network, x = build("convolution and max-pool", seed=seed)
    attributor = methods(method, network)
    every = attributor.attribute(x, "all")
    for target in range(3):
        torch.testing.assert_close(every[target], attributor.attribute(x, target), rtol=1e-9, atol=1e-12)
