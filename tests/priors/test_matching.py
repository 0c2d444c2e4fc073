import pytest
import torch
from torch.nn import functional as F

from axiograd.errors import ConfigurationError
from axiograd.priors import Matching

torch.manual_seed(0)
A, T = torch.randn(2, 4, 2, 3, dtype=torch.float64)


@pytest.mark.parametrize(
    ("distance", "expected"),
    [
        ("l2", F.mse_loss(A, T, reduction="sum") / 4),
        ("l1", F.l1_loss(A, T, reduction="sum") / 4),
        ("cosine", 1 - F.cosine_similarity(A.flatten(1), T.flatten(1)).mean()),
    ],
)
def test_distances(distance: str, expected: torch.Tensor) -> None:
    torch.testing.assert_close(Matching(distance)(A, teacher=T), expected)


def test_cosine_sees_directions_only() -> None:
    value = Matching("cosine")(A.float() * 1e-30, teacher=A.float() * 1e30)
    assert value.item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("distance", ["l2", "l1", "cosine"])
def test_missing_maps_add_nothing(distance: str) -> None:
    expected = Matching(distance)(A[:1], teacher=T[:1]) / 4
    torch.testing.assert_close(Matching(distance)(A, teacher=[T[0], None, None, None]), expected)
    has = torch.tensor([True, False, False, False])
    torch.testing.assert_close(Matching(distance)(A, teacher=T, has_teacher=has), expected)


def test_the_teacher_is_not_trained() -> None:
    teacher = T.clone().requires_grad_()
    attributions = A.clone().requires_grad_()
    Matching()(attributions, teacher=teacher).backward()
    assert teacher.grad is None
    torch.testing.assert_close(attributions.grad, 2 * (A - T) / 4)


def test_unknown_distance() -> None:
    with pytest.raises(ConfigurationError, match="'l2', 'l1', 'cosine'"):
        Matching("hamming")
