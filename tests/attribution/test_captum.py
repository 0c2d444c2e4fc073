"""Captum called directly is the oracle for its own adapter."""

import sys
import warnings

import captum.attr as ca
import numpy as np
import pytest
import torch
from torch import nn

import axiograd
from axiograd.attribution.captum import CaptumMethod
from axiograd.errors import BaselineError, ConfigurationError, DisconnectedError, MissingExtraError, TargetError
from support.captum_cases import EXACT, ConvNet, directly, images, pairs


@pytest.fixture(name="images")
def make_images():
    return images()


@pytest.fixture(name="pairs")
def make_pairs():
    return pairs()


@pytest.mark.parametrize(
    ("method", "options", "call"),
    [
        (ca.DeepLift, {}, {"baselines": 0.1}),
        (ca.DeepLift, {"multiply_by_inputs": False}, {}),
        (ca.LRP, {}, {}),
        (ca.IntegratedGradients, {"n_steps": 4, "method": "riemann_middle"}, {"baselines": -1.0}),
        (ca.GuidedBackprop, {}, {}),
        (ca.Saliency, {"abs": False}, {}),
        (ca.Occlusion, {"sliding_window_shapes": (1, 4, 4)}, {"baselines": 0.5}),
        (ca.FeatureAblation, {"feature_mask": torch.arange(64).reshape(1, 1, 8, 8) // 16}, {}),
    ],
)
def test_adapter_equals_captum_called_directly(method, options, call, images):
    model, x, y = images
    constructor = {k: v for k, v in options.items() if k == "multiply_by_inputs"}
    rest = {k: v for k, v in options.items() if k not in constructor}
    expected = directly(lambda: method(model, **constructor), x.clone(), target=y, **call, **rest)
    adapted = CaptumMethod(model, method, **options)
    torch.testing.assert_close(adapted.attribute(x, y, **call), expected, **EXACT)
    explanation = adapted.explain(x, y, **call)
    torch.testing.assert_close(explanation.attributions, expected, **EXACT)
    torch.testing.assert_close(explanation.outputs, model(x).detach(), **EXACT)
    assert not explanation.attributions.requires_grad
    per_output = adapted.attribute(x, "all", **call)
    assert per_output.shape == (3, *x.shape)
    torch.testing.assert_close(per_output[y, torch.arange(3)], expected, **EXACT)


def test_random_methods_draw_anew_leave_global_states_alone_and_repeat_with_a_generator(images):
    model, x, y = images
    baselines = torch.randn(7, *x.shape[1:], dtype=x.dtype)
    method = CaptumMethod(model, ca.GradientShap, n_samples=3, stdevs=0.1)
    states = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002  # the legacy state is the one that Captum uses
    first, second = (method.attribute(x, y, baselines=baselines) for _ in range(2))
    assert not torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all()  # noqa: NPY002  # the legacy state is the one that Captum uses

    seed = int(torch.randint(2**32, (), generator=torch.Generator().manual_seed(3)))
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002  # the legacy state is the one that Captum uses
    expected = directly(lambda: ca.GradientShap(model), x.clone(), baselines, target=y, n_samples=3, stdevs=0.1)
    generator = torch.Generator().manual_seed(3)
    found = CaptumMethod(model, ca.GradientShap, generator=generator, n_samples=3, stdevs=0.1)
    torch.testing.assert_close(found.attribute(x, y, baselines=baselines), expected, **EXACT)


def test_class_instance_and_factory_agree(images):
    model, x, y = images
    expected = directly(lambda: ca.IntegratedGradients(model), x.clone(), target=y, n_steps=6)
    for method in (
        ca.IntegratedGradients,
        ca.IntegratedGradients(model),
        lambda forward: ca.NoiseTunnel(ca.IntegratedGradients(forward)),
        ca.NoiseTunnel(ca.IntegratedGradients(model)),
    ):
        noise = (
            {} if method is ca.IntegratedGradients or isinstance(method, ca.IntegratedGradients) else {"stdevs": 0.0}
        )
        adapted = CaptumMethod(model, method, n_steps=6, **noise)
        torch.testing.assert_close(adapted.attribute(x, y), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("method", [ca.DeepLift, ca.InputXGradient, ca.IntegratedGradients])
def test_targets(method, images):
    model, x, y = images
    adapted = CaptumMethod(model, method)
    expected = adapted.attribute(x, y)
    weights = torch.nn.functional.one_hot(y, 3).double()
    for target in (y.tolist(), [(int(i),) for i in y], y[:, None], axiograd.LinearTarget(weights)):
        torch.testing.assert_close(adapted.attribute(x, target), expected, **EXACT)
    difference = adapted.attribute(x, lambda output: output[:, 0] - output[:, 2])
    torch.testing.assert_close(difference, adapted.attribute(x, 0) - adapted.attribute(x, 2), rtol=1e-8, atol=1e-10)
    single = nn.Sequential(model, nn.Linear(3, 1).double())
    torch.testing.assert_close(
        CaptumMethod(single, method).attribute(x), CaptumMethod(single, method).attribute(x, 0), **EXACT
    )


@pytest.mark.parametrize("method", [ca.DeepLift, ca.IntegratedGradients])
def test_keyword_inputs_integers_and_additional_arguments(method, pairs):
    model, (x, z), (scale, power) = pairs
    adapted = CaptumMethod(model, method)
    expected = directly(lambda: method(model), (x.clone(), z.clone()), target=1, additional_forward_args=(scale, power))
    found = adapted.attribute((x, z), 1, additional_forward_args=(scale, power))
    torch.testing.assert_close(found, expected, **EXACT)
    keyword = adapted.attribute({"x": x, "z": z}, 1, additional_forward_args={"scale": scale, "power": power})
    torch.testing.assert_close((keyword["x"], keyword["z"]), expected, **EXACT)
    whole = torch.arange(5) + 1
    found = adapted.attribute((x, z, whole), 1)
    expected = directly(lambda: method(model), (x.clone(), z.clone()), target=1, additional_forward_args=(whole,))
    torch.testing.assert_close(found[:2], expected, **EXACT)
    assert found[2] is None


def test_delta_is_ours_per_example(images):
    _, x, y = images
    model = ConvNet(nn.AvgPool2d).double().eval()  # through max-pooling DeepLIFT is not complete
    rows = torch.arange(3)

    def f(v):
        return model(v)[rows, y].detach()

    attributions, delta = CaptumMethod(model, ca.DeepLift).attribute(x, y, baselines=0.3, return_convergence_delta=True)
    expected = attributions.sum((1, 2, 3)) - (f(x) - f(torch.full_like(x, 0.3)))
    torch.testing.assert_close(delta, expected, **EXACT)
    assert delta.abs().max() < 1e-10
    references = torch.randn(4, *x.shape[1:], dtype=x.dtype)
    attributions, delta = CaptumMethod(model, ca.DeepLiftShap).attribute(
        x, y, baselines=references, return_convergence_delta=True
    )
    mean = torch.stack([f(r.expand_as(x)) for r in references]).mean(0)
    torch.testing.assert_close(delta, attributions.sum((1, 2, 3)) - (f(x) - mean), **EXACT)
    assert delta.abs().max() < 1e-10


def state_of(model):
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return [
        (
            m.training,
            sorted(vars(m)),
            [list(getattr(m, h)) for h in hooks],
            [id(p) for p in m.parameters(recurse=False)],
        )
        for m in model.modules()
    ]


@pytest.mark.parametrize("method", [ca.DeepLift, ca.LRP, ca.GuidedBackprop, ca.IntegratedGradients])
@pytest.mark.parametrize("fails", [False, True])
def test_model_and_inputs_are_left_as_they_were(method, fails, images):
    _, x, y = images
    model = ConvNet().double()
    model.second.weight.requires_grad_(False)
    x.requires_grad_()
    x.grad = torch.ones_like(x)
    model.first.weight.grad = torch.ones_like(model.first.weight)
    handle = model.relu.register_forward_hook(lambda *_: None)
    loss = model(x).sum()  # a training step under way, whose backward pass must still be possible
    before, values = state_of(model), {k: v.clone() for k, v in model.state_dict().items()}
    weights = [(p.data_ptr(), p.requires_grad, p._version) for p in model.parameters()]

    def target(output):
        if fails and torch.is_grad_enabled() and calls.append(1) is None and len(calls) > 1:
            raise RuntimeError("stop")
        return output[:, 0]

    calls = []
    adapted = CaptumMethod(model, method)
    if fails:
        calls.append(1)
        with pytest.raises(RuntimeError, match="stop"):
            adapted.attribute(x, target)
    else:
        adapted.attribute(x, target)
        adapted.attribute(x, y)
    assert state_of(model) == before
    assert all(torch.equal(v, values[k]) for k, v in model.state_dict().items())
    assert [(p.data_ptr(), p.requires_grad, p._version) for p in model.parameters()] == weights
    assert x.requires_grad
    assert torch.equal(x.grad, torch.ones_like(x))
    assert torch.equal(model.first.weight.grad, torch.ones_like(model.first.weight))
    loss.backward()
    handle.remove()
    assert len(model.relu._forward_hooks) == 0


def test_rules_that_a_user_set_for_lrp_survive_and_count():
    from captum.attr._utils.lrp_rules import GammaRule

    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(2, 3)
    plain = CaptumMethod(model, ca.LRP).attribute(x, 0)
    model[0].rule = rule = GammaRule()
    first, second = (CaptumMethod(model, ca.LRP).attribute(x, 0) for _ in range(2))
    assert model[0].rule is rule
    torch.testing.assert_close(first, second)
    assert not torch.allclose(first, plain)


def test_the_models_own_warnings_are_heard_and_inference_mode_is_left():
    def model(x):
        warnings.warn("mine", UserWarning, stacklevel=1)
        return x.sum(1)

    with torch.inference_mode(), pytest.warns(UserWarning, match="mine"):
        found = CaptumMethod(model, ca.Saliency).attribute(torch.ones(2, 2))
    assert torch.equal(found, torch.ones(2, 2))


def test_hooks_work_in_compiled_models():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)), torch.randn(2, 3)
    expected = CaptumMethod(model, ca.DeepLift).attribute(x, 0)
    compiled = torch.compile(model, backend="eager")
    torch.testing.assert_close(CaptumMethod(compiled, ca.DeepLift).attribute(x, 0), expected)
    assert not torch.allclose(CaptumMethod(compiled, ca.InputXGradient).attribute(x, 0), expected)


@pytest.mark.parametrize("create_graph", [False, True])
def test_targets_weights_and_baselines_that_were_made_in_inference_mode(create_graph, images):
    model, x, y = images
    with torch.inference_mode():
        made = y.clone(), axiograd.LinearTarget(nn.functional.one_hot(y, 3).double()), torch.full_like(x, 0.1)
        for method in (axiograd.IntegratedGradients(model, 4), CaptumMethod(model, ca.DeepLift)):
            graph = create_graph and method.differentiable
            by_index = method.attribute(x, made[0], baselines=made[2], create_graph=graph)
            by_weights = method.attribute(x, made[1], baselines=made[2], create_graph=graph)
            torch.testing.assert_close(by_index, by_weights, **EXACT)
            torch.testing.assert_close(by_index, method.attribute(x.clone(), y, baselines=0.1), **EXACT)
            assert by_index.requires_grad == graph


def test_refusals(images, monkeypatch):
    model, x, y = images
    method = CaptumMethod(model, ca.DeepLift)
    with pytest.raises(DisconnectedError, match="no parameter can be trained"):
        method.explain(x, y, create_graph=True)
    with pytest.raises(TargetError, match="out of range"):
        method.attribute(x, 7)
    with pytest.raises(BaselineError, match="takes no baselines"):
        CaptumMethod(model, ca.LRP).attribute(x, y, baselines=1.0)
    with pytest.raises(BaselineError, match="distribution"):
        CaptumMethod(model, ca.GradientShap).attribute(x, y)
    with pytest.raises(BaselineError, match=r"\[n, \*features\]"):
        CaptumMethod(model, ca.GradientShap).attribute(x, y, baselines=torch.zeros(2, 5))
    with pytest.raises(ConfigurationError, match="hooks on modules"):
        CaptumMethod(lambda x: model(x) * 2, ca.DeepLift)
    with pytest.raises(ConfigurationError, match="another model"):
        CaptumMethod(model, ca.Saliency(ConvNet()))
    with pytest.raises(ConfigurationError, match="not a method of Captum"):
        CaptumMethod(model, nn.Sequential)
    with pytest.raises(ConfigurationError, match="return_convergence_delta"):
        CaptumMethod(model, ca.Saliency, return_convergence_delta=True)
    with pytest.raises(ConfigurationError, match="attributes to inputs"):
        CaptumMethod(model, ca.LayerActivation, layer=model.first)
    for layered in (ca.LayerGradCam(model, model.first), lambda _: ca.NeuronGradient(model, model.first)):
        with pytest.raises(ConfigurationError, match="attributes to inputs"):
            CaptumMethod(model, layered)
    with pytest.raises(ConfigurationError, match=r"NoiseTunnel cannot be made.*function from a model to a method"):
        CaptumMethod(model, ca.NoiseTunnel)
    monkeypatch.setitem(sys.modules, "captum", None)
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    with pytest.raises(MissingExtraError, match=r"axiograd\[captum\]"):
        CaptumMethod(model, ca.Saliency)
