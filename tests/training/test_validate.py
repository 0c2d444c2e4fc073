import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from axiograd.datasets import table
from axiograd.errors import ConfigurationError
from axiograd.training.batches import WithArguments, ensure_dataset
from axiograd.training.fit import launch
from axiograd.training.validate import predict, sample_weights, score


def test_outputs_come_in_the_data_sets_order_from_a_model_in_eval_mode():
    x, y = torch.randn(23, 4), torch.arange(23)
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5))
    outputs, targets = predict(launch("cpu"), model, ensure_dataset((x, y), "data"), batch_size=5)
    assert torch.equal(targets, y)
    torch.testing.assert_close(outputs, model[0](x).detach())
    assert not outputs.requires_grad
    assert model.training
    assert model[1].training


def test_scores():
    outputs, targets = torch.randn(9, 3), torch.arange(9) % 3
    assert score("loss", F.cross_entropy, outputs, targets) == pytest.approx(-float(F.cross_entropy(outputs, targets)))
    accuracy = sum(int(o.argmax() == t) for o, t in zip(outputs, targets, strict=True)) / 9
    assert score("accuracy", F.cross_entropy, outputs, targets) == accuracy
    assert score("accuracy", F.cross_entropy, outputs, F.one_hot(targets).float()) == accuracy
    assert score(lambda o, t: torch.tensor(2.5), F.cross_entropy, outputs, targets) == 2.5
    with pytest.raises(ConfigurationError, match="one class index per sample"):
        score("accuracy", F.mse_loss, outputs, torch.zeros(9))
    with pytest.raises(ConfigurationError, match="metric is 'auc'"):
        score("auc", F.mse_loss, outputs, targets)


def test_weights_of_samples_enter_validation():
    rows = {"a": [0.0, 1.0, 2.0, 3.0], "y": ["n", "n", "p", "p"], "w": [1.0, 0.0, 2.0, 5.0]}
    data = table(rows, label="y", weights="w", split="all")
    outputs, targets = torch.tensor([[2.0, 0.0], [2.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0, 1, 1])
    weights = sample_weights(data)
    assert torch.equal(weights, sample_weights(WithArguments(data, sample_weight="weights")))
    assert sample_weights(table(rows, label="y", drop=["w"], split="all")) is None
    cross_entropy = F.cross_entropy
    assert score("accuracy", cross_entropy, outputs, targets, weights) == pytest.approx(6 / 8)
    each = cross_entropy(outputs, targets, reduction="none").numpy()
    expected = -np.average(each, weights=rows["w"])
    assert score("loss", cross_entropy, outputs, targets, weights) == pytest.approx(expected, rel=1e-6)
    with pytest.raises(ConfigurationError, match="none of them counts"):
        score("accuracy", cross_entropy, outputs, targets, torch.zeros(4))
