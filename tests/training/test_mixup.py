"""Oracles: cross-entropy with soft labels, and the moments of the Beta distribution."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from axiograd.attribution import InputXGradient
from axiograd.errors import ConfigurationError
from axiograd.training import AttributionLoss, Recipe, fit
from axiograd.training.data import Batch
from axiograd.training.module import mixup


def make_batch(n=6, inputs=None):
    torch.manual_seed(0)
    x, y = torch.randn(n, 4), torch.randint(0, 3, (n,))
    return Batch(x if inputs is None else inputs, y, {}, list(range(n)))


def mixed_labels(batch, seed):
    """The labels mixed as inputs are."""
    torch.manual_seed(seed)
    labels, _, _ = mixup(batch._replace(inputs=F.one_hot(batch.target, 3).float()), F.cross_entropy, 0.7)
    return labels


def test_task_loss_is_that_of_soft_labels():
    batch, model = make_batch(), nn.Linear(4, 3)
    labels = mixed_labels(batch, 4)
    torch.manual_seed(4)
    inputs, loss, _ = mixup(batch, F.cross_entropy, 0.7)
    torch.testing.assert_close(loss(model(inputs), batch.target), F.cross_entropy(model(inputs), labels))
    assert ((labels > 0) & (labels < 1)).any()


def test_the_share_has_the_moments_of_beta():
    batch = Batch(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]), {}, [0, 1])
    torch.manual_seed(0)
    found = torch.stack([mixup(batch, F.cross_entropy, 0.7)[0][0] for _ in range(4000)])
    shares = found[(found != 0)]  # where another sample was mixed in: 1 − m
    assert shares.mean() == pytest.approx(0.5, abs=0.025)
    assert shares.var() == pytest.approx(1 / (4 * (2 * 0.7 + 1)), abs=0.01)


def test_attributed_is_the_mixture_of_both_classes():
    """One step of plain gradient descent on one batch, beside the step by hand with soft labels."""
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 3, bias=False))
    batch = make_batch()
    torch.manual_seed(4)
    inputs, _, mixed_class = mixup(batch, F.cross_entropy, 0.7)
    soft = mixed_labels(batch, 4)
    each = torch.stack([InputXGradient(model).attribute(inputs, target) for target in range(3)], 1)
    expected = (soft[:, :, None] * each).sum(1)
    torch.testing.assert_close(InputXGradient(model).attribute(inputs, mixed_class), expected)
    assert mixed_class(torch.ones(6, 1)).shape == (6,)


@pytest.mark.parametrize("task_loss", [F.cross_entropy, nn.CrossEntropyLoss()], ids=["function", "module"])
@pytest.mark.parametrize("outputs", ["target", "random", "residual"])
def test_fit_mixes_with_a_prior(outputs, task_loss):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 2, bias=False))
    x = torch.randn(64, 4)
    loss = AttributionLoss(task_loss, lambda a: a.square().mean(), 0.01, outputs=outputs)
    recipe = Recipe.preset("fixup_resnet50", epochs=10, batch_size=16)
    result = fit(model, (x, (x[:, 0] > 0).long()), loss, recipe=recipe, accelerator="cpu", progress=False)
    assert result.history[-1]["task"] < result.history[0]["task"]
    assert loss.task_loss is task_loss


def test_tuples_and_mappings_are_mixed():
    x = torch.randn(6, 2)
    (first, second), _, _ = mixup(make_batch(inputs=(x, 2 * x)), F.cross_entropy, 1.0)
    torch.testing.assert_close(second, 2 * first)
    named, _, _ = mixup(make_batch(inputs={"a": x}), F.cross_entropy, 1.0)
    assert named["a"].shape == x.shape


def test_what_cannot_be_mixed():
    batch = make_batch()
    with pytest.raises(ConfigurationError, match="mask"):
        mixup(batch._replace(arguments={"mask": batch.inputs}), F.cross_entropy, 0.7)
