import pytest
import torch
from torch import nn
from torch.nn import functional as F

from axiograd.errors import ConfigurationError
from axiograd.training.batches import ensure_dataset
from axiograd.training.fit import launch
from axiograd.training.validate import predict, score


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
