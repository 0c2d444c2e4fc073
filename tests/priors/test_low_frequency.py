import math

import pytest
import torch

from axiograd.errors import ConfigurationError, InputError
from axiograd.priors import LowFrequency


def wave(cycles: int, size: int = 16) -> torch.Tensor:
    row = torch.cos(2 * math.pi * cycles * torch.arange(size, dtype=torch.float64) / size)
    return row.expand(1, 1, size, size)


@pytest.mark.parametrize(("cycles", "expected"), [(1, 0.0), (3, 0.0), (5, 1.0), (8, 1.0)])
def test_a_pure_wave_is_above_or_below_the_cutoff(cycles: int, expected: float) -> None:
    assert LowFrequency(0.25)(wave(cycles)).item() == pytest.approx(expected, abs=1e-12)


def test_share_equals_the_transform_written_as_a_matrix() -> None:
    torch.manual_seed(0)
    n = 6
    attributions = torch.randn(2, n, n, dtype=torch.float64)
    k = torch.arange(n, dtype=torch.float64)
    matrix = torch.exp(-2j * math.pi * torch.outer(k, k) / n)
    power = (matrix @ attributions.to(torch.complex128) @ matrix.T).abs() ** 2
    frequency = torch.minimum(k, n - k) / n
    high = (frequency[:, None] ** 2 + frequency[None, :] ** 2).sqrt() > 0.3
    expected = ((power * high).sum((1, 2)) / power.sum((1, 2))).mean()
    torch.testing.assert_close(LowFrequency(0.3)(attributions), expected, rtol=1e-12, atol=0)


def test_energy_of_all_but_the_mean_is_the_variance() -> None:
    attributions = torch.randn(3, 5, 7, dtype=torch.float64)
    expected = attributions.var((1, 2), correction=0).mean() * 35
    torch.testing.assert_close(LowFrequency(0.0, measure="energy")(attributions), expected)


def test_share_does_not_depend_on_scale() -> None:
    attributions = torch.randn(2, 1, 8, 8)
    small, large = (LowFrequency()(scale * attributions).item() for scale in (1e-30, 1e30))
    assert small == pytest.approx(large, rel=1e-5)


def test_bad_settings_and_shapes_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"cutoff < 0\.707"):
        LowFrequency(0.8)
    with pytest.raises(ConfigurationError, match="got 'power'"):
        LowFrequency(measure="power")
    with pytest.raises(InputError, match="2 axes of pixels"):
        LowFrequency()(torch.ones(4, 5))
