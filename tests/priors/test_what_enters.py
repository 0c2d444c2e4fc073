"""What a prior is given is checked where it enters: one NaN would turn every weight into NaN."""

import numpy as np
import pytest
import torch
from torch import nn

from axiograd import AttributionLoss
from axiograd.errors import ConfigurationError, InputError, NotFiniteError
from axiograd.priors import L1, Energy, Gini, Groups, LowFrequency, Matching, RightReasons

A = torch.tensor([[1.0, -2.0, 4.0], [0.5, 3.0, 0.0]])
BAD = [float("nan"), float("inf"), -float("inf")]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize(
    ("prior", "name"), [(RightReasons(), "mask"), (Matching(), "teacher"), (Matching("cosine"), "teacher")]
)
def test_maps_that_are_not_finite(prior: nn.Module, name: str, bad: float) -> None:
    maps = torch.ones(2, 3)
    maps[1, 2] = bad
    with pytest.raises(NotFiniteError, match=f"'{name}' of sample 1 of the batch"):
        prior(A, **{name: maps})
    prior(A, **{name: maps, f"has_{name}": torch.tensor([True, False])})  # whatever stands where there is none


@pytest.mark.parametrize("bad", BAD)
def test_regions_and_groups_that_are_not_finite(bad: float) -> None:
    with pytest.raises(NotFiniteError, match="'inside' of sample 0"):
        Energy()(A, inside=torch.full((2, 3), bad))
    with pytest.raises(NotFiniteError, match="'groups'"):
        Groups(torch.tensor([[1.0, bad, 0.0]]))(A)


def test_a_map_that_float32_cannot_hold() -> None:
    with pytest.raises(NotFiniteError, match=r"infinite in torch\.float32"):
        RightReasons()(A, mask=torch.full((2, 3), 1e39, dtype=torch.float64))


@pytest.mark.parametrize("make", [torch.tensor, np.array])
def test_bytes_are_read_as_images_are(make) -> None:
    image, weights = [[0, 255, 0], [255, 0, 51]], torch.tensor([[0, 1.0, 0], [1.0, 0, 0.2]])
    dtype = torch.uint8 if make is torch.tensor else np.uint8
    torch.testing.assert_close(RightReasons()(A, mask=make(image, dtype=dtype)), RightReasons()(A, mask=weights))
    torch.testing.assert_close(
        RightReasons()(A, mask=[make(row, dtype=dtype) for row in image]), RightReasons()(A, mask=weights)
    )
    ones = make([[0, 1, 0], [1, 0, 0]], dtype=dtype)
    assert RightReasons()(A, mask=ones) == RightReasons()(A, mask=torch.tensor([[0, 1.0, 0], [1.0, 0, 0]]))


def test_what_is_inside_is_a_share() -> None:
    with pytest.raises(InputError, match="from 0 to 255"):
        Energy()(A, inside=torch.tensor([[0.0, 255.0, 0.0]]).repeat(2, 1))
    with pytest.raises(InputError, match="divide by 255"):
        RightReasons()(A, mask=torch.tensor([[0.0, 255.0, 0.0]]).repeat(2, 1))


def test_priors_that_overflow_are_refused() -> None:
    with pytest.raises(NotFiniteError, match="prior RightReasons is inf of attributions that are finite"):
        RightReasons()(A * 1e20, mask=torch.ones(2, 3))
    with pytest.raises(NotFiniteError, match="overflows"):
        (1e30 * L1())(A * 1e10)
    assert (1e30 * L1())(A.double() * 1e10).isfinite()


@pytest.mark.parametrize("weight", [1e39, -1e39, float("inf"), float("nan")])
def test_weights_that_float32_cannot_hold(weight: float) -> None:
    with pytest.raises(ConfigurationError, match="finite in float32"):
        weight * L1()
    model = nn.Linear(3, 1, bias=False)
    with pytest.raises(ConfigurationError, match="finite in float32"):
        AttributionLoss(nn.functional.mse_loss, L1(), weight)(model, A, torch.zeros(2, 1))


@pytest.mark.parametrize("prior", [Matching("cosine"), Gini(), LowFrequency(dims=1), Energy()], ids=repr)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("scale", [0.0, 1e-7, 6e-5, 1e-3, 1e3])
def test_gradients_are_finite_at_every_scale(prior: nn.Module, dtype: torch.dtype, scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    attributions = (scale * torch.randn(4, 8, generator=generator)).to(dtype).requires_grad_()
    further = {Matching: {"teacher": torch.ones(4, 8)}, Energy: {"inside": torch.ones(4, 8)}}.get(type(prior), {})
    prior(attributions, **further).backward()
    assert attributions.grad is not None
    assert attributions.grad.isfinite().all()
