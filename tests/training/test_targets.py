import pytest
import torch

from axiograd.errors import TargetError
from axiograd.training.targets import attribution_target, random_combination

N = torch.Size([2, 3])


def test_random_signs_are_independent_of_zero_mean_and_unit_variance() -> None:
    weights = random_combination(torch.Size([20_000, 4]), torch.Generator().manual_seed(0)).weights
    assert set(weights.flatten().tolist()) == {-1.0, 1.0}
    error = 5 / 20_000**0.5
    assert weights.mean(0).abs().max() < error
    torch.testing.assert_close(weights.T @ weights / 20_000, torch.eye(4), rtol=0, atol=error)
    assert (weights[:-1] * weights[1:]).mean(0).abs().max() < error  # samples are independent, too


def test_every_output_of_a_map_has_its_sign() -> None:
    target = random_combination(torch.Size([2, 3, 4, 4]))
    assert target.weights.shape == (2, 48)
    assert target(torch.ones(2, 3, 4, 4)).shape == (2,)


@pytest.mark.parametrize(
    ("labels", "shape"),
    [
        (torch.tensor([0.5, 1.0]), N),
        (torch.tensor([True, False]), N),
        (torch.zeros(2, 4, 4, dtype=torch.long), torch.Size([2, 3, 4, 4])),
        (torch.zeros(3, dtype=torch.long), N),
        (None, N),
    ],
)
def test_targets_that_name_no_output_are_refused(labels, shape) -> None:
    with pytest.raises(TargetError, match="do not name one of the"):
        attribution_target("target", labels, shape)
