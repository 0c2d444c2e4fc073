"""What all priors promise: finite values and gradients at the edges, and gradients that are right."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from axiograd.errors import ConfigurationError, InputError
from axiograd.priors import Energy, GraphSmoothness, Groups, Matching, Prior, RightReasons
from support.prior_cases import CASES, Case

EDGES = {
    "ordinary": lambda: torch.linspace(-1.3, 2.0, 24).reshape(2, 1, 3, 4),
    "zero": lambda: torch.zeros(2, 1, 3, 4),
    "one sample": lambda: torch.linspace(-1.3, 2.0, 12).reshape(1, 1, 3, 4),
    "one feature": lambda: torch.tensor([0.5, -2.0]).reshape(2, 1, 1, 1),
    "one sample of one feature": lambda: torch.full((1, 1, 1, 1), 3.0),
    "one zero": lambda: torch.zeros(1, 1, 1, 1),
    "one sample of two is zero": lambda: torch.stack([torch.zeros(1, 3, 4), torch.ones(1, 3, 4)]),
    "all equal": lambda: torch.ones(2, 1, 3, 4),
    "all negative": lambda: -torch.ones(2, 1, 3, 4),
    "tiny": lambda: 1e-30 * torch.linspace(-1.3, 2.0, 24).reshape(2, 1, 3, 4),
    "subnormal": lambda: 1e-42 * torch.linspace(-1.3, 2.0, 24).reshape(2, 1, 3, 4),
}


def value_and_gradient(case: Case, attributions: Tensor) -> tuple[Tensor, Tensor]:
    attributions = attributions.clone().requires_grad_()
    value = case.prior(attributions[0].numel())(attributions, **case.arguments(attributions.detach()))
    (gradient,) = torch.autograd.grad(value, attributions)
    return value, gradient


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_value_and_gradient_are_finite(name: str, edge: str, dtype: torch.dtype) -> None:
    value, gradient = value_and_gradient(CASES[name], EDGES[edge]().to(dtype))
    assert value.shape == ()
    assert value.dtype == dtype
    assert value.isfinite()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", CASES)
def test_gradient_agrees_with_finite_differences(name: str) -> None:
    torch.manual_seed(3)
    attributions = torch.randn(3, 1, 3, 4, dtype=torch.float64, requires_grad=True)
    prior, arguments = CASES[name].prior(12), CASES[name].arguments(attributions.detach())
    assert torch.autograd.gradcheck(lambda a: prior(a, **arguments), attributions)


@pytest.mark.parametrize("name", CASES)
def test_half_precision_is_computed_in_float32(name: str) -> None:
    attributions = EDGES["ordinary"]().bfloat16()
    value, gradient = value_and_gradient(CASES[name], attributions)
    exact, _ = value_and_gradient(CASES[name], attributions.double())
    assert value.dtype == torch.float32
    assert gradient.dtype == torch.bfloat16
    torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_autocast_does_not_reach_into_a_prior(name: str) -> None:
    attributions = EDGES["ordinary"]()
    value, _ = value_and_gradient(CASES[name], attributions)
    with torch.autocast("cpu", torch.bfloat16):
        under_autocast, _ = value_and_gradient(CASES[name], attributions)
    assert torch.equal(under_autocast, value)


@pytest.mark.parametrize("name", CASES)
def test_per_sample_priors_are_means_over_samples(name: str) -> None:
    torch.manual_seed(0)
    attributions = torch.randn(4, 1, 3, 4, dtype=torch.float64)
    case = CASES[name]
    prior = case.prior(12)

    def of(part: Tensor) -> Tensor:
        return prior(part, **case.arguments(part))

    halves = (of(attributions[:2]) + of(attributions[2:])) / 2
    whole = of(attributions)
    if prior.per_sample:
        torch.testing.assert_close(halves, whole, rtol=1e-12, atol=1e-12)
    else:
        assert (halves - whole).abs() > 1e-3


@pytest.mark.parametrize("name", CASES)
def test_unknown_argument_is_named(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"does not take the argument 'colour'"):
        CASES[name].prior(12)(torch.ones(1, 1, 3, 4), colour=1)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("wrong", [torch.ones(2, 3, dtype=torch.long), torch.ones(0, 3), torch.tensor(1.0), 3.0])
def test_what_is_no_batch_of_attributions_is_refused(name: str, wrong: Any) -> None:
    prior = CASES[name].prior(3)
    arguments = dict.fromkeys(name for name, required in prior.arguments.items() if required)
    with pytest.raises(InputError):
        prior(wrong, **arguments)


def test_every_prior_of_the_package_is_tested_here() -> None:
    import axiograd.priors as package

    public = {p for p in vars(package).values() if isinstance(p, type) and issubclass(p, Prior)} - {Prior}
    assert {type(case.prior(1)) for case in CASES.values()} >= public


ARRAYS = {
    "right-reasons": (RightReasons(), {"mask": np.array([[True, False, True], [False, True, True]])}),
    "has_mask": (RightReasons(), {"mask": np.ones((2, 3)), "has_mask": np.array([True, False])}),
    "matching": (Matching(), {"teacher": np.array([[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]])}),
    "energy-inside": (Energy(), {"inside": np.array([[1, 0, 1], [0, 1, 1]])}),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("form", ["array", "list of arrays", "nested lists"])
def test_arguments_may_be_numpys(name: str, form: str) -> None:
    prior, arrays = ARRAYS[name]
    attributions = torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])
    expected = prior(attributions, **{k: torch.tensor(v) for k, v in arrays.items()})
    forms = {"array": lambda v: v, "list of arrays": list, "nested lists": np.ndarray.tolist}
    assert prior(attributions, **{k: forms[form](v) for k, v in arrays.items()}) == expected


def test_boxes_groups_and_graphs_may_be_numpys() -> None:
    images = torch.linspace(-1, 2, 24).reshape(2, 1, 3, 4)
    boxes = np.array([[0, 0, 2, 2], [1, 1, 4, 3]])
    expected = Energy()(images, boxes=torch.tensor(boxes))
    assert Energy()(images, boxes=boxes) == Energy()(images, boxes=list(boxes)) == expected
    assert Energy()(images, boxes=boxes.tolist()) == Energy()(images, boxes=[boxes[:1], boxes[1:]]) == expected
    masks = np.ones((2, 1, 3, 4))
    assert Energy()(images, inside=masks) == Energy()(images, inside=torch.tensor(masks))
    graph = np.ones((3, 3))
    attributions = torch.tensor([[1.0, -2.0, 3.0]])
    assert GraphSmoothness(graph)(attributions) == GraphSmoothness(torch.tensor(graph))(attributions)
    groups = np.array([[[1, 1, 0], [0, 0, 1]]])
    assert Groups()(attributions, groups=groups) == Groups()(attributions, groups=torch.tensor(groups)) == 10
    assert Groups()(attributions, groups=groups.tolist()) == 10


@pytest.mark.parametrize(
    ("prior", "arguments", "message"),
    [
        (RightReasons(), {"mask": "everywhere"}, "'mask' of type str is not a tensor"),
        (RightReasons(), {"mask": ["a", "b"]}, "'mask' of type str is not a tensor"),
        (RightReasons(), {"mask": [None] * 3}, "3 entries for a batch of 2"),
        (Matching(), {"teacher": [[1.0], "b"]}, "'teacher' of type str is not a tensor"),
        (Groups(), {"groups": [[[0], [1, 2]], [[0], [1]]]}, "'groups' of type list is not a tensor"),
    ],
)
def test_arguments_that_are_no_tensors_are_named(prior: Prior, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        prior(torch.ones(2, 1), **arguments)


def test_boxes_have_four_corners() -> None:
    with pytest.raises(ConfigurationError, match=r"x0 y0 x1 y1, got shapes \[\[1, 4\], \[1, 3\]\]"):
        Energy()(torch.ones(2, 1, 3, 4), boxes=[[0, 0, 1, 1], [0, 0, 1]])
