import copy
import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from axiograd.attribution import (
    ExpectedGradients,
    Gradient,
    InputXGradient,
    IntegratedGradients,
    LogGradient,
    RandomAttribution,
    Saliency,
    XGradient,
)
from axiograd.errors import AxiogradError, ConfigurationError, DisconnectedError, TargetError
from axiograd.priors import L1, Gini, RightReasons
from axiograd.training.loss import AttributionLoss
from axiograd.training.schedules import LinearWarmup

BATCH, FEATURES, CLASSES = 5, 6, 4


class Net(nn.Module):
    def __init__(self, n_outputs: int = CLASSES, n_features: int = FEATURES, dtype=torch.float64) -> None:
        super().__init__()
        self.first = nn.Linear(n_features, 7, bias=False, dtype=dtype)
        self.last = nn.Linear(7, n_outputs, bias=False, dtype=dtype)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.last(self.first(x).relu())


@pytest.fixture
def model() -> Net:
    torch.manual_seed(0)
    return Net()


@pytest.fixture
def x() -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(BATCH, FEATURES, dtype=torch.float64)


Y = torch.tensor([0, 3, 1, 1, 2])
MASK = torch.zeros(BATCH, FEATURES, dtype=torch.bool)
MASK[:, :2] = True


def attributions_by_hand(model: Net, x: torch.Tensor) -> torch.Tensor:
    """[classes, batch, features]: x ⊙ ∇F_c by the chain rule written out."""
    active = (x @ model.first.weight.T > 0).to(x)
    gradients = torch.einsum("ch,bh,hf->cbf", model.last.weight, active, model.first.weight)
    return x * gradients


def grads(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def xgradient_loss(prior=None, weight=0.7, **options) -> AttributionLoss:
    return AttributionLoss(F.cross_entropy, prior or RightReasons(), weight, degree=1, **options)


def test_terms_and_gradients_are_those_written_out_by_hand(model: Net, x: torch.Tensor) -> None:
    terms = xgradient_loss()(model, x, Y, mask=MASK)
    terms.total.backward()
    found = grads(model)
    model.zero_grad()
    by_hand = attributions_by_hand(model, x)[Y, torch.arange(BATCH)]
    task, prior = F.cross_entropy(model(x), Y), (by_hand[:, :2] ** 2).sum() / BATCH
    (task + 0.7 * prior).backward()
    torch.testing.assert_close(terms.task, task)
    torch.testing.assert_close(terms.prior, prior)
    torch.testing.assert_close(terms.total, task + 0.7 * prior)
    torch.testing.assert_close(terms.attributions, by_hand)
    torch.testing.assert_close(terms.outputs, model(x))
    torch.testing.assert_close(found, grads(model), rtol=1e-12, atol=1e-14)
    assert terms.weight == 0.7


@pytest.mark.parametrize("outputs", ["target", "all", "random", None])
def test_one_forward_pass_per_step(outputs, x: torch.Tensor) -> None:
    model = Net(1) if outputs is None else Net()
    loss = AttributionLoss(lambda o, y: o.square().mean(), L1(), method=XGradient, outputs=outputs, degree=1)
    loss(model, x, Y)
    model.calls = 0
    for _ in range(3):
        loss(model, x, Y).total.backward()
    assert model.calls == 3


def test_gradient_is_that_of_finite_differences(model: Net, x: torch.Tensor) -> None:
    loss = xgradient_loss(RightReasons() + 0.5 * Gini() + 0.1 * L1())
    parameters = dict(model.named_parameters())

    def total(*values):
        return loss(
            lambda v: torch.func.functional_call(model, dict(zip(parameters, values, strict=True)), v), x, Y, mask=MASK
        ).total

    assert torch.autograd.gradcheck(total, tuple(p.detach().clone().requires_grad_() for p in parameters.values()))


METHODS = {
    "XGradient": (XGradient, {"degree": 1}),
    "IntegratedGradients": (IntegratedGradients, {"n_steps": 3}),
    "ExpectedGradients": (ExpectedGradients, {"references": torch.zeros(8, FEATURES, dtype=torch.float64)}),
    "InputXGradient": (InputXGradient, {}),
    "Gradient": (Gradient, {}),
    "Saliency": (Saliency, {}),
    "LogGradient": (LogGradient, {}),
}


@pytest.mark.parametrize("outputs", ["target", "all", "random"])
@pytest.mark.parametrize("name", METHODS)
def test_every_differentiable_method_trains(name: str, outputs, model: Net, x: torch.Tensor) -> None:
    method, options = METHODS[name]
    loss = AttributionLoss(F.cross_entropy, RightReasons(), method=method, outputs=outputs, **options)
    terms = loss(model, x, Y, mask=MASK)
    terms.prior.backward()
    assert all(p.grad.abs().sum() > 0 for p in model.parameters())


def test_a_method_that_exists_is_used(model: Net, x: torch.Tensor) -> None:
    existing = AttributionLoss(F.cross_entropy, L1(), method=XGradient(model, degree=1))
    torch.testing.assert_close(existing(model, x, Y).total, xgradient_loss(L1(), 1.0)(model, x, Y).total)
    with pytest.raises(ConfigurationError, match="XGradient of another model"):
        existing(copy.deepcopy(model), x, Y)
    with pytest.raises(ConfigurationError, match="'degree'"):
        AttributionLoss(F.cross_entropy, L1(), method=XGradient(model), degree=1)


def test_all_sums_the_prior_over_outputs(model: Net, x: torch.Tensor) -> None:
    terms = xgradient_loss(outputs="all")(model, x, Y, mask=MASK)
    by_hand = attributions_by_hand(model, x)
    torch.testing.assert_close(terms.prior, (by_hand[..., :2] ** 2).sum() / BATCH)
    torch.testing.assert_close(terms.attributions, by_hand)
    gini = xgradient_loss(Gini(), outputs="all")(model, x, Y).prior
    torch.testing.assert_close(gini, sum(Gini()(one) for one in by_hand))


def test_random_combinations_are_unbiased_for_all_outputs(x: torch.Tensor) -> None:
    """Exactly: the mean over all sign patterns of value and gradient, which are equally likely, is that of "all"."""
    torch.manual_seed(0)
    model = Net(3)
    one, y, mask = x[:1], Y[:1], MASK[:1]

    def value_and_gradient(loss, **options):
        model.zero_grad()
        value = loss(model, one, y, mask=mask, **options).prior
        value.backward()
        return torch.cat([value.detach().reshape(1), grads(model)])

    from axiograd.attribution import LinearTarget

    loss = AttributionLoss(F.cross_entropy, RightReasons(), degree=1)
    patterns = [LinearTarget(torch.tensor([signs])) for signs in itertools.product([-1.0, 1.0], repeat=3)]
    mean = torch.stack([value_and_gradient(loss, attribution_target=p) for p in patterns]).mean(0)
    exact = value_and_gradient(AttributionLoss(F.cross_entropy, RightReasons(), outputs="all", degree=1))
    torch.testing.assert_close(mean, exact, rtol=1e-12, atol=1e-14)


def test_random_combinations_are_drawn_anew_and_average_to_all(model: Net, x: torch.Tensor) -> None:
    generator = torch.Generator().manual_seed(0)
    random = xgradient_loss(outputs="random", generator=generator)
    exact = xgradient_loss(outputs="all")(model, x, Y, mask=MASK).prior
    values = torch.stack([random(model, x, Y, mask=MASK).prior.detach() for _ in range(1500)])
    standard_error = values.std() / len(values) ** 0.5
    assert len(set(values.tolist())) > 1000
    assert (values.mean() - exact).abs() < 4 * standard_error
    assert standard_error < 0.05 * exact


@pytest.mark.parametrize("shape", [(BATCH,), (BATCH, 1)])
@pytest.mark.parametrize("labels", [torch.float64, torch.long])
def test_a_single_logit_is_attributed_whatever_the_labels(shape, labels, x: torch.Tensor) -> None:
    model = Net(1)

    def task(outputs, target):
        return F.binary_cross_entropy_with_logits(outputs.flatten(), target.to(outputs))

    loss = AttributionLoss(task, L1(), degree=1)
    terms = loss(lambda v: model(v).reshape(shape), x, (Y > 1).to(labels))
    torch.testing.assert_close(terms.attributions, attributions_by_hand(model, x)[0])


def test_targets_that_name_no_output_are_refused_with_advice(model: Net, x: torch.Tensor) -> None:
    loss = AttributionLoss(F.mse_loss, L1(), degree=1)
    values = torch.randn(BATCH, CLASSES, dtype=torch.float64)
    with pytest.raises(
        TargetError, match=r'float64 of shape \(5, 4\)\) do not name one of the 4 outputs.*outputs="all"'
    ):
        loss(model, x, values)
    terms = loss(model, x, values, attribution_target=2)
    torch.testing.assert_close(terms.attributions, attributions_by_hand(model, x)[2])
    assert AttributionLoss(F.mse_loss, L1(), degree=1, outputs="all")(model, x, values).prior > 0


def test_a_mixture_of_targets_is_attributed_as_a_mixture(model: Net, x: torch.Tensor) -> None:
    def mixed(outputs):
        rows = torch.arange(BATCH)
        return 0.3 * outputs[rows, Y] + 0.7 * outputs[rows, Y.flip(0)]

    loss = AttributionLoss(lambda o, y: o.square().mean(), L1(), degree=1)
    terms = loss(model, x, mixed)
    by_hand, rows = attributions_by_hand(model, x), torch.arange(BATCH)
    torch.testing.assert_close(terms.attributions, 0.3 * by_hand[Y, rows] + 0.7 * by_hand[Y.flip(0), rows])
    with pytest.raises(TargetError, match="not linear"):
        loss(model, x, lambda outputs: outputs.square().sum(1))


def test_the_prior_is_about_one_of_several_inputs(x: torch.Tensor) -> None:
    torch.manual_seed(0)
    a, b = Net(), Net()

    def both(left, right):
        return a(left) + b(right)

    loss = AttributionLoss(F.cross_entropy, L1(), degree=1, of=1)
    terms = loss(both, (x, 2 * x), Y)
    torch.testing.assert_close(terms.prior, L1()(attributions_by_hand(b, 2 * x)[Y, torch.arange(BATCH)]))
    named = AttributionLoss(F.cross_entropy, L1(), degree=1, of="right")
    torch.testing.assert_close(named(both, {"left": x, "right": 2 * x}, Y).prior, terms.prior)
    with pytest.raises(ConfigurationError, match=r"inputs \['0', '1'\]; say of which one"):
        AttributionLoss(F.cross_entropy, L1(), degree=1)(both, (x, x), Y)


def test_frozen_model_is_refused(model: Net, x: torch.Tensor) -> None:
    model.requires_grad_(requires_grad=False)
    with pytest.raises(DisconnectedError, match="no parameter that requires a gradient"):
        xgradient_loss(L1())(model, x, Y)


def test_switched_off_gradients_are_refused_in_training_only(model: Net, x: torch.Tensor) -> None:
    loss = xgradient_loss(L1())
    with torch.no_grad(), pytest.raises(DisconnectedError, match=r"call loss.eval\(\)"):
        loss(model, x, Y)
    expected = loss(model, x, Y)
    loss.eval()
    with torch.inference_mode():
        terms = loss(model, x, Y)
    assert not terms.total.requires_grad
    torch.testing.assert_close(terms.total, expected.total.detach())
    assert loss.step == 1


class HalfConnected(XGradient):
    """As Captum: gradients that lead to the inputs, and not to any parameter."""

    def explain(self, inputs, target=None, *, additional_forward_args=None, create_graph=False):
        inputs = inputs.clone().requires_grad_()
        found = super().explain(inputs, target, create_graph=True)
        weights = found.attributions.detach() / inputs.detach()
        return type(found)(found.outputs, inputs * weights, target)


class Detached(XGradient):
    def explain(self, *args, **options):
        found = super().explain(*args, **options)
        return type(found)(found.outputs, found.attributions.detach(), found.target)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (HalfConnected, "reaches none of the 2 trainable parameters"),
        (Detached, "attributions are detached"),
        (lambda model, degree: RandomAttribution(model), "no parameter can be trained through"),
    ],
)
def test_attributions_that_reach_no_parameter_are_refused(method, message, model: Net, x: torch.Tensor) -> None:
    with pytest.raises(DisconnectedError, match=message):
        xgradient_loss(L1(), method=method)(model, x, Y)


def test_the_check_is_made_once_and_leaves_no_gradient(model: Net, x: torch.Tensor, monkeypatch) -> None:
    from axiograd.training import loss as module

    checks = []
    original = module._check_connected
    monkeypatch.setattr(module, "_check_connected", lambda *a: (checks.append(1), original(*a)))
    loss = xgradient_loss(L1())
    for _ in range(3):
        loss(model, x, Y)
    assert len(checks) == 1
    assert all(p.grad is None for p in model.parameters())
    loss(copy.deepcopy(model), x, Y)
    assert len(checks) == 2


def test_schedule_counts_training_steps_and_survives_a_checkpoint(model: Net, x: torch.Tensor) -> None:
    generator = torch.Generator().manual_seed(5)
    loss = xgradient_loss(L1(), LinearWarmup(1.0, steps=4), outputs="random", generator=generator)
    weights = [loss(model, x, Y).weight for _ in range(3)]
    assert weights == [0.0, 0.25, 0.5]
    state = loss.state_dict()
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    fresh = torch.Generator()
    resumed = xgradient_loss(L1(), LinearWarmup(1.0, steps=4), outputs="random", generator=fresh)
    resumed.load_state_dict(state)
    assert (resumed.step, resumed.weight) == (3, 0.75)
    assert torch.equal(resumed(model, x, Y).total, loss(model, x, Y).total)


def test_a_copy_of_the_loss_has_no_copy_of_the_model(model: Net, x: torch.Tensor) -> None:
    loss = xgradient_loss(L1())
    loss(model, x, Y)
    assert copy.deepcopy(loss)._bound is None
    assert not list(loss.parameters())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AttributionLoss(F.cross_entropy, L1(), outputs="best"), "got 'best'"),
        (lambda: xgradient_loss(L1())(Net(), torch.ones(BATCH, FEATURES).double(), Y, mask=MASK), "prior L1 does not"),
        (
            lambda: AttributionLoss(lambda o, y: o.sum(1), L1(), degree=1)(Net(), torch.ones(5, 6).double(), Y),
            r"must be a scalar \(take its mean\), got shape \(5,\)",
        ),
    ],
)
def test_settings_that_cannot_work_are_named(make, message: str) -> None:
    with pytest.raises(AxiogradError, match=message):
        make()


def test_accumulation_of_a_per_sample_prior_is_exact(model: Net, x: torch.Tensor) -> None:
    loss = xgradient_loss()
    loss(model, x[:4], Y[:4], mask=MASK[:4]).total.backward()
    whole = grads(model)
    model.zero_grad()
    for part in (slice(0, 2), slice(2, 4)):
        (loss(model, x[part], Y[part], mask=MASK[part]).total / 2).backward()
    torch.testing.assert_close(grads(model), whole, rtol=1e-12, atol=1e-15)


def test_bfloat16_autocast_is_close_to_float32(x: torch.Tensor) -> None:
    torch.manual_seed(0)
    model, x = Net(dtype=torch.float32), x.float()
    loss = xgradient_loss(L1())
    loss(model, x, Y).total.backward()
    exact = grads(model)
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        terms = loss(model, x, Y)
    assert terms.outputs.dtype == torch.bfloat16
    assert terms.total.dtype == torch.float32
    terms.total.backward()
    assert F.cosine_similarity(grads(model), exact, dim=0) > 0.995


@pytest.mark.parametrize("outputs", ["target", "random"])
def test_non_reentrant_checkpointing_changes_nothing(outputs, model: Net, x: torch.Tensor) -> None:
    def run(forward):
        model.zero_grad()
        torch.manual_seed(0)
        xgradient_loss(outputs=outputs)(forward, x, Y, mask=MASK).total.backward()
        return grads(model)

    plain = run(model)
    checkpointed = run(lambda v: checkpoint(model, v, use_reentrant=False))
    torch.testing.assert_close(checkpointed, plain, rtol=1e-13, atol=1e-15)


def test_training_with_the_prior_removes_a_wrong_reason() -> None:
    torch.manual_seed(0)
    signal = torch.randn(256, 1)
    y = (signal[:, 0] > 0).long()
    x = torch.cat([signal + 0.5 * torch.randn(256, 1), 2.0 * y[:, None] - 1.0, torch.randn(256, 2)], 1)
    mask = torch.tensor([False, True, False, False]).expand(256, 4)

    def share_of_decoy(weight: float) -> float:
        torch.manual_seed(1)
        model = Net(2, 4, torch.float32)
        optimizer = torch.optim.Adam(model.parameters(), 0.02)
        loss = AttributionLoss(F.cross_entropy, RightReasons(), weight, outputs="random", degree=1)
        for _ in range(120):
            optimizer.zero_grad()
            terms = loss(model, x, y, mask=mask)
            terms.total.backward()
            optimizer.step()
        a = XGradient(model, degree=1).attribute(x, y).abs().mean(0)
        return float(a[1] / a.sum())

    assert share_of_decoy(0.0) > 0.5
    assert share_of_decoy(10.0) < 0.05
