import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

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
from axiograd.errors import AxiogradError, ConfigurationError, DisconnectedError
from axiograd.priors import L1, Gini, RightReasons
from axiograd.training.loss import AttributionLoss
from support.small_xdnn import (
    BATCH,
    FEATURES,
    MASK,
    Net,
    Y,
    attributions_by_hand,
    grads,
    make_inputs,
    make_net,
    xgradient_loss,
)


@pytest.fixture(name="model")
def _model() -> Net:
    return make_net()


@pytest.fixture(name="x")
def _x() -> torch.Tensor:
    return make_inputs()


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


def test_frozen_model_is_refused(model: Net, x: torch.Tensor) -> None:
    model.requires_grad_(requires_grad=False)
    with pytest.raises(DisconnectedError, match="no parameter that requires a gradient"):
        xgradient_loss(L1())(model, x, Y)


def test_functions_and_bound_methods_are_models_too(model: Net, x: torch.Tensor) -> None:
    def function(v):
        return model(v)

    assert xgradient_loss(L1())(function, x, Y).prior.requires_grad
    model.requires_grad_(requires_grad=False)
    with pytest.raises(DisconnectedError, match="no parameter that requires a gradient"):
        xgradient_loss(L1())(model.forward, x, Y)
    with pytest.raises(DisconnectedError, match="prior has no gradient"):
        xgradient_loss(L1(), method=Detached)(function, x, Y)


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


def test_schedule_counts_training_steps_and_survives_a_checkpoint(model: Net, x: torch.Tensor) -> None:
    generator = torch.Generator().manual_seed(5)
    loss = xgradient_loss(L1(), lambda step: min(step / 4, 1.0), outputs="random", generator=generator)
    weights = [loss(model, x, Y).weight for _ in range(3)]
    assert weights == [0.0, 0.25, 0.5]
    state = loss.state_dict()
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    fresh = torch.Generator()
    resumed = xgradient_loss(L1(), lambda step: min(step / 4, 1.0), outputs="random", generator=fresh)
    resumed.load_state_dict(state)
    assert (resumed.step, resumed.weight) == (3, 0.75)
    torch.testing.assert_close(resumed(model, x, Y).total, loss(model, x, Y).total)


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


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ((F.cross_entropy, L1), r"prior is the class L1; pass an instance, L1\(\.\.\.\)"),
        (
            (F.cross_entropy, "l1"),
            r"prior must be a Prior object such as axiograd\.priors\.L1\(\), got the string 'l1'; did you mean 'L1'",
        ),
        ((F.cross_entropy, "right_reasons"), "did you mean 'RightReasons'"),
        ((F.cross_entropy, None), "prior is None, which cannot be called"),
        ((nn.CrossEntropyLoss, L1()), "task_loss is the class CrossEntropyLoss"),
        (("cross_entropy", L1()), "task_loss is 'cross_entropy', which cannot be called"),
        ((L1(), F.cross_entropy), r"task_loss is the prior L1; the order is AttributionLoss\(task_loss, prior\)"),
        ((F.cross_entropy, L1(), "much"), "weight='much': it must be a number, or a function"),
    ],
)
def test_parts_of_a_loss_that_are_not_what_they_should_be(parts, said) -> None:
    with pytest.raises(ConfigurationError, match=said):
        AttributionLoss(*parts)


def test_arguments_of_a_call_in_another_order(model: Net, x: torch.Tensor) -> None:
    with pytest.raises(ConfigurationError, match=r"the first argument is the model, got a Tensor: call loss\(model"):
        xgradient_loss(L1())(x, model, Y)
    with pytest.raises(AxiogradError):
        xgradient_loss(L1())(model, Y, x)


def test_a_weight_that_is_not_finite(model: Net, x: torch.Tensor) -> None:
    with pytest.raises(ConfigurationError, match="the weight of the prior is nan at step 0"):
        xgradient_loss(L1(), lambda step: float("nan"))(model, x, Y)
