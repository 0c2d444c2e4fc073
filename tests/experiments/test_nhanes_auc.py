"""ROC-AUC against all pairs."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from axiograd.errors import InputError, NotFiniteError
from axiograd.experiments.nhanes_auc import roc_auc


def by_pairs(scores, targets):
    ones, zeros = scores[targets == 1], scores[targets == 0]
    difference = (ones[:, None] - zeros).sign().double()
    return float((difference + 1).mean() / 2)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 40), st.integers(1, 12), st.integers(0, 1000))
def test_equals_the_share_of_pairs(n, levels, seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(levels, (3, n), generator=generator).float()  # few levels: many ties
    targets = torch.randint(2, (3, n), generator=generator).float()
    targets[:, 0], targets[:, 1] = 0, 1
    expected = [by_pairs(s, t) for s, t in zip(scores, targets, strict=True)]
    assert roc_auc(scores, targets).tolist() == pytest.approx(expected, abs=1e-12)


def test_equals_scikit_learn_on_many_rows():
    metrics = pytest.importorskip("sklearn.metrics")
    scores = torch.randn(13_000, generator=torch.Generator().manual_seed(0)).round(decimals=2)
    targets = (scores + torch.randn(13_000, generator=torch.Generator().manual_seed(1)) > -1).float()
    assert float(roc_auc(scores, targets)) == pytest.approx(metrics.roc_auc_score(targets, scores), abs=1e-12)


def test_what_has_no_roc_auc_is_refused():
    with pytest.raises(InputError, match="one class"):
        roc_auc(torch.zeros(1, 3), torch.ones(1, 3))
    with pytest.raises(NotFiniteError, match="diverged"):
        roc_auc(torch.tensor([[0.0, torch.nan]]), torch.tensor([[0.0, 1.0]]))
