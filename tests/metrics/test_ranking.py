"""Ranks and counts against sorting by hand."""

import pytest
import torch

from axiograd.errors import InputError
from axiograd.metrics.ranking import ORDERS, kept, per_feature, ranks

A = torch.tensor([[0.0, -3.0, 2.0, 2.0, 0.5, -3.0]])


@pytest.mark.parametrize(
    ("metric", "first_kept", "candidates"),
    [("KPM", [2, 3, 4], 3), ("KNM", [1, 5], 2), ("KAM", [1, 5, 2, 3, 4], 5), ("RAM", [4, 2, 3, 1, 5], 5)],
)
def test_order_and_candidates(metric, first_kept, candidates):
    rank, n = ranks(ORDERS[metric](A))
    assert n.tolist() == [candidates]
    assert rank[0].argsort().tolist()[:candidates] == first_kept


def test_tiny_magnitudes_keep_their_order():
    tiny = torch.tensor([[3e-45, 1e-45, 1e-30, 1e30]])
    rank, n = ranks(ORDERS["RAM"](tiny))
    assert rank.tolist() == [[1, 0, 2, 3]]
    assert n.tolist() == [4]


def test_fractions_are_rounded_down_and_limited():
    fractions = torch.tensor([0.0, 0.019, 0.29, 1.0], dtype=torch.float64)
    assert kept(fractions, 100, torch.tensor([100, 20])).tolist() == [[0, 1, 29, 100], [0, 1, 20, 20]]
    assert kept(fractions, 50176, torch.tensor([50176])).tolist() == [[0, 953, 14551, 50176]]


def test_one_value_per_pixel_is_accepted():
    inputs, a = torch.zeros(2, 3, 4, 5), torch.randn(2, 4, 5)
    assert torch.equal(per_feature(a, inputs, "mean"), a.flatten(1))
    assert torch.equal(per_feature(a.unsqueeze(1), inputs, "mean"), a.flatten(1))
    with pytest.raises(InputError, match=r"\(2, 4, 5\) for inputs of shape \(2, 3, 4, 5\)"):
        per_feature(a, inputs, "none")


def test_channels_are_aggregated_as_asked():
    a = torch.tensor([[[3.0], [-4.0]]])
    found = {c: per_feature(a, a, c).flatten().tolist() for c in ("mean", "sum", "norm", "none")}
    assert found == {"mean": [-0.5], "sum": [-1.0], "norm": [5.0], "none": [3.0, -4.0]}
