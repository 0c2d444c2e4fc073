"""Parameter gradients of a function of each attribution, against central differences in float64."""

import pytest
import torch

import axiograd
from support.networks import HOMOGENEOUS, REGULAR, build
from support.oracles import directional_derivative

METHODS = {
    "XGradient": lambda m: axiograd.XGradient(m, degree=1),
    "InputXGradient": axiograd.InputXGradient,
    "Gradient": axiograd.Gradient,
    "Saliency": axiograd.Saliency,
    "LogGradient": axiograd.LogGradient,
    "IntegratedGradients": lambda m: axiograd.IntegratedGradients(m, n_steps=3, internal_batch_size=4),
    "ExpectedGradients": lambda m: axiograd.ExpectedGradients(
        m, references(m), n_samples=2, generator=torch.Generator().manual_seed(5)
    ),
}


def references(network):
    shape = next(x.shape[1:] for net, x in _BUILT.values() if net is network)
    return torch.randn(20, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(7))


_BUILT = {name: build(name) for name in [*HOMOGENEOUS, *REGULAR]}


def penalty(attributions):
    generator = torch.Generator().manual_seed(11)
    mixing = torch.randn(attributions.shape, generator=generator, dtype=attributions.dtype)
    return (attributions * mixing).sum() + attributions.square().sum()


@pytest.mark.filterwarnings(
    "ignore:.*given, not proved:axiograd.attribution.InexactWarning"
)  # also of the regular networks
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", [*HOMOGENEOUS, *REGULAR])
@pytest.mark.parametrize("how", ["attribute", "explain"])
def test_gradients_reach_the_parameters(name, method, how):
    network, x = _BUILT[name]
    target = None if method == "LogGradient" else torch.tensor([0, 1, 2, 1])

    def value(*, create_graph):
        if how == "attribute":
            return penalty(METHODS[method](network).attribute(x, target, create_graph=create_graph))
        explanation = METHODS[method](network).explain(x, target, create_graph=create_graph)
        return penalty(explanation.attributions) + explanation.outputs.square().sum()

    expected, direction = directional_derivative(lambda: float(value(create_graph=False)), network)
    gradients = torch.autograd.grad(value(create_graph=True), list(network.parameters()), allow_unused=True)
    found = sum(float((g * d).sum()) for g, d in zip(gradients, direction, strict=True) if g is not None)
    assert found == pytest.approx(expected, rel=2e-6)
    unreached = {n for (n, _), g in zip(network.named_parameters(), gradients, strict=True) if g is None}
    # An additive constant after the last nonlinearity has no influence on a gradient, and so no gradient of its own.
    assert all(n.endswith("bias") for n in unreached)


@pytest.mark.parametrize("name", ["cnn", "attention", "layer norm"])
def test_all_targets_are_differentiable_too(name):
    network, x = _BUILT[name]

    def value(*, create_graph):
        return penalty(axiograd.InputXGradient(network).attribute(x, "all", create_graph=create_graph))

    expected, direction = directional_derivative(lambda: float(value(create_graph=False)), network)
    gradients = torch.autograd.grad(value(create_graph=True), list(network.parameters()), allow_unused=True)
    found = sum(float((g * d).sum()) for g, d in zip(gradients, direction, strict=True) if g is not None)
    assert found == pytest.approx(expected, rel=2e-6)


@pytest.mark.parametrize("method", METHODS)
def test_without_a_graph_everything_is_detached(method):
    network, x = _BUILT["cnn"]
    x = x.clone().requires_grad_()
    explanation = METHODS[method](network).explain(x, 0)
    assert not explanation.attributions.requires_grad
    assert not explanation.outputs.requires_grad
    assert explanation.attributions.grad_fn is None


@pytest.mark.parametrize("method", ["XGradient", "InputXGradient", "IntegratedGradients", "ExpectedGradients"])
def test_gradients_reach_what_the_inputs_were_computed_from(method):
    network, _ = _BUILT["mlp"]
    embedding = torch.nn.Embedding(5, 7, dtype=torch.float64)
    tokens = torch.tensor([0, 3, 4])

    def value(*, create_graph):
        attributed = METHODS[method](network)
        return penalty(attributed.attribute(embedding(tokens), 1, create_graph=create_graph))

    expected, direction = directional_derivative(lambda: float(value(create_graph=False)), embedding)
    (gradient,) = torch.autograd.grad(value(create_graph=True), [embedding.weight])
    assert float((gradient * direction[0]).sum()) == pytest.approx(expected, rel=2e-6)


class Branching(torch.nn.Module):
    """Two layers of which `torch.cond` takes one; closed over, or handed to the branches."""

    def __init__(self, *, closed):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = (torch.nn.Parameter(torch.randn(4, 4, dtype=torch.float64)) for _ in range(2))
        self.closed = closed

    def forward(self, x):
        if self.closed:
            taken = torch.cond(x.sum() > 0, lambda v: (v @ self.one).relu(), lambda v: v @ self.two, (x,))
        else:
            taken = torch.cond(
                x.sum() > 0, lambda v, w, _: (v @ w).relu(), lambda v, _, w: v @ w, (x, self.one, self.two)
            )
        return taken.square().sum(1)


@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"
)  # the tracer of cond
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("sign", [1, -1])
def test_through_torch_cond(closed, sign):
    network, x = Branching(closed=closed), sign * torch.rand(3, 4, dtype=torch.float64)
    method = axiograd.XGradient(network)

    def value(*, create_graph):
        return penalty(method.attribute(x, create_graph=create_graph))

    expected, direction = directional_derivative(lambda: float(value(create_graph=False)), network)
    gradients = torch.autograd.grad(value(create_graph=True), list(network.parameters()), allow_unused=True)
    found = sum(float((g * d).sum()) for g, d in zip(gradients, direction, strict=True) if g is not None)
    assert found == pytest.approx(expected, rel=2e-6)
