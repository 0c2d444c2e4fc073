import pytest
import torch

from axiograd.errors import ConfigurationError
from axiograd.priors import RightReasons

A = torch.arange(1.0, 25.0, dtype=torch.float64).reshape(2, 3, 2, 2)


def test_value_is_the_masked_sum_of_squares() -> None:
    mask = torch.zeros(2, 3, 2, 2, dtype=torch.bool)
    mask[0, 1, 0, 1] = mask[1, 2, 1, 1] = True
    assert RightReasons()(A, mask=mask).item() == (6.0**2 + 24.0**2) / 2


@pytest.mark.parametrize("shape", [(2, 2, 2), (2, 1, 2, 2)])
def test_a_mask_of_pixels_holds_for_all_channels(shape: tuple[int, ...]) -> None:
    mask = torch.zeros(shape)
    mask[0, ..., 1, 0] = 1
    assert RightReasons()(A, mask=mask).item() == (3.0**2 + 7.0**2 + 11.0**2) / 2


def test_missing_masks_add_nothing() -> None:
    full, garbage = torch.ones(3, 2, 2), torch.full((3, 2, 2), torch.nan)
    expected = A[1].square().sum() / 2
    assert RightReasons()(A, mask=[None, full]) == expected
    has_mask = torch.tensor([False, True])
    assert RightReasons()(A, mask=torch.stack([garbage, full]), has_mask=has_mask) == expected
    assert RightReasons()(A, mask=None) == 0
    assert RightReasons()(A, mask=[None, None]) == 0


def test_garbage_in_a_missing_mask_does_not_reach_the_gradient() -> None:
    attributions = A.clone().requires_grad_()
    mask = torch.full_like(A, torch.nan)
    RightReasons()(attributions, mask=mask, has_mask=torch.tensor([False, False])).backward()
    assert torch.equal(attributions.grad, torch.zeros_like(A))


def test_masks_may_weigh() -> None:
    assert RightReasons()(A, mask=torch.full_like(A, 0.5)) == 0.25 * A.square().sum() / 2


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (
            torch.ones(3, 2, 2),
            r"'mask' of shape \[3, 1, 2, 2\] does not fit attributions of shape \[2, 3, 2, 2\]",
        ),
        (torch.ones(2, 3, 2, 3), "one map per sample"),
        (torch.ones(1, 3, 2, 2), "expand a shared one"),
        ([None], "1 entries for a batch of 2"),
        ([torch.ones(2, 2), torch.ones(3, 3)], "differ in shape"),
    ],
)
def test_masks_that_do_not_fit_are_refused(mask: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        RightReasons()(A, mask=mask)


def test_has_mask_is_boolean_per_sample() -> None:
    with pytest.raises(ConfigurationError, match=r"'has_mask' must be a boolean tensor of shape \[2\]"):
        RightReasons()(A, mask=torch.ones_like(A), has_mask=torch.tensor([1, 0]))
