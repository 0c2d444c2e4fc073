"""The splits and the scaling are scikit-learn's."""

import numpy as np
import pytest
import torch

from axiograd.errors import ConfigurationError
from axiograd.experiments.nhanes.data import Scaling, held_out, procedural, split, subsamples


@pytest.mark.parametrize("i", [0, 1, 199])
@pytest.mark.parametrize("n", [13_442, 13_315, 401])
def test_split_is_train_test_split(n, i):
    model_selection = pytest.importorskip("sklearn.model_selection")
    both, test = model_selection.train_test_split(np.arange(n), train_size=200, random_state=i)
    train, val = model_selection.train_test_split(both, train_size=100, random_state=i)
    for ours, theirs in zip(split(n, i), (train, val, test), strict=True):
        assert ours.tolist() == theirs.tolist()


def test_scaling_is_that_of_scikit_learn():
    impute, preprocessing = pytest.importorskip("sklearn.impute"), pytest.importorskip("sklearn.preprocessing")
    table = procedural(400).inputs
    table[:, 3] = 0.1  # a constant whose mean is not exactly 0.1
    rows = table[:100]
    imputer = impute.SimpleImputer().fit(rows)
    scaler = preprocessing.StandardScaler().fit(imputer.transform(rows))
    expected = scaler.transform(imputer.transform(table))
    torch.testing.assert_close(Scaling.fit(rows).apply(table), torch.from_numpy(expected), rtol=1e-12, atol=1e-12)


def test_subsamples_are_stacked_in_order():
    table = procedural(400)
    data = subsamples(table, (5, 2))
    assert data.train.shape == data.val.shape == (2, 100, 118)
    alone = subsamples(table, (2,))
    torch.testing.assert_close(data.val[1], alone.val[0])
    assert torch.equal(data.train_targets[1], alone.train_targets[0])
    assert not torch.equal(data.train[0], data.train[1])
    x, targets = held_out(table, 2)
    assert (len(x), len(targets)) == (200, 200)
    counts = alone.train_targets.sum() + alone.val_targets.sum() + targets.sum()
    assert counts == table.targets.sum()


def test_too_few_rows_are_refused():
    with pytest.raises(ConfigurationError, match="200 rows"):
        split(200, 0)
