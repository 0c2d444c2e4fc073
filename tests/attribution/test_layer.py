"""`layer=`: what a module returns is attributed to, on every method, against Captum's layer methods and autograd."""

import pytest
import torch
import transformers
from captum.attr import LayerGradientXActivation, LayerIntegratedGradients
from torch import nn
from torch.utils.checkpoint import checkpoint

import axiograd
from axiograd.attribution.layer import FromLayer
from axiograd.attribution.methods import METHODS
from axiograd.errors import BaselineError, ConfigurationError, InputError, NotHomogeneousError

IDS = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0], [7, 8, 9, 0]])
MASK = (IDS != 0).long()


@pytest.fixture(scope="module")
def bert():
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=3
    )
    return transformers.BertForSequenceClassification(config).eval().double()


def bag():
    """Homogeneous in the embeddings, not in anything before them."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Embedding(30, 6),
        nn.Flatten(),
        nn.Linear(24, 8, bias=False),
        nn.ReLU(),
        nn.Linear(8, 3, bias=False),
    ).double()


@pytest.mark.parametrize("layer", ["bert.embeddings.word_embeddings", "bert.embeddings", "bert.encoder.layer.0.output"])
def test_integrated_gradients_are_captums(bert, layer):
    """Token ids as the baseline, as Captum has them; id 0 is the default."""

    def forward(ids, mask):
        return bert(input_ids=ids, attention_mask=mask).logits

    module = bert.get_submodule(layer)
    baseline = torch.full_like(IDS, 29)
    theirs = LayerIntegratedGradients(forward, module).attribute(
        IDS, baselines=baseline, additional_forward_args=(MASK,), target=1, n_steps=50, method="gausslegendre"
    )
    method = axiograd.IntegratedGradients(bert, 50, layer=layer)
    inputs = {"input_ids": IDS, "attention_mask": MASK}
    ours = method.attribute(inputs, 1, baselines={"input_ids": baseline})
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)
    by_module = axiograd.IntegratedGradients(forward, 50, layer=module)
    again = by_module.attribute((IDS, MASK), 1, baselines=(baseline[:1], None))
    torch.testing.assert_close(again, theirs, rtol=1e-6, atol=1e-9)
    by_default = LayerIntegratedGradients(forward, module).attribute(
        IDS, additional_forward_args=(MASK,), target=1, n_steps=50
    )
    torch.testing.assert_close(method.attribute(inputs, 1), by_default, rtol=1e-6, atol=1e-9)
    small = axiograd.IntegratedGradients(bert, 50, internal_batch_size=2, layer=layer)
    torch.testing.assert_close(small.attribute(inputs, 1), method.attribute(inputs, 1))
    assert method.completeness(inputs, 1, baselines={"input_ids": baseline}).relative.max() < 1e-4


@pytest.mark.parametrize("place", [0, 1, 3])
def test_baselines_are_inputs_as_captums_are(place):
    """None, a number, one row, a row per sample: the layer's baseline is what it returns for them."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(144, 5), nn.GELU(), nn.Linear(5, 2))
    network, images = network.double(), torch.randn(3, 3, 8, 8, dtype=torch.double)
    ours = axiograd.IntegratedGradients(network, 40, layer=str(place))
    theirs = LayerIntegratedGradients(network, network[place])
    for baseline in (None, 0.5, torch.randn(1, 3, 8, 8).double(), torch.randn(3, 3, 8, 8).double()):
        expected, delta = theirs.attribute(
            images.clone(), baseline, target=1, n_steps=40, return_convergence_delta=True
        )
        found, gap = ours.attribute(images, baseline, target=1, return_convergence_delta=True)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(gap, delta, rtol=1e-5, atol=1e-7)
        outside = ours.compute_convergence_delta(found, baseline, images, target=1)
        torch.testing.assert_close(outside, gap)
    assert ours.explain(images, 1).baseline == "the layer at zero"


def test_a_baseline_in_the_layers_own_dimensions():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 5), nn.GELU(), nn.Linear(5, 2)).double()
    images, start = torch.randn(3, 3, 8, 8, dtype=torch.double), torch.randn(1, 4, 6, 6, dtype=torch.double)
    found = axiograd.IntegratedGradients(network, 40, layer="0").attribute(images, 1, baselines=start)
    expected = axiograd.IntegratedGradients(network[1:], 40).attribute(network[0](images).detach(), 1, baselines=start)
    torch.testing.assert_close(found, expected)


def test_training_through_the_layers_baseline():
    """layer(x′) depends on the parameters as layer(x) does: against autograd through both."""
    torch.manual_seed(0)
    network, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double(), torch.randn(5, 3).double()
    found = axiograd.IntegratedGradients(network, 1, "riemann_middle", layer="0").attribute(x, 1, create_graph=True)
    h, zero = network[0](x), network[0](torch.zeros_like(x))
    point = (h + zero) / 2
    gradient = torch.autograd.grad(network[1:](point)[:, 1].sum(), point, create_graph=True)[0]
    expected = (h - zero) * gradient
    torch.testing.assert_close(found, expected)
    parameters = list(network.parameters())
    ours, theirs = (torch.autograd.grad(a.square().sum(), parameters, allow_unused=True) for a in (found, expected))
    torch.testing.assert_close(ours[:3], theirs[:3])


def test_input_x_gradient_is_captums_gradient_x_activation():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(144, 2)).double()
    images = torch.randn(5, 3, 8, 8, dtype=torch.double)
    theirs = LayerGradientXActivation(network, network[0]).attribute(images, target=1)
    ours = axiograd.InputXGradient(network, layer="0").attribute(images, 1)
    torch.testing.assert_close(ours, theirs)


def test_x_gradient_is_integrated_gradients_where_the_rest_is_homogeneous():
    network = bag()
    ours = axiograd.XGradient(network, layer="0").attribute(IDS, 2)
    zero = torch.zeros(1, 1, 6)  # in the embeddings' dimensions; by default the path starts at the embedding of id 0
    theirs = axiograd.IntegratedGradients(network, 64, layer="0").attribute(IDS, 2, baselines=zero)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(ours.sum((1, 2)), network(IDS)[:, 2])


def test_x_gradient_names_the_layer_that_it_refuses(bert):
    layer = "bert.embeddings.word_embeddings"
    with pytest.raises(NotHomogeneousError, match=f"from the layer '{layer}' on, is not certified"):
        axiograd.XGradient(bert, layer=layer).attribute({"input_ids": IDS, "attention_mask": MASK}, 1)
    scaled = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2, bias=False))
    with pytest.raises(NotHomogeneousError, match="layer '1'"):  # the input is beside it, and does not scale
        axiograd.XGradient(nn.Sequential(*scaled, nn.Sigmoid()), layer="1").attribute(torch.randn(3, 4), 0)


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_takes_a_layer(name):
    network = bag()
    references = network[0](IDS).detach()
    method = METHODS[name].build(network, steps=4, references=references, layer="0")
    assert method.attribute(IDS, 1).shape == (3, 4, 6)
    explanation = method.explain(IDS, 1)
    torch.testing.assert_close(explanation.outputs, network(IDS).detach())
    assert method.model is network


def test_expected_gradients_draw_from_the_layers_space():
    network = bag()
    reference = network[0](torch.full((1, 4), 7)).detach()
    method = axiograd.ExpectedGradients(network, reference.repeat(4000, 1, 1), 1000, layer="0")
    expected = axiograd.IntegratedGradients(network, 256, layer="0").attribute(IDS, 1, baselines=reference)
    found = method.attribute(IDS, 1)
    assert (found - expected).abs().max() < 0.05 * expected.abs().max()


def test_the_model_is_left_as_it_was():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2)).train()
    seen = []
    network[1].register_forward_hook(lambda module, args, output: seen.append(1))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    hooks, state, x = len(network[2]._forward_hooks), torch.get_rng_state(), torch.randn(8, 4)
    state = torch.get_rng_state()
    axiograd.InputXGradient(network, layer="2").attribute(x, 1)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert len(network[2]._forward_hooks) == hooks
    with pytest.raises(RuntimeError):
        axiograd.InputXGradient(network, layer="2").attribute(torch.randn(8, 5), 1)
    assert len(network[2]._forward_hooks) == hooks


@pytest.mark.parametrize("place", [1, 2])
def test_a_training_step_is_one_pass_of_the_model(place):
    """Outputs, statistics and draws are those of one ordinary forward pass from the same random state."""
    torch.manual_seed(0)
    layers = [nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2)]
    network = nn.Sequential(*layers).train()
    x, start = torch.randn(8, 4), {name: value.clone() for name, value in network.state_dict().items()}
    torch.manual_seed(1)
    expected = network(x)
    state, after = torch.get_rng_state(), {name: value.clone() for name, value in network.state_dict().items()}
    network.load_state_dict(start)
    torch.manual_seed(1)
    found = axiograd.InputXGradient(network, layer=str(place)).explain(x, 1, create_graph=True)
    torch.testing.assert_close(found.outputs, expected)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, after[name]) for name, value in network.state_dict().items())


def test_gradients_reach_what_comes_before_the_layer():
    network = bag()
    y = torch.tensor([0, 1, 2])
    h = network[0](IDS)
    gradient = torch.autograd.grad(network[1:](h).gather(1, y[:, None]).sum(), h, create_graph=True)[0]
    expected = torch.autograd.grad((h * gradient).abs().sum(), list(network.parameters()))
    attributions = axiograd.XGradient(network, layer="0").attribute(IDS, y, create_graph=True)
    found = torch.autograd.grad(attributions.abs().sum(), list(network.parameters()))
    torch.testing.assert_close(found, expected)
    steps = axiograd.IntegratedGradients(network, 8, layer="0").attribute(
        IDS, y, baselines=torch.zeros(1, 1, 6), create_graph=True
    )
    torch.testing.assert_close(torch.autograd.grad(steps.abs().sum(), list(network.parameters())), expected)


@pytest.mark.parametrize("outputs", ["target", "all", "random", "residual"])
def test_a_prior_on_a_layer(outputs):
    network, y = bag(), torch.tensor([0, 1, 2])
    loss = axiograd.AttributionLoss(nn.functional.cross_entropy, axiograd.priors.L1(), layer="0", outputs=outputs)
    terms = loss(network, IDS, y)
    terms.total.backward()
    assert terms.attributions.shape[-3:] == (3, 4, 6)
    assert network[0].weight.grad.abs().sum() > 0
    assert loss.why_twice


class Twice(nn.Module):
    """One embedding for source and prefix, as encoder-decoders have it."""

    def __init__(self, *, chained=False):
        super().__init__()
        torch.manual_seed(0)
        self.shared, self.body, self.head = nn.Embedding(30, 6), nn.Linear(6, 6, bias=False), nn.Linear(6, 3)
        self.chained = chained

    def forward(self, source, prefix):
        if self.chained:
            return self.head(self.body(self.body(self.shared(source))).mean(1))
        return self.head((self.body(self.shared(source)).mean(1) * self.shared(prefix).mean(1)).tanh())


def test_a_layer_that_runs_twice_has_two_outputs():
    network = Twice().double()
    source, prefix = IDS, IDS[:, :2]
    method = axiograd.IntegratedGradients(network, 64, layer="shared")
    zeros = (torch.zeros(1, 1, 6), torch.zeros(1, 1, 6))
    to_source, to_prefix = method.attribute((source, prefix), 1, baselines=zeros)
    assert to_source.shape == (3, 4, 6)
    assert to_prefix.shape == (3, 2, 6)
    h = [network.shared(t).detach() for t in (source, prefix)]
    nodes = (torch.arange(2000, dtype=torch.double) + 0.5) / 2000
    totals = [torch.zeros_like(t) for t in h]
    for t in nodes:
        a, b = ((t * each).requires_grad_() for each in h)
        score = network.head((network.body(a).mean(1) * b.mean(1)).tanh())[:, 1].sum()
        for total, gradient in zip(totals, torch.autograd.grad(score, (a, b)), strict=True):
            total.add_(gradient / 2000)
    torch.testing.assert_close((to_source, to_prefix), (h[0] * totals[0], h[1] * totals[1]), rtol=1e-5, atol=1e-7)
    again = axiograd.IntegratedGradients(network, 64, layer=["shared", network.body]).attribute
    with pytest.raises(ConfigurationError, match="do not feed each other"):
        again((source, prefix), 1)
    with pytest.raises(ConfigurationError, match="'body' is called again on a value computed from its own output"):
        axiograd.InputXGradient(Twice(chained=True), layer="body").attribute((source, prefix), 1)


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.last(checkpoint(self.block, self.first(x), use_reentrant=False))

    def block(self, h):
        return self.inner(h).tanh() ** 2


def test_a_layer_in_a_checkpoint_is_refused_and_one_before_it_is_right():
    torch.manual_seed(0)
    network, x = Checkpointed().double(), torch.randn(3, 4, dtype=torch.double)
    with pytest.raises(ConfigurationError, match="runs inside torch"):
        axiograd.IntegratedGradients(network, 8, layer="inner").attribute(x, 1)
    before = axiograd.IntegratedGradients(network, 64, layer="first").completeness(x, 1)
    assert before.relative.max() < 1e-9


class Idle(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.idle, self.flat = nn.Linear(4, 2), nn.Linear(4, 2), nn.Flatten(0)

    def forward(self, x):
        return self.flat(self.used(x)).reshape(len(x), 2)


def test_what_cannot_be_meant_is_refused():
    x = torch.randn(3, 4)
    network = Idle()
    with pytest.raises(ConfigurationError, match="did you mean 'used'"):
        axiograd.InputXGradient(network, layer="usd")
    with pytest.raises(ConfigurationError, match="is not a module of the model"):
        axiograd.InputXGradient(network, layer=nn.Linear(2, 2))
    with pytest.raises(ConfigurationError, match="pass the module inside"):
        axiograd.InputXGradient(nn.DataParallel(network), layer="module.used")
    with pytest.raises(InputError, match="'idle' did not run"):
        axiograd.InputXGradient(network, layer="idle").attribute(x, 0)
    with pytest.raises(InputError, match=r"shape \(6,\) for a batch of 3"):
        axiograd.InputXGradient(network, layer="flat").attribute(x, 0)
    with pytest.raises(BaselineError, match="the inputs that can have one are"):
        axiograd.IntegratedGradients(bag(), layer="0").attribute({"input": IDS}, 0, baselines={"ids": IDS})


def test_certify_takes_the_function_from_a_layer_on():
    network = bag()
    certificate = axiograd.certify(FromLayer(network, "0"), (network[0](IDS).detach(), IDS), wrt=0)
    assert (certificate.ok, certificate.degree, certificate.exact) == (True, 1.0, True)


def test_inference_mode_does_not_matter():
    network = bag()
    expected = axiograd.InputXGradient(network, layer="0").attribute(IDS, 1)
    with torch.inference_mode():
        torch.testing.assert_close(axiograd.InputXGradient(network, layer="0").attribute(IDS.clone(), 1), expected)


@pytest.mark.parametrize("ours", [axiograd.InputXGradient, axiograd.IntegratedGradients])
def test_a_layer_before_one_that_works_in_place(ours):
    """BatchNorm before ReLU(inplace=True), as in torchvision's ResNets: the same as before a ReLU that does not."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(144, 3)]
    in_place = nn.Sequential(*layers).eval()
    plain = nn.Sequential(*layers[:2], nn.ReLU(), *layers[3:]).eval()
    x = torch.randn(2, 3, 8, 8)
    expected = ours(plain, layer=plain[1]).attribute(x, 1)
    torch.testing.assert_close(ours(in_place, layer=in_place[1]).attribute(x, 1), expected)
