"""Which outputs and inputs the prior sees."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from axiograd.attribution import ExpectedGradients
from axiograd.errors import ConfigurationError, InputError, TargetError
from axiograd.priors import L1, Gini, RightReasons
from axiograd.training.loss import AttributionLoss
from support.small_xdnn import (
    BATCH,
    CLASSES,
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
    terms = loss(model, x, Y, attribution_target=mixed)
    by_hand, rows = attributions_by_hand(model, x), torch.arange(BATCH)
    torch.testing.assert_close(terms.attributions, 0.3 * by_hand[Y, rows] + 0.7 * by_hand[Y.flip(0), rows])


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


def test_the_generator_draws_the_references_too() -> None:
    x, y = torch.randn(6, 4), torch.randint(3, (6,))
    model = nn.Linear(4, 3)

    torch.manual_seed(0)
    references = torch.randn(50, 4)

    def drawn(seed: int, generator: torch.Generator | None) -> float:
        torch.manual_seed(seed)
        loss = AttributionLoss(
            F.cross_entropy, L1(), method=ExpectedGradients, references=references, generator=generator
        )
        return loss(model, x, y).prior.item()

    assert drawn(1, torch.Generator().manual_seed(5)) == drawn(2, torch.Generator().manual_seed(5))
    assert drawn(1, None) != drawn(2, None)


@pytest.mark.parametrize("outputs", ["target", "random", "all", None])
def test_integers_are_no_inputs_to_attribute_to(outputs, model: Net) -> None:
    with pytest.raises(InputError, match=r"no floating-point tensor among the inputs \(torch\.int64\).*embeddings"):
        AttributionLoss(F.cross_entropy, L1(), outputs=outputs)(model, torch.arange(BATCH), Y)


@pytest.mark.parametrize("outputs", ["random", "all"])
def test_images_of_several_sizes(outputs) -> None:
    torch.manual_seed(0)
    looks = []
    model = nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.ReLU(), nn.Conv2d(2, 1, 1, bias=False))
    model.register_forward_hook(lambda *_: looks.append(1))
    loss = AttributionLoss(lambda o, y: o.square().mean(), RightReasons(), outputs=outputs, degree=1)
    for _ in range(2):
        for size in (5, 7, 6):
            terms = loss(model, torch.randn(3, 1, size, size), None, mask=torch.ones(3, 1, size, size))
            assert terms.outputs.shape == (3, 1, size - 2, size - 2)
            assert terms.attributions.shape[-4:] == (3, 1, size, size)
    assert len(looks) == 6 + (3 if outputs == "random" else 0)  # one more look at each size that is new


def test_a_head_that_was_exchanged() -> None:
    x, y = torch.randn(5, 6), torch.arange(5) % 4
    for outputs in ("target", "all", "residual"):
        model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(), nn.Linear(8, 4, bias=False))
        loss = AttributionLoss(F.cross_entropy, L1(), 0.1, outputs=outputs)
        loss(model, x, y).total.backward()
        model[2] = nn.Linear(8, 7, bias=False)
        loss(model, x, y).total.backward()
