"""Oracles: cross-entropy with soft labels, and the moments of the Beta distribution."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from axiograd.attribution import InputXGradient, XGradient
from axiograd.errors import ConfigurationError, TargetError
from axiograd.training import AttributionLoss
from axiograd.training.batches import Batch
from axiograd.training.mixup import MixedTarget, mixup
from axiograd.training.objective import TaskLoss, ensure_objective


def make_batch(n=6):
    torch.manual_seed(0)
    return Batch(torch.randn(n, 4), torch.randint(0, 3, (n,)), indices=tuple(range(n)))


def soft_labels(target):
    return target.share * F.one_hot(target.first, 3) + (1 - target.share) * F.one_hot(target.second, 3)


def test_task_loss_is_that_of_soft_labels():
    mixed = mixup(make_batch(), 0.7, seed=4)
    model = nn.Linear(4, 3)
    loss = TaskLoss(F.cross_entropy)(model, mixed.inputs, mixed.target).total
    torch.testing.assert_close(loss, F.cross_entropy(model(mixed.inputs), soft_labels(mixed.target)))


def test_inputs_and_labels_are_mixed_alike():
    batch = make_batch()
    coded = Batch(F.one_hot(batch.target, 3).double(), batch.target, indices=batch.indices)
    mixed = mixup(coded, 0.7, seed=4)
    torch.testing.assert_close(mixed.inputs, soft_labels(mixed.target).double())
    assert 0 < mixed.target.share < 1
    assert mixup(coded, 0.7, seed=4).target.share == mixed.target.share


def test_share_has_the_moments_of_beta():
    batch = make_batch(2)
    shares = torch.tensor([mixup(batch, 0.7, seed).target.share for seed in range(2000)])
    assert shares.mean() == pytest.approx(0.5, abs=0.025)
    assert shares.var() == pytest.approx(1 / (4 * (2 * 0.7 + 1)), abs=0.01)


@pytest.mark.parametrize("method", [XGradient, InputXGradient])
def test_attributed_is_the_mixture_of_both_classes(method):
    batch = mixup(make_batch(), 0.7, seed=4)
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 3, bias=False))
    loss = AttributionLoss(F.cross_entropy, lambda a: a.square().mean(), 2.0, method)
    terms = ensure_objective(loss)(model, batch.inputs, batch.target)
    each = [
        InputXGradient(model).attribute(batch.inputs, target) for target in (batch.target.first, batch.target.second)
    ]
    expected = batch.target.share * each[0] + (1 - batch.target.share) * each[1]
    torch.testing.assert_close(terms.attributions, expected)
    task = F.cross_entropy(model(batch.inputs), soft_labels(batch.target))
    torch.testing.assert_close(terms.task, task)
    torch.testing.assert_close(terms.total, task + 2.0 * expected.square().mean())
    terms.total.backward()


def test_tuples_and_mappings_are_mixed():
    x, y = torch.randn(4, 2), torch.randn(4)
    pair = mixup(Batch((x, 2 * x), y, indices=(0, 1, 2, 3)), 1.0, seed=0)
    torch.testing.assert_close(pair.inputs[1], 2 * pair.inputs[0])
    named = mixup(Batch({"a": x}, y, indices=(0, 1, 2, 3)), 1.0, seed=0)
    assert torch.equal(named.inputs["a"], pair.inputs[0])


def test_what_cannot_be_mixed():
    batch = make_batch()
    with pytest.raises(ConfigurationError, match="mask"):
        mixup(Batch(batch.inputs, batch.target, {"mask": batch.inputs}, batch.indices), 0.7, seed=0)
    with pytest.raises(ConfigurationError, match=r"torch\.int64"):
        mixup(Batch(batch.target, batch.target, indices=batch.indices), 0.7, seed=0)
    with pytest.raises(TargetError, match=r"\(2, 3\)"):
        MixedTarget(torch.zeros(2), torch.zeros(2), 0.5)(torch.zeros(2, 3))
    assert MixedTarget(torch.zeros(2), torch.zeros(2), 0.5)(torch.ones(2, 1)).shape == (2,)
