import re
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from axiograd.training.batches import Batch
from axiograd.training.mixup import MixedTarget
from axiograd.training.objective import not_finite

X, Y = torch.zeros(3, 2), torch.zeros(3)


def message(inputs=X, target=Y, outputs=Y, attributions=None, task_loss=F.mse_loss, values=None):
    batch = Batch(inputs, target, {}, (70, 5, 31))
    terms = SimpleNamespace(outputs=outputs, attributions=attributions)
    return str(not_finite(values or {"task": 1.0, "prior": float("nan")}, batch, terms, task_loss, "epoch 2, step 9"))


def spoiled(tensor, row):
    tensor = tensor.clone()
    tensor[row] = torch.nan
    return tensor


@pytest.mark.parametrize("part", ["inputs", "target", "outputs", "attributions"])
def test_the_sample_is_found_wherever_the_nan_is(part):
    text = message(**{part: spoiled(X if part in {"inputs", "attributions"} else Y, 2)})
    assert text.startswith("epoch 2, step 9: prior = nan (from sample 31 of the data set)")
    assert "task" not in text


def test_a_loss_that_is_infinite_for_finite_outputs():
    assert "from sample 5 of" in message(outputs=torch.tensor([1.0, 0.0, 2.0]), task_loss=lambda o, t: -o.log().mean())


def test_no_sample_alone():
    assert "no single sample alone; the batch is 5, 31, 70" in message()
    assert "no single sample alone" in message(target=MixedTarget(Y, Y, 0.5))
    assert "a loss on another rank" in message(values={"task": 1.0})


def test_many_samples_are_abbreviated():
    batch = Batch(torch.full((30, 1), torch.inf), torch.zeros(30), {}, tuple(range(30)))
    text = str(not_finite({"total": float("inf")}, batch, SimpleNamespace(), F.mse_loss, "here"))
    assert re.search(r"total = inf \(from sample 0, 1, .* 9 and 20 more", text)
