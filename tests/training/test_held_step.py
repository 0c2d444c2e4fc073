"""The held step has the gradients of the double backward pass, or the loss goes that way and says why."""

import copy
import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from axiograd import models
from axiograd.attribution import Gradient, InputXGradient, IntegratedGradients, LogGradient, Saliency, XGradient
from axiograd.errors import ConfigurationError, DisconnectedError
from axiograd.homogeneity.conversion.layers import UncentredBatchNorm
from axiograd.priors import L1, RightReasons
from axiograd.training.held_step import HeldGates
from axiograd.training.loss import AttributionLoss
from support.gated_networks import CASES, make
from support.prior_cases import CASES as PRIORS

#: Their samples or their Python code depend on the batch: differentiated twice.
NOT_HELD = {"max of all", "samples that meet", "branch"}


def loss_of(
    *, twice: bool | None, prior=None, task=F.cross_entropy, method=InputXGradient, **options
) -> AttributionLoss:
    prior = L1() + 0.5 * RightReasons() if prior is None else prior
    return AttributionLoss(task, prior, 0.7, method, outputs="residual", double_backward=twice, **options)


def gradients(model, x, y, arguments=None, *, twice, scale=1.0, **options) -> tuple[torch.Tensor, str]:
    """All gradients of a second step in one vector, and why it took second derivatives."""
    loss = loss_of(twice=twice, **options)
    arguments = {"mask": x.detach() > 0} if arguments is None else arguments
    loss(model, x, y, **arguments)  # the first step compares the passes more thoroughly
    model.zero_grad()
    torch.manual_seed(5)
    (scale * loss(model, x, y, **arguments).total).backward()
    found = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters() if p.requires_grad]
    return torch.cat([g.flatten() for g in found]), loss.why_twice


def agree(model, x, y, arguments=None, *, held: bool = True, **options) -> None:
    found, why = gradients(model, x, y, arguments, twice=False, **options)
    assert (why == "") is held
    expected, _ = gradients(model, x, y, arguments, twice=True, **options)
    assert float(expected.norm()) > 0
    assert float((found - expected).norm() / expected.norm()) < 1e-12


@pytest.mark.parametrize("name", CASES)
def test_every_operator(name: str) -> None:
    agree(*make(name), held=name not in NOT_HELD)


@pytest.mark.parametrize("method", [XGradient, InputXGradient, Gradient, Saliency])
def test_every_method(method) -> None:
    agree(*make("no biases"), method=method)


@pytest.mark.parametrize("name", PRIORS)
def test_every_prior(name: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 2), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(6, 3)).double()
    x, y = torch.randn(4, 1, 3, 4, dtype=torch.float64), torch.tensor([0, 2, 1, 1])
    # The loss has these two itself.
    arguments = {key: value for key, value in PRIORS[name].arguments(x).items() if key not in {"inputs", "score"}}
    agree(model, x, y, arguments, prior=PRIORS[name].prior(12))


@pytest.mark.parametrize("name", ["xalexnet", "xvgg11", "xfixup_resnet50", "squeezenet1_1"])
def test_networks_of_the_paper(name: str) -> None:
    torch.manual_seed(0)
    model = models.get_model(name, num_classes=3).double()
    for parameter in model.parameters():  # Fixup starts with zeros
        nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5 if parameter.dim() > 1 else 1.0)
    agree(model, torch.randn(2, 3, 64, 64, dtype=torch.float64), torch.tensor([0, 2]), held=True)


def test_finite_differences() -> None:
    model, x, y = make("max pool, overlapping and padded", batch=2)
    found, why = gradients(model, x, y, twice=False, prior=RightReasons())
    assert why == ""
    with torch.no_grad():
        r = model(x).softmax(1) - F.one_hot(y, 3)
    u = r / r.norm(dim=1, keepdim=True) * 3**0.5  # held fixed, which a difference would not do
    values = torch.cat([p.detach().flatten() for p in model.parameters()])
    direction = torch.randn(values.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    totals = []
    for step in (-1e-6, 1e-6):
        nn.utils.vector_to_parameters(values + step * direction, model.parameters())
        loss = AttributionLoss(F.cross_entropy, RightReasons(), 0.7, InputXGradient)
        target = lambda outputs: (outputs * u).sum(1)  # noqa: E731
        totals.append(loss(model, x, y, attribution_target=target, mask=x > 0).total.item())
    assert (totals[1] - totals[0]) / 2e-6 == pytest.approx(float(found @ direction), rel=1e-6)


@pytest.mark.parametrize("scale", [1024.0, -0.3])
def test_a_total_that_is_scaled(scale) -> None:
    agree(*make("residual sum"), scale=scale)


@pytest.mark.parametrize("term", ["task", "prior", "outputs", "attributions"])
def test_other_terms_say_that_they_have_no_gradient(term: str) -> None:
    model, x, y = make("residual sum")
    terms = loss_of(twice=False)(model, x, y, mask=x > 0)
    with pytest.raises(ConfigurationError, match="double_backward=True"):
        (terms.total + getattr(terms, term).sum()).backward()


def test_frozen_layers_and_hooks_of_parameters() -> None:
    model, x, y = make("max pool, overlapping and padded")
    model[0].weight.requires_grad_(requires_grad=False)
    model[-1].weight.register_hook(lambda g: 3 * g)
    agree(model, x, y)
    assert model[0].weight.grad is None
    model.requires_grad_(requires_grad=False)
    with pytest.raises(DisconnectedError, match="no parameter that requires a gradient"):
        loss_of(twice=False)(model, x, y, mask=x > 0)


def test_a_step_that_is_not_differentiated_keeps_no_memory(monkeypatch) -> None:
    made, initialise = [], HeldGates.__init__

    def remembered(self) -> None:
        made.append(weakref.ref(self))
        initialise(self)

    monkeypatch.setattr(HeldGates, "__init__", remembered)
    model, x, y = make("max pool, overlapping and padded")
    loss = loss_of(twice=False)
    for _ in range(2):
        loss(model, x, y, mask=x > 0)
    assert loss.why_twice == ""
    gc.collect()
    assert len(made) == 2
    assert not any(gates() for gates in made)


def test_a_norm_whose_statistics_move_as_it_trains() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), UncentredBatchNorm(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)).double()
    x, y = torch.randn(4, 2, 6, 6, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
    found = []
    for twice in (False, True):
        own = copy.deepcopy(model)
        found.append((*gradients(own, x, y, twice=twice), own[1].running_var, own[1].num_batches_tracked))
    assert [why for _, why, *_ in found] == ["", "double_backward=True asks for it"]
    for held, expected in zip(found[0], found[1], strict=True):
        if isinstance(held, torch.Tensor):
            torch.testing.assert_close(held, expected, rtol=1e-12, atol=1e-14)


def test_checkpoints_are_differentiated_twice() -> None:
    model, x, y = make("max pool, overlapping and padded")

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, v):
            return self.model[2:](checkpoint(self.model[:2], v, use_reentrant=False))

    agree(Checkpointed(), x, y, held=False)


def test_bfloat16() -> None:
    model, x, y = make("residual sum", batch=16)
    found = []
    for twice in (False, True):
        own = copy.deepcopy(model).float()
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(twice=twice)
            terms = loss(own, x.float(), y, mask=x > 0)
        terms.total.backward()
        assert terms.outputs.dtype == torch.bfloat16
        assert (loss.why_twice == "") is not twice
        found.append(torch.cat([p.grad.flatten() for p in own.parameters()]))
    assert F.cosine_similarity(*found, dim=0) > 0.99


def test_float16_does_not_lose_the_residual_of_a_network_that_is_sure() -> None:
    model, x, y = make("linear, relu")
    with torch.autocast("cpu", torch.float16):
        loss = loss_of(twice=False)
        loss(copy.deepcopy(model).float(), x.float(), y, mask=x > 0)
    assert "float16" in loss.why_twice


def test_samples_without_a_residual_have_no_attribution() -> None:
    case = make("max pool, overlapping and padded")

    def hinge(outputs, target):
        return (outputs * torch.tensor([1.0, 0.0, 1.0, 0.0])[:, None]).square().mean()

    terms = loss_of(twice=False, task=hinge)(*case, mask=case[1] > 0)
    assert not terms.attributions[1::2].any()
    assert terms.attributions[::2].any()
    agree(*case, task=hinge)


def test_one_output_and_outputs_without_a_dimension_of_their_own() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1), nn.Flatten(0)).double()
    x, y = torch.randn(5, 6, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    agree(model, x, y, task=F.mse_loss)
    agree(model[:3], x, y[:, None], task=F.mse_loss)


def test_mixed_targets() -> None:
    model, x, y = make("residual sum")
    agree(model, x, y, task=lambda o, t: 0.3 * F.cross_entropy(o, t) + 0.7 * F.cross_entropy(o, t.flip(0)))


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.last = nn.Linear(4, 6), nn.Linear(3, 6), nn.Linear(6, 3)

    def forward(self, left, right):
        return self.last((self.left(left) + self.right(right)).relu())


def test_several_inputs() -> None:
    torch.manual_seed(0)
    model, x, y = TwoInputs().double(), torch.randn(4, 7, dtype=torch.float64), torch.arange(4) % 3
    found = []
    for twice in (False, True):
        loss = loss_of(twice=twice, prior=L1(), of=1)
        model.zero_grad()
        loss(model, (x[:, :4], x[:, 4:]), y).total.backward()
        assert (loss.why_twice == "") is not twice
        found.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-14)


def test_the_residual_is_refused_where_it_means_nothing() -> None:
    for method in (LogGradient, IntegratedGradients):
        with pytest.raises(ConfigurationError, match=f"which {method.__name__} does not"):
            loss_of(twice=None, method=method)(*make("no biases"))


class StraightThrough(torch.autograd.Function):
    """Its gradient is not that of the function."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def _without_gradient(h):
    with torch.no_grad():
        return h.relu()


def _a_view_in_place(h):
    view = h[:, :2]
    F.relu(h, inplace=True)
    return view


UNHELD = {
    "a curve": lambda h: h.tanh(),
    "a product": lambda h: h * h,
    "a quotient": lambda h: h / (1 + h.abs().sum(1, keepdim=True)),
    "a cut": lambda h: h + h.detach(),
    "no gradient": lambda h: h + _without_gradient(h),
    "an autograd function": StraightThrough.apply,
    "batch statistics": lambda h: F.batch_norm(h, None, None, training=True),
    "samples that mix": lambda h: F.relu(h + 0.5 * h.roll(2, 0)),
    "a mask made by NumPy": lambda h: h * torch.from_numpy((h.detach().numpy() > 0).astype(float)),
}


@pytest.mark.parametrize("name", UNHELD)
def test_what_cannot_be_held_goes_by_double_backward(name: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4), nn.Identity(), nn.Linear(4, 3)).double()
    model[1].forward = UNHELD[name]
    x, y = torch.randn(4, 6, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
    agree(model, x, y, held=False)


def test_a_view_that_is_changed_in_place() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4), nn.Identity(), nn.Linear(2, 3)).double()
    model[1].forward = _a_view_in_place
    agree(model, torch.randn(4, 6, dtype=torch.float64), torch.tensor([0, 1, 2, 0]))


@pytest.mark.parametrize(
    "wrap", [lambda model: torch.compile(model, backend="eager"), nn.DataParallel], ids=["compiled", "data parallel"]
)
def test_wrapped_modules(wrap) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)).double()
    x, y = torch.randn(4, 6, dtype=torch.float64), torch.tensor([0, 2, 1, 0])
    expected, _ = gradients(model, x, y, twice=True)
    found, why = gradients(wrap(model), x, y, twice=False)
    assert why == ""
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


def test_parts_before_the_model_and_in_the_task_are_trained() -> None:
    torch.manual_seed(0)
    before, temperature = nn.Linear(6, 6).double(), nn.Parameter(torch.ones((), dtype=torch.float64))
    model, x, y = make("linear, relu")
    found = []
    for twice in (False, True):
        loss = loss_of(twice=twice, prior=L1(), task=lambda outputs, y: F.cross_entropy(outputs * temperature, y))
        temperature.grad = before.weight.grad = None
        loss(model, x, y).total.backward()
        assert (loss.why_twice == "") is not twice
        own = temperature.grad.clone()
        loss(model, before(x), y).total.backward()
        found.append((own, temperature.grad, before.weight.grad))
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-14)


def test_small_networks_are_differentiated_twice_because_that_is_faster_for_them() -> None:
    model, x, y = make("residual sum")
    loss = loss_of(twice=None)
    loss(model, x, y, mask=x > 0)
    assert "it is faster" in loss.why_twice
    large = nn.Sequential(nn.Linear(2000, 1000, bias=False), nn.ReLU(), nn.Linear(1000, 2, bias=False))
    loss = AttributionLoss(F.cross_entropy, L1(), outputs="residual")
    loss(large, torch.randn(64, 2000), torch.randint(2, (64,)))
    assert loss.why_twice == ""
