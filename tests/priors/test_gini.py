import pytest
import torch
from torch import Tensor

from axiograd.errors import ConfigurationError
from axiograd.priors import Gini


def by_matrix(attributions: Tensor, normalisation: str) -> Tensor:
    mean = attributions.reshape(len(attributions), -1).abs().mean(0)
    differences = (mean[:, None] - mean[None, :]).abs()
    if normalisation == "published":
        return -0.5 * differences.mean() / mean.mean()
    return -differences.sum() / (len(attributions) * mean.sum())


@pytest.mark.parametrize("normalisation", ["published", "paper"])
@pytest.mark.parametrize("shape", [(5, 118), (1, 7), (3, 1), (2, 3, 4, 5)])
def test_value_and_gradient_equal_those_of_the_matrix(shape: tuple[int, ...], normalisation: str) -> None:
    torch.manual_seed(0)
    attributions = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    ours, theirs = Gini(normalisation)(attributions), by_matrix(attributions, normalisation)
    torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=1e-14)
    gradients = [torch.autograd.grad(value, attributions)[0] for value in (ours, theirs)]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-15)


def test_ties_have_the_gradient_of_the_matrix() -> None:
    attributions = torch.tensor([[1.0, 1.0, 3.0, 3.0, 2.0]], dtype=torch.float64, requires_grad=True)
    gradients = [
        torch.autograd.grad(value, attributions)[0]
        for value in (Gini()(attributions), by_matrix(attributions, "published"))
    ]
    torch.testing.assert_close(*gradients, rtol=1e-13, atol=1e-15)


def test_known_values() -> None:
    one_of_ten = torch.eye(10)[:1]
    assert Gini()(one_of_ten).item() == pytest.approx(-0.9)
    assert Gini()(torch.arange(1.0, 5.0)[None]).item() == pytest.approx(-0.25)


def test_normalisations_differ_by_two_features_per_sample() -> None:
    attributions = torch.rand(4, 10, dtype=torch.float64)
    ratio = Gini("paper")(attributions) / Gini("published")(attributions)
    assert ratio.item() == pytest.approx(2 * 10 / 4)


def test_scale_does_not_matter() -> None:
    attributions = torch.rand(4, 10)
    assert Gini()(1e-30 * attributions).item() == pytest.approx(Gini()(attributions).item(), rel=1e-5)
    assert Gini()(1e36 * attributions).item() == pytest.approx(Gini()(attributions).item(), rel=1e-5)


def test_an_image_has_too_many_pixels_for_a_matrix_and_none_is_needed() -> None:
    attributions = torch.randn(2, 3, 224, 224, requires_grad=True)
    with torch.profiler.profile(profile_memory=True, acc_events=True) as profile:
        Gini()(attributions).backward()
    assert attributions.grad is not None
    # The matrix of 150,528² float32 entries would take 90 GB; the input takes 1.2 MB.
    taken = max(event.nbytes() for event in profile.profiler.kineto_results.events() if event.name() == "[memory]")
    assert taken <= 2 * attributions.nbytes


def test_unknown_normalisation() -> None:
    with pytest.raises(ConfigurationError, match="'published' or 'paper', got 'half'"):
        Gini("half")
