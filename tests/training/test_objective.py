import pytest
import torch
from torch import nn
from torch.nn import functional as F

from axiograd.attribution import InputXGradient
from axiograd.errors import ConfigurationError
from axiograd.training import AttributionLoss, Recipe, fit
from axiograd.training.objective import Objective, TaskTerms, call_model, ensure_objective, scalar_terms
from axiograd.training.schedules import LinearWarmup


def test_inputs_by_position_and_by_name():
    def model(a, b=1):
        return a * b

    assert call_model(model, 3) == 3
    assert call_model(model, (3, 4)) == 12
    assert call_model(model, {"a": 3, "b": 5}) == 15


def test_terms_are_the_scalars_of_the_loss():
    model, x, y = nn.Linear(3, 2), torch.randn(4, 3), torch.tensor([0, 1, 0, 1])
    loss = AttributionLoss(F.cross_entropy, lambda a: a.square().mean(), 0.5, InputXGradient)
    found = scalar_terms(ensure_objective(loss)(model, x, y))
    assert found.keys() == {"total", "task", "prior"}
    torch.testing.assert_close(found["total"], found["task"] + 0.5 * found["prior"])
    assert not any(value.requires_grad for value in found.values())


def test_the_schedule_goes_on_where_it_was():
    model, x, y = nn.Linear(3, 2), torch.randn(4, 3), torch.tensor([0, 1, 0, 1])
    first, second = (
        ensure_objective(AttributionLoss(F.cross_entropy, torch.mean, LinearWarmup(1.0, 10), InputXGradient))
        for _ in range(2)
    )
    for _ in range(4):
        first(model, x, y)
    second.load(first.tensors())
    assert second.loss.weight == first.loss.weight == 0.4


def test_an_objective_of_ones_own():
    class Halved(Objective):
        task_loss = staticmethod(F.mse_loss)

        def __call__(self, model, inputs, target, **arguments):
            outputs = model(inputs)
            return TaskTerms(0.5 * self.task_loss(outputs, target), outputs)

    x = torch.randn(8, 2)
    result = fit(nn.Linear(2, 1), (x, x[:, :1]), loss=Halved(), recipe=Recipe(epochs=2), accelerator="cpu")
    assert result.history[1]["total"] < result.history[0]["total"]
    with pytest.raises(ConfigurationError, match="loss is str"):
        ensure_objective("cross_entropy")
