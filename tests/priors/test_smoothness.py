import itertools

import pytest
import torch

from axiograd.errors import ConfigurationError, InputError
from axiograd.priors import Smoothness


def test_value_equals_a_loop_over_pixels() -> None:
    torch.manual_seed(0)
    attributions = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    expected = 0.0
    for s, c, i, j in itertools.product(range(2), range(3), range(4), range(5)):
        here = attributions[s, c, i, j]
        expected += abs(attributions[s, c, i + 1, j] - here).item() if i < 3 else 0.0
        expected += abs(attributions[s, c, i, j + 1] - here).item() if j < 4 else 0.0
    assert Smoothness()(attributions).item() == pytest.approx(expected / 2, rel=1e-14)


def test_a_constant_map_is_smooth_and_series_have_one_axis() -> None:
    assert Smoothness()(torch.full((2, 3, 4, 4), 7.0)) == 0
    assert Smoothness(dims=1)(torch.tensor([[0.0, 1.0, -1.0]])) == 3


def test_missing_axes_and_bad_dims_are_refused() -> None:
    with pytest.raises(InputError, match=r"2 axes of pixels, got attributions of shape \[4, 5\]"):
        Smoothness()(torch.ones(4, 5))
    with pytest.raises(ConfigurationError, match="dims=0"):
        Smoothness(dims=0)
