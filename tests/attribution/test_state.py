"""The model, its surroundings and its inputs stay as they were; unusual surroundings work."""

import copy
import gc
import subprocess
import sys
from contextlib import nullcontext

import captum.attr
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import axiograd
from axiograd.errors import DisconnectedError
from support.networks import build

METHODS = {
    "XGradient": lambda m, x: axiograd.XGradient(m, degree=1),
    "InputXGradient": lambda m, x: axiograd.InputXGradient(m),
    "Gradient": lambda m, x: axiograd.Gradient(m),
    "Saliency": lambda m, x: axiograd.Saliency(m),
    "LogGradient": lambda m, x: axiograd.LogGradient(m),
    "IntegratedGradients": lambda m, x: axiograd.IntegratedGradients(m, n_steps=3),
    "ExpectedGradients": lambda m, x: axiograd.ExpectedGradients(m, x.detach(), n_samples=2),
    "RandomAttribution": lambda m, x: axiograd.RandomAttribution(m),
}
every_method = pytest.mark.parametrize("method", METHODS)


@pytest.mark.filterwarnings("ignore:.*given, not proved:axiograd.attribution.InexactWarning")  # the network has biases
@every_method
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("create_graph", [True, False])
def test_attribute_leaves_everything_as_it_was(method, train, create_graph):
    network, x = build("batch norm")
    network.train(train)
    network[0].bias.requires_grad_(requires_grad=False)
    network[0].weight.grad = torch.ones_like(network[0].weight)
    calls = []
    network[3].register_forward_hook(lambda *_: calls.append(1))
    attributor = METHODS[method](network, x)
    refused = create_graph and not attributor.differentiable
    state = copy.deepcopy(network.state_dict())
    buffers = {name: id(buffer) for name, buffer in network.named_buffers()}
    random_state = torch.get_rng_state()
    hooks = [len(m._forward_hooks) + len(m._backward_hooks) for m in network.modules()]
    with pytest.raises(DisconnectedError) if refused else nullcontext():
        attributor.attribute(x, target=0, create_graph=create_graph)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(torch.equal(value, network.state_dict()[name]) for name, value in state.items())
    assert buffers == {name: id(buffer) for name, buffer in network.named_buffers()}
    assert hooks == [len(m._forward_hooks) + len(m._backward_hooks) for m in network.modules()]
    assert all(m.training is train for m in network.modules())
    assert [p.requires_grad for p in network.parameters()] == [True, False, True, True, True, True]
    assert torch.equal(network[0].weight.grad, torch.ones_like(network[0].weight))
    assert network[5].weight.grad is None
    assert not x.requires_grad
    assert x.grad is None
    assert calls or refused  # the user's hooks ran, as in any forward pass


def test_modules_that_a_function_closes_over_are_left_as_they_were_too():
    network, x = build("batch norm")
    network.train()
    before = {name: buffer.clone() for name, buffer in network.named_buffers()}
    for method in (axiograd.InputXGradient, axiograd.IntegratedGradients):
        method(lambda x: network(x) * 2).attribute(x, target=0)
    assert all(torch.equal(buffer, before[name]) for name, buffer in network.named_buffers())


def test_a_graph_survives_the_restored_buffers():
    network, x = build("batch norm")
    network.train()
    axiograd.InputXGradient(network).attribute(x, 0, create_graph=True).square().sum().backward()
    assert all(p.grad is not None for p in network[:2].parameters() if p is not network[0].bias)


def test_explain_with_a_graph_is_a_training_forward_pass():
    network, x = build("batch norm")
    plain = copy.deepcopy(network.train())
    torch.manual_seed(1)
    expected = plain(x)
    torch.manual_seed(1)
    explanation = axiograd.InputXGradient(network).explain(x, 0, create_graph=True)
    torch.testing.assert_close(explanation.outputs, expected)
    for name, buffer in plain.named_buffers():
        torch.testing.assert_close(network.get_buffer(name), buffer)


@every_method
def test_explain_shares_one_forward_pass(method):
    network, x = build("mlp")
    rows = []
    network[0].register_forward_hook(lambda module, args, output: rows.append(len(args[0])))
    attributor = METHODS[method](network, x)
    explanation = attributor.explain(x, 0)
    points = {"IntegratedGradients": 3, "ExpectedGradients": 2}.get(method, 0)
    assert sum(rows) == len(x) * (1 + points)
    rows.clear()
    torch.testing.assert_close(explanation.outputs, network(x).detach())
    assert explanation.method == method


@every_method
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_works_where_gradients_are_off(method, mode):
    network, x = build("cnn")
    expected = METHODS[method](network, x)
    found = METHODS[method](network, x)
    if method in {"ExpectedGradients", "RandomAttribution"}:
        for attributor in (expected, found):
            attributor.generator = torch.Generator().manual_seed(0)
    with mode():
        inside = found.attribute(x * 1, target=1)
        assert not inside.requires_grad
        assert torch.is_grad_enabled() is False
    torch.testing.assert_close(torch.clone(inside), expected.attribute(x, target=1))


def test_a_graph_can_be_made_inside_no_grad():
    network, x = build("cnn")
    with torch.no_grad():
        attributions = axiograd.InputXGradient(network).attribute(x, 0, create_graph=True)
    attributions.square().sum().backward()
    assert network[0].weight.grad.abs().sum() > 0


def test_under_autocast_in_bfloat16():
    network, x = build("cnn")
    network, x = network.float(), x.float()
    exact = axiograd.InputXGradient(network).attribute(x, 0)
    with torch.autocast("cpu", torch.bfloat16):
        with torch.no_grad():
            network(x)
        explanation = axiograd.InputXGradient(network).explain(x, 0, create_graph=True)
    assert explanation.outputs.dtype == torch.bfloat16
    assert float((explanation.attributions.detach() - exact).norm() / exact.norm()) < 0.05
    explanation.attributions.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_models_in_other_precisions(dtype):
    network, x = build("cnn")
    attributions = axiograd.XGradient(network.to(dtype), degree=1).attribute(x.to(dtype), 0)
    assert attributions.dtype == dtype
    assert all(p.dtype == dtype for p in network.parameters())


class Reused(nn.Module):
    """One in-place ReLU used three times, the first time on the input itself, and functional calls beside it."""

    def __init__(self):
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        self.first = nn.Linear(7, 7, bias=False)

    def forward(self, x):
        x = self.relu(x)
        x = self.relu(self.first(x)) + nn.functional.relu(self.first(x), inplace=False)
        return self.relu(self.first(x)).sum(1)


def test_in_place_reused_and_functional_layers():
    network = Reused().double()
    _, x = build("mlp")
    before = x.clone()
    attributions, delta = axiograd.XGradient(network, degree=1).attribute(x, return_convergence_delta=True)
    assert torch.equal(x, before)
    assert delta.abs().max() < 1e-12
    assert attributions.abs().sum() > 0


def test_data_parallel_and_distributed_wrappers(tmp_path):
    network, x = build("cnn")
    expected = axiograd.XGradient(network).attribute(x, 1)
    torch.testing.assert_close(axiograd.XGradient(nn.DataParallel(network)).attribute(x, 1), expected)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(network)
        torch.testing.assert_close(axiograd.XGradient(wrapped).attribute(x, 1), expected)
        terms = axiograd.XGradient(wrapped).explain(x, 1, create_graph=True)
        torch.testing.assert_close(terms.attributions, expected)
        (terms.outputs.sum() + terms.attributions.square().sum()).backward()
        assert network[0].weight.grad.abs().sum() > 0
    finally:
        torch.distributed.destroy_process_group()


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant):
        super().__init__()
        self.inner, self.reentrant = build("cnn")[0], reentrant

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=self.reentrant)


def test_checkpointing_that_is_not_reentrant():
    network, (plain, x) = Checkpointed(reentrant=False), build("cnn")
    torch.testing.assert_close(
        axiograd.XGradient(network, degree=1).attribute(x, 0), axiograd.XGradient(plain, degree=1).attribute(x, 0)
    )
    gradients = []
    for model in (network, plain):
        axiograd.XGradient(model, degree=1).attribute(x, 0, create_graph=True).square().sum().backward()
        gradients.append(next(model.parameters()).grad)
    torch.testing.assert_close(*gradients)


def test_reentrant_checkpointing_says_what_to_do():
    with pytest.raises(DisconnectedError, match="use_reentrant=False"):
        axiograd.XGradient(Checkpointed(reentrant=True), degree=1).attribute(build("cnn")[1], 0)


def test_compiled_modules():
    network, x = build("mlp")
    compiled = torch.compile(network, backend="aot_eager")
    expected = axiograd.XGradient(network).attribute(x, 0)
    torch.testing.assert_close(axiograd.XGradient(compiled).attribute(x, 0), expected)
    attributions = axiograd.XGradient(compiled).attribute(x, 0, create_graph=True)
    torch.testing.assert_close(attributions, expected)
    attributions.square().sum().backward()
    by_compiled = network[0].weight.grad.clone()
    network.zero_grad()
    axiograd.XGradient(network).attribute(x, 0, create_graph=True).square().sum().backward()
    torch.testing.assert_close(by_compiled, network[0].weight.grad)


@pytest.mark.parametrize("create_graph", [True, False])
def test_repeated_calls_do_not_leak(create_graph):
    network, x = build("cnn")
    attributors = [METHODS[name](network, x) for name in METHODS if name != "RandomAttribution"]

    def live_tensors():
        gc.collect()
        return sum(1 for o in gc.get_objects() if type(o) in {torch.Tensor, nn.Parameter})

    def call_all():
        for attributor in attributors:
            attributor.explain(x, 0, create_graph=create_graph)

    call_all()
    before = live_tensors()
    for _ in range(200 // len(attributors) + 1):
        call_all()
    assert live_tensors() == before


_PEAK = """
import resource, torch, axiograd
torch.set_num_threads(1)
network = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3, bias=False), torch.nn.ReLU(), torch.nn.Flatten(1))
x = torch.randn(4, 3, 96, 96)
for n_steps in (4, 200):
    method = axiograd.IntegratedGradients(network, n_steps=n_steps, internal_batch_size=8)
    method.attribute(x, target=lambda out: out.sum(1))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_peak_memory_does_not_grow_with_the_number_of_steps():
    done = subprocess.run([sys.executable, "-c", _PEAK], check=True, capture_output=True, text=True)
    few, many = map(int, done.stdout.split())
    one_step = 4 * 16 * 94 * 94 * 4 / 1024  # the activations of one step, in KiB
    assert many - few < 4 * one_step  # 196 more steps, and less than four steps' worth of memory more


def test_making_a_method_draws_nothing():
    """Neither the global state nor what is drawn after it changes; draws depend on the seed before, as ever."""
    model, x = torch.nn.Linear(3, 2), torch.randn(4, 3)
    makers = (
        lambda: axiograd.ExpectedGradients(model, torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), 2),
        lambda: axiograd.RandomAttribution(model),
        lambda: axiograd.CaptumMethod(model, captum.attr.KernelShap, n_samples=20),
    )
    for make in makers:
        draws = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            state = torch.get_rng_state()
            method = make()
            draws += [method.attribute(x, 1), method.attribute(x, 1)]
            assert torch.equal(torch.get_rng_state(), state)
        assert torch.equal(draws[0], draws[2])
        assert not torch.equal(draws[0], draws[1])
        assert not torch.equal(draws[0], draws[4])
