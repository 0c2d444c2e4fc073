"""Data in memory."""

import pytest
import torch
from torch.utils.data import DataLoader

from axiograd.datasets import TensorData
from axiograd.errors import ConfigurationError


def make(n=7):
    masks = torch.arange(n)[:, None, None, None].bool()
    return TensorData(torch.arange(n * 2.0).view(n, 2), torch.arange(n), "seven", masks=masks)


def test_a_loader_gives_what_batches_give():
    data = make()
    for theirs, ours in zip(DataLoader(data, batch_size=3), data.batches(3), strict=True):
        for a, b in zip(theirs, ours, strict=True):
            torch.testing.assert_close(a, b)


def test_shuffled_batches_depend_on_the_seed_alone():
    first, second, other = ([y.tolist() for _, y, _ in make().batches(3, seed=s)] for s in (1, 1, 2))
    assert first == second != other
    assert sorted(target for batch in first for target in batch) == list(range(7))


def test_select_keeps_rows_together():
    picked = make().select(torch.tensor([5, 2]))
    assert picked.targets.tolist() == [5, 2]
    assert picked.inputs[:, 0].tolist() == [10, 4]
    assert len(picked.masks) == 2


def test_lengths_are_checked():
    with pytest.raises(ConfigurationError, match="'inputs': 2, 'targets': 3"):
        TensorData(torch.zeros(2, 1), torch.zeros(3), "uneven")
