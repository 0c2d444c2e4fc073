import pytest
import torch

from axiograd.errors import ConfigurationError
from axiograd.priors import Groups

torch.manual_seed(0)
A = torch.randn(3, 2, 4, dtype=torch.float64)
GROUPS = [[0, 3, 5], [7], []]


@pytest.mark.parametrize("power", [1, 2])
def test_value_equals_a_loop_over_groups(power: int) -> None:
    rows = A.flatten(1)
    expected = sum(abs(sum(row[i].item() for i in group)) ** power for row in rows for group in GROUPS) / 3
    assert Groups(GROUPS, power=power)(A).item() == pytest.approx(expected, rel=1e-13)


def test_membership_tensor_says_the_same() -> None:
    members = torch.zeros(3, 8)
    for row, group in zip(members, GROUPS, strict=True):
        row[group] = 1
    expected = Groups(GROUPS)(A)
    torch.testing.assert_close(Groups(members.reshape(3, 2, 4))(A), expected)
    torch.testing.assert_close(Groups(members.bool())(A), expected)
    per_sample = members.reshape(1, 3, 2, 4).expand(3, 3, 2, 4)
    torch.testing.assert_close(Groups()(A, groups=per_sample), expected)


def test_groups_of_a_call_differ_by_sample_and_override() -> None:
    per_sample = torch.eye(8)[:3].reshape(3, 1, 2, 4)
    expected = A.flatten(1).diagonal().square().sum() / 3
    torch.testing.assert_close(Groups(GROUPS)(A, groups=per_sample), expected)


def test_opposite_attributions_cancel_within_a_group_only() -> None:
    attributions = torch.tensor([[2.0, -2.0]])
    assert Groups([[0, 1]])(attributions) == 0
    assert Groups([[0], [1]])(attributions) == 8


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"indices \[9\], attributions have 8 features"):
        Groups([[0, 9]])(A)
    with pytest.raises(ConfigurationError, match=r"do not fit attributions of shape \[3, 2, 4\]"):
        Groups(torch.ones(2, 5))(A)
    with pytest.raises(ConfigurationError, match="needs the argument 'groups'"):
        Groups()(A)
    with pytest.raises(ConfigurationError, match="power must be 1 or 2"):
        Groups(power=3)
