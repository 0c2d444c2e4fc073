"""X-Gradient checks x·∇F = k·F on each sample: what a certificate of the whole batch cannot see is refused."""

import pytest
import torch
from torch import nn

import axiograd
from axiograd.attribution import InexactWarning
from axiograd.errors import NotHomogeneousError
from axiograd.models import get_model
from axiograd.priors import L1
from support.networks import HOMOGENEOUS, build, mlp


class Centred(nn.Module):
    """Degree 1 of the batch as a whole, and no function of one row."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp(bias=False)

    def forward(self, x):
        return self.inner(x - x.mean(0))


class Graph(nn.Module):
    """Nodes are rows."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(7, 16, bias=False), nn.Linear(16, 3, bias=False)

    def forward(self, x, adjacency):
        return self.last(adjacency @ self.first(adjacency @ x).relu())


class Normed(nn.Module):
    """x/RMS(x) up to an epsilon, times ‖x‖."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp(bias=False)

    def forward(self, x):
        return self.inner(x / (x.square().mean(1, keepdim=True) + 1e-5).sqrt()) * x.norm(dim=1, keepdim=True)


@pytest.fixture(name="x")
def _x():
    torch.manual_seed(0)
    return torch.randn(6, 7)


@pytest.mark.parametrize("target", [1, "all", lambda out: out[:, 0] - out[:, 2]], ids=["index", "all", "callable"])
@pytest.mark.parametrize("create_graph", [False, True])
def test_rows_that_interact_are_refused(x, target, create_graph):
    method = axiograd.XGradient(Centred())
    with pytest.raises(NotHomogeneousError, match=r"sample \d add up to .* score is .*rows of the batch interact"):
        method.attribute(x, target, create_graph=create_graph)
    with pytest.raises(NotHomogeneousError, match="batches of one"):
        method.explain(x, target, create_graph=create_graph)
    axiograd.XGradient(Centred()).attribute(x[:1], target)


def test_the_message_names_the_worst_sample_and_both_numbers():
    x, last = torch.tensor([[1.0], [2.0], [9.0]]), torch.tensor([[0.0], [0.0], [1.0]])
    with pytest.raises(NotHomogeneousError, match=r"sample 1 add up to 4 and its score is 2, a gap of 33\.33%"):
        axiograd.XGradient(lambda x: (x + last * x.roll(1, 0)).sum(1)).attribute(x)


def test_a_graph_is_attributed_as_one_sample(x):
    torch.manual_seed(0)
    graph, adjacency = Graph(), torch.rand(6, 6)
    with pytest.raises(NotHomogeneousError, match="nodes are rows"):
        axiograd.XGradient(graph).attribute(x, 1, additional_forward_args=adjacency)
    whole = axiograd.XGradient(lambda x: graph(x[0], adjacency)[:, 1].sum().reshape(1)).attribute(x[None])
    torch.testing.assert_close(whole.sum(), graph(x, adjacency)[:, 1].sum())


def test_a_loss_does_not_train_on_rows_that_interact(x):
    loss = axiograd.AttributionLoss(nn.functional.cross_entropy, L1())
    with pytest.raises(NotHomogeneousError, match="rows of the batch interact"):
        loss(Centred(), x, torch.zeros(6, dtype=torch.long))


def test_epsilons_that_count_are_told_once(x):
    torch.manual_seed(0)
    model = Normed()
    method = axiograd.XGradient(model)
    assert not axiograd.certify(model, x).exact
    method.attribute(x, 0)
    with pytest.warns(InexactWarning, match=r"add up to .*epsilons.*inputs as small") as caught:
        method.attribute(0.01 * x, 0)
    assert caught[0].filename == __file__
    method.attribute(0.001 * x, 0)  # a second warning would be an error


def test_a_degree_that_was_taken_on_trust_is_told_once(x):
    torch.manual_seed(0)
    biased = mlp(bias=True)
    method = axiograd.XGradient(biased, degree=1)
    with pytest.warns(InexactWarning, match=r"degree=1 was given, not proved; axiograd\.verify"):
        method.attribute(x, 0)
    method.attribute(x, 0)


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [
        (torch.float64, 1.0),
        (torch.float32, 1e-6),
        (torch.float32, 1e3),
        (torch.bfloat16, 1.0),
        (torch.float16, 1e-2),
        *(pytest.param(torch.bfloat16, scale, marks=pytest.mark.long) for scale in (1e-6, 1e3)),
        *(pytest.param(torch.float16, scale, marks=pytest.mark.long) for scale in (1.0, 10.0)),
        pytest.param(torch.float32, 1.0, marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("name", HOMOGENEOUS)
def test_rounding_is_no_violation(name, dtype, scale):
    network, x = build(name, batch=16)
    x = x * scale
    axiograd.XGradient(network.to(dtype)).attribute(x.to(dtype), "all")
    if dtype is torch.bfloat16:
        with torch.autocast("cpu", dtype):
            axiograd.XGradient(network.float()).attribute(x.float(), "all")


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, *(pytest.param(one, marks=pytest.mark.long) for one in (torch.float32, torch.float16))]
)
def test_rounding_is_no_violation_after_a_hundred_layers(dtype):
    torch.manual_seed(0)
    network = mlp(bias=False, sizes=(32,) * 101)
    for layer in network[::2]:
        nn.init.kaiming_normal_(layer.weight)
    network, x = network.to(dtype), torch.randn(8, 32, dtype=dtype)
    axiograd.XGradient(network).attribute(x, "all")


def test_coarse_formats_warn_for_numbers_may_cancel_in_them(x):
    torch.manual_seed(0)
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.warns(InexactWarning, match=r"rows of the batch interact.*bfloat16"),
    ):
        axiograd.XGradient(Centred()).attribute(x, 1)


def test_networks_whose_scores_are_zero_pass():
    network = get_model("xfixup_resnet18", num_classes=3, width=0.25).eval()  # the last layer starts at zero
    assert not axiograd.XGradient(network, degree=1).attribute(torch.randn(1, 3, 64, 64), 0).any()


def test_scores_that_cancel_are_measured_against_what_cancels():
    """A head that starts at zero has opposite rows after a step of two classes: their sum is rounding, no violation."""
    for seed in range(3):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(20, 32, bias=False), nn.ReLU(), nn.Linear(32, 2, bias=False))
        nn.init.zeros_(model[2].weight)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = axiograd.AttributionLoss(nn.functional.cross_entropy, L1(), outputs="random", double_backward=True)
        for _ in range(4):
            terms = loss(model, torch.randn(64, 20), torch.randint(2, (64,)))
            optimizer.zero_grad()
            terms.total.backward()
            optimizer.step()


def test_nothing_is_checked_while_a_compiler_traces(x, monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    axiograd.XGradient(mlp(bias=True), degree=1).attribute(x, 0)  # a warning would be an error
